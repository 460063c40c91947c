//! What others notice of an attack: how long they wait, and what the service takes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::wire::{ERROR, Target, Wire};

/// How long somebody else's call may take longer than the bus itself needs for an answer.
/// A build without optimisation, beside the other tests of a gate, takes several times as long.
pub const LONGEST: Duration =
    Duration::from_millis(if cfg!(debug_assertions) { 3000 } else { 500 });
/// From here on the bus, or the machine, was late.
const LATE: Duration = Duration::from_millis(20);
/// How long anything may take before it counts as never.
const PATIENCE: Duration = Duration::from_secs(50);
/// Between two calls of one bystander.
const PAUSE: Duration = Duration::from_millis(15);
/// Between two programs that are started without any service.
const BETWEEN_STARTS: Duration = Duration::from_millis(40);

/// When a call began and when it was answered.
type Span = (Instant, Instant);

/// A call of somebody who has nothing to do with the attack.
pub struct Bystander {
    pub target: Target,
    pub signature: &'static str,
    /// Makes the arguments of its next call.
    pub arguments: fn(u32) -> Vec<u8>,
    pub work: Work,
}

/// What a service does for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// It answers.
    Answers,
    /// It starts a program in a session of its own. On a machine with more to do than processors the kernel alone takes
    /// long for that: with `sched_autogroup_enabled` a new session is a new group of tasks, which may wait for half a
    /// second until it runs first.
    StartsASession,
}

/// What a call of a bystander took.
#[derive(Debug)]
pub struct Wait {
    pub member: String,
    pub answers: usize,
    /// The longest wait beyond that for the bus.
    pub longest: Duration,
    pub work: Work,
}

/// What was noticed.
#[derive(Debug, Default)]
pub struct Noticed {
    pub waits: Vec<Wait>,
    /// The longest that a program needed that was started in a session of its own without any service.
    pub longest_start: Duration,
    /// What went wrong.
    pub failures: Vec<String>,
    pub resources: Resources,
}

/// The most that a process had at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Memory that is its own, in bytes.
    pub memory: u64,
    pub descriptors: usize,
    pub threads: usize,
}

impl Resources {
    /// What a process has now; nothing if it has ended.
    pub fn of(pid: u32) -> Resources {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.split_whitespace().next().map_or(0, |number| number.parse::<u64>().unwrap())
        };
        let open = std::fs::read_dir(format!("/proc/{pid}/fd"));
        Resources {
            memory: value("RssAnon:") << 10,
            descriptors: open.map_or(0, Iterator::count),
            threads: usize::try_from(value("Threads:")).unwrap(),
        }
    }

    fn most(self, other: Resources) -> Resources {
        Resources {
            memory: self.memory.max(other.memory),
            descriptors: self.descriptors.max(other.descriptors),
            threads: self.threads.max(other.threads),
        }
    }
}

/// Watches until it is told to stop.
pub fn watch(address: &str, pid: u32, bystanders: &[Bystander], stop: &AtomicBool) -> Noticed {
    let late = Mutex::new(Vec::new());
    let mut noticed = Noticed::default();
    std::thread::scope(|scope| {
        let canary = scope.spawn(|| ask_the_bus(address, &late, stop));
        let starts = bystanders.iter().any(|bystander| bystander.work == Work::StartsASession);
        let starter = starts.then(|| scope.spawn(|| longest_start(stop)));
        let sampler = scope.spawn(|| {
            let mut most = Resources::default();
            while !stop.load(Ordering::Relaxed) {
                most = most.most(Resources::of(pid));
                pause(Duration::from_millis(40));
            }
            most
        });
        let calls: Vec<_> = bystanders
            .iter()
            .map(|bystander| scope.spawn(|| call_again_and_again(address, bystander, stop)))
            .collect();
        let calls: Vec<_> = calls.into_iter().map(|thread| thread.join().unwrap()).collect();
        canary.join().unwrap();
        noticed.longest_start = starter.map_or(Duration::ZERO, |starter| starter.join().unwrap());
        noticed.resources = sampler.join().unwrap();
        let late = late.lock().unwrap();
        for (bystander, (spans, failures)) in bystanders.iter().zip(calls) {
            let longest = spans.iter().map(|span| beyond(*span, &late)).max();
            noticed.waits.push(Wait {
                member: format!("{}.{}", bystander.target.interface, bystander.target.member),
                answers: spans.len(),
                longest: longest.unwrap_or_default(),
                work: bystander.work,
            });
            noticed.failures.extend(failures);
        }
    });
    noticed
}

/// How much of a call was no delay of the bus or of the machine.
fn beyond((began, ended): Span, late: &[Span]) -> Duration {
    let mut own = ended - began;
    for (from, to) in late {
        let overlap = ended.min(*to).saturating_duration_since(began.max(*from));
        own = own.saturating_sub(overlap);
    }
    own
}

/// Asks the bus itself, and notes when its answers were late: then those of services cannot be in time.
fn ask_the_bus(address: &str, late: &Mutex<Vec<Span>>, stop: &AtomicBool) {
    let mut wire = Wire::connect(address, PATIENCE).unwrap();
    while !stop.load(Ordering::Relaxed) {
        // The pause, too: a machine that does not run this thread in time does not run others.
        let began = Instant::now();
        pause(Duration::from_millis(3));
        wire.call(&Target::of_bus("GetId"), "", &[]).unwrap();
        let ended = Instant::now();
        if ended - began > LATE {
            late.lock().unwrap().push((began, ended));
        }
    }
}

/// Starts programs in sessions of their own, and returns the longest that one needed.
fn longest_start(stop: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let status = std::process::Command::new("setsid").arg("true").status();
        assert!(status.unwrap().success());
        longest = longest.max(began.elapsed());
        pause(BETWEEN_STARTS);
    }
    longest
}

fn call_again_and_again(
    address: &str,
    bystander: &Bystander,
    stop: &AtomicBool,
) -> (Vec<Span>, Vec<String>) {
    let mut wire = Wire::connect(address, PATIENCE).unwrap();
    let (mut spans, mut failures) = (Vec::new(), Vec::new());
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) && failures.len() < 5 {
        number += 1;
        let body = (bystander.arguments)(number);
        let began = Instant::now();
        match wire.call(&bystander.target, bystander.signature, &body) {
            Ok(answer) if answer.kind == ERROR => {
                let text = answer.text();
                failures.push(format!("{}: {} {text}", bystander.target.member, answer.error));
            }
            Ok(_) => spans.push((began, Instant::now())),
            Err(error) => {
                failures.push(format!("{}: no answer: {error}", bystander.target.member));
                break;
            }
        }
        pause(PAUSE);
    }
    (spans, failures)
}

#[expect(clippy::disallowed_methods, reason = "the pace of a bystander; nothing is waited for")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

#[test]
fn a_wait_counts_without_the_time_in_which_the_bus_was_late() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let late = [(at(100), at(200)), (at(900), at(2000))];
    assert_eq!(beyond((at(0), at(50)), &late), Duration::from_millis(50));
    assert_eq!(beyond((at(150), at(950)), &late), Duration::from_millis(700));
    assert_eq!(beyond((at(0), at(1000)), &[]), Duration::from_millis(1000));
}
