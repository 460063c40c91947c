//! A confined program that calls all that it can reach, in every wrong way.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::fixture::random::Random;
use super::interfaces::Method;
use super::values::{self, Body, Materials};
use super::wire::{ERROR, RETURN, Reply, Target, Wire};

/// Calls that wait for their answers at a time.
const MOST_WAITING: usize = 48;

/// What became of the calls.
#[derive(Debug, Default)]
pub struct Outcomes {
    /// How many were sent.
    pub sent: usize,
    /// How many answers came, by interface and member, and by `ok` or the name of the error.
    pub answers: BTreeMap<(String, String), usize>,
    /// Calls that had no answer in time.
    pub unanswered: Vec<String>,
    /// How often the bus ended the connection.
    pub disconnected: usize,
}

impl Outcomes {
    /// Adds those of another attacker.
    pub fn add(&mut self, other: Outcomes) {
        self.sent += other.sent;
        self.disconnected += other.disconnected;
        self.unanswered.extend(other.unanswered);
        for (key, count) in other.answers {
            *self.answers.entry(key).or_default() += count;
        }
    }

    /// How many calls of a member were done.
    pub fn done(&self, member: &str) -> usize {
        let all = self.answers.iter();
        all.filter(|((name, what), _)| name.ends_with(member) && what == "ok").map(|(_, n)| n).sum()
    }
}

/// One connection after the other, until it is told to stop.
pub struct Attacker<'a> {
    pub socket: String,
    pub methods: &'a [Method],
    pub materials: &'a Materials,
    pub random: Random,
    /// How long it waits for an answer.
    pub patience: Duration,
    pub stop: &'a AtomicBool,
}

impl Attacker<'_> {
    pub fn run(mut self) -> Outcomes {
        let mut outcomes = Outcomes::default();
        while !self.stop.load(Ordering::Relaxed) {
            let Ok(wire) = Wire::connect(&self.socket, self.patience) else {
                outcomes.disconnected += 1;
                continue;
            };
            let mut session = Session { wire, waiting: HashMap::new(), outcomes: &mut outcomes };
            let attacked = self.attack(&mut session);
            let waiting = session.waiting;
            if let Err(error) = attacked {
                let is_late =
                    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
                if is_late {
                    outcomes.unanswered.extend(waiting.into_values());
                }
                outcomes.disconnected += 1;
            }
        }
        outcomes
    }

    /// Calls until the connection is over, or it is time for another.
    fn attack(&mut self, session: &mut Session<'_>) -> io::Result<()> {
        for _ in 0..1 + self.random.next(400) {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            self.call(session)?;
            if session.waiting.len() >= MOST_WAITING || self.random.one_in(60) {
                // All of them, but now and then it leaves without.
                let left = if self.random.one_in(10) { MOST_WAITING / 2 } else { 0 };
                session.take_answers(left)?;
            }
        }
        if self.random.one_in(4) { Ok(()) } else { session.take_answers(0) }
    }

    fn call(&mut self, session: &mut Session<'_>) -> io::Result<()> {
        let random = &mut self.random;
        let method = random.pick(self.methods);
        let mut target = method.target;
        match random.next(40) {
            0 => "/a/b".clone_into(&mut target.path),
            1 => target.path = "/ca".repeat(1 + random.next(300)),
            2 => target.member.push('X'),
            3 => target.interface.clear(),
            4 => target.interface = format!("{}.X", target.interface),
            _ => {}
        }
        if let Some(rest) = target.path.strip_prefix("/ca/desrt/dconf/Writer/")
            && !rest.is_empty()
            && random.one_in(8)
        {
            let kind = random.pick(&["Writer", "shm", "keyfile", "journal", "Other"]);
            let name = match random.next(4) {
                0 => "x".repeat(1 + random.next(300)),
                1 => format!("n{}", random.next(1_000_000)),
                _ => random.pick(&["user", "a", "a/b", "site"]).to_owned(),
            };
            target.path = format!("/ca/desrt/dconf/{kind}/{name}");
        }
        let own = method.signature.clone();
        let signature = if random.one_in(6) { values::signature(random) } else { method.signature };
        let is_its_own = signature == own;
        let plausible = (is_its_own && random.one_in(2))
            .then(|| values::plausible(random, self.materials, &target.member))
            .flatten();
        let Body { mut bytes, descriptors, .. } =
            plausible.unwrap_or_else(|| values::body(random, self.materials, &signature));
        if random.one_in(100) && !bytes.0.is_empty() {
            // What the bus ends a connection for.
            let at = random.next(bytes.0.len());
            bytes.0[at] = random.number().to_le_bytes()[0];
        }
        let passed: Vec<BorrowedFd<'_>> = descriptors.iter().map(|fd| fd.as_fd()).collect();
        let reply = if random.one_in(10) { Reply::Unwanted } else { Reply::Wanted };
        session.send(&target, &signature, &bytes.0, &passed, reply)
    }
}

struct Session<'a> {
    wire: Wire,
    /// The calls without an answer by their numbers.
    waiting: HashMap<u32, String>,
    outcomes: &'a mut Outcomes,
}

impl Session<'_> {
    fn send(
        &mut self,
        target: &Target,
        signature: &str,
        body: &[u8],
        passed: &[BorrowedFd<'_>],
        reply: Reply,
    ) -> io::Result<()> {
        let serial = self.wire.send(target, signature, body, passed, reply)?;
        self.outcomes.sent += 1;
        if reply == Reply::Wanted {
            self.waiting.insert(serial, format!("{}.{}", target.interface, target.member));
        }
        Ok(())
    }

    /// Takes answers until no more than so many calls wait.
    fn take_answers(&mut self, most: usize) -> io::Result<()> {
        while self.waiting.len() > most {
            let message = self.wire.receive()?;
            let Some(name) = self.waiting.remove(&message.reply_serial) else { continue };
            let what = match message.kind {
                RETURN => "ok".to_owned(),
                ERROR => message.error,
                _ => continue,
            };
            *self.outcomes.answers.entry((name, what)).or_default() += 1;
        }
        Ok(())
    }
}
