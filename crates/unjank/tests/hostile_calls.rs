//! A confined program calls every method of every interface of ours with every kind of arguments, through the proxy of its
//! sandbox: others are answered in time, and memory, descriptors and threads stay bounded.
//!
//! `HOSTILE_SECONDS` says for how long, `SEED` with which numbers.
#![expect(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "the tests are other programs; what cannot be set up fails"
)]

#[path = "hostile_calls/attacker.rs"]
mod attacker;
#[path = "hostile_calls/interfaces.rs"]
mod interfaces;
#[path = "hostile_calls/planted.rs"]
mod planted;
#[path = "hostile_calls/texts.rs"]
mod texts;
#[path = "hostile_calls/unread.rs"]
mod unread;
#[path = "hostile_calls/values.rs"]
mod values;
#[path = "hostile_calls/watch.rs"]
mod watch;
#[path = "hostile_calls/wire.rs"]
mod wire;

use crate::fixture;
use crate::host_service;

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use attacker::{Attacker, Outcomes};
use fixture::fuse::{HangingMount, Server};
use fixture::random::Random;
use fixture::{Bus, OURS, has, sandbox, set, setting};
use host_service::raw::until;
use host_service::wire::Bytes;
use interfaces::Method;
use planted::Fault;
use values::Materials;
use watch::{Bystander, LONGEST, Noticed, Resources, Work};
use wire::Target;

/// The application that attacks.
const EVIL: &str = "org.evil.App";
/// How long an answer to the attacker may take: longer than those that wait for a deadline, and for pacing.
const PATIENCE: Duration = Duration::from_secs(60);
/// Connections that attack at a time.
const ATTACKERS: usize = 3;
/// Memory that an attack may make a service take, beyond what it had.
const MOST_MEMORY: u64 = 256 << 20;
/// Descriptors that it may make a service hold: what waits and what runs is bounded by the limit of descriptors.
const MOST_DESCRIPTORS: usize = 2000;
/// Threads.
const MOST_THREADS: usize = 120;
/// Descriptors that it may keep: each of its databases has one, and their number is bounded.
const KEPT_DESCRIPTORS: usize = settings::engine::MOST_DATABASES + 16;
/// What a service may keep of it when all attackers have left.
const KEPT_MEMORY: u64 = 96 << 20;

/// A sandbox's way to the bus.
struct Proxy {
    child: Child,
    socket: PathBuf,
    /// What it complains of is read and forgotten: with a full pipe it would stop, and all attackers with it.
    complaints: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy in a sandbox of [`EVIL`], which lets it talk to these names.
    fn start(bus: &Bus, names: &[&str]) -> Option<Proxy> {
        if !has(&["bwrap", "xdg-dbus-proxy"]) {
            return None;
        }
        let socket = bus.dir().join("proxy");
        let mut words = vec!["xdg-dbus-proxy".to_owned(), bus.address().to_owned()];
        words.push(socket.to_str().unwrap().to_owned());
        words.push("--filter".to_owned());
        words.extend(names.iter().map(|name| format!("--talk={name}")));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut child = sandbox::start(bus, EVIL, Some(EVIL), &words)?;
        let mut stderr = child.stderr.take().unwrap();
        let read = move || drop(std::io::copy(&mut stderr, &mut std::io::sink()));
        let proxy = Proxy { child, socket, complaints: Some(std::thread::spawn(read)) };
        let has_come = || UnixStream::connect(&proxy.socket).is_ok();
        assert!(until(has_come), "the proxy did not come");
        Some(proxy)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.complaints.take().map(JoinHandle::join);
    }
}

/// What an attack did, and what others noticed.
struct Attack {
    outcomes: Outcomes,
    noticed: Noticed,
    before: Resources,
    after: Resources,
}

impl Attack {
    /// Attacks a service for a while.
    fn run(
        bus: &Bus,
        pid: u32,
        methods: &[Method],
        materials: &Materials,
        bystanders: &[Bystander],
        time: Duration,
        patience: Duration,
    ) -> Option<Attack> {
        let names: BTreeSet<&str> = methods.iter().map(|method| &*method.target.name).collect();
        let proxy = Proxy::start(bus, &names.into_iter().collect::<Vec<&str>>())?;
        let mut random = Random::begin();
        let stop = AtomicBool::new(false);
        let before = Resources::of(pid);
        let (mut outcomes, mut noticed) = (Outcomes::default(), Noticed::default());
        std::thread::scope(|scope| {
            let attackers: Vec<_> = (0..ATTACKERS)
                .map(|_| {
                    let (random, stop) = (random.split(), &stop);
                    let socket = proxy.socket.to_str().unwrap().to_owned();
                    scope.spawn(move || {
                        let attacker =
                            Attacker { socket, methods, materials, random, patience, stop };
                        attacker.run()
                    })
                })
                .collect();
            let watcher = scope.spawn(|| watch::watch(bus.address(), pid, bystanders, &stop));
            watch::pause(time);
            stop.store(true, Ordering::Relaxed);
            attackers.into_iter().for_each(|thread| outcomes.add(thread.join().unwrap()));
            noticed = watcher.join().unwrap();
        });
        drop(proxy);
        // What is done for a caller that has left may take until its deadline.
        let settled = |now: Resources| {
            now.descriptors <= before.descriptors + KEPT_DESCRIPTORS
                && now.memory <= before.memory + KEPT_MEMORY
        };
        let ended = Instant::now();
        while !settled(Resources::of(pid)) && ended.elapsed() < patience {
            watch::pause(Duration::from_millis(20));
        }
        Some(Attack { outcomes, noticed, before, after: Resources::of(pid) })
    }

    /// What is not as it has to be.
    fn faults(&self) -> Vec<String> {
        let mut faults = self.noticed.failures.clone();
        for wait in &self.noticed.waits {
            let most = match wait.work {
                Work::Answers => LONGEST,
                // Not longer than the kernel itself needs on this machine at this time, as for any other program.
                Work::StartsASession => LONGEST.max(2 * self.noticed.longest_start),
            };
            if wait.answers == 0 || wait.longest > most {
                faults.push(format!("{wait:?}, the longest took more than {most:?}"));
            }
        }
        // Calls on files that hang are waited for by their caller alone, and have an answer at their deadline.
        if !self.outcomes.unanswered.is_empty() {
            faults.push(format!("without an answer: {:?}", self.outcomes.unanswered));
        }
        let (before, most, after) = (self.before, self.noticed.resources, self.after);
        if after.descriptors == 0 {
            faults.push("the service ended".to_owned());
        }
        if most.memory > before.memory + MOST_MEMORY || after.memory > before.memory + KEPT_MEMORY {
            faults.push(format!(
                "memory: {} before, {} at most, {} after",
                before.memory, most.memory, after.memory
            ));
        }
        if most.descriptors > MOST_DESCRIPTORS
            || after.descriptors > before.descriptors + KEPT_DESCRIPTORS
        {
            faults.push(format!("descriptors: {before:?}, at most {most:?}, {after:?} after"));
        }
        if most.threads > MOST_THREADS {
            faults.push(format!("threads: {}", most.threads));
        }
        faults
    }

    fn print(&self) {
        eprintln!(
            "{} calls, {} connections ended by the bus",
            self.outcomes.sent, self.outcomes.disconnected
        );
        for ((member, what), count) in &self.outcomes.answers {
            eprintln!("  {count:7} {member}: {what}");
        }
        for wait in &self.noticed.waits {
            let (member, answers, longest) = (&wait.member, wait.answers, wait.longest);
            eprintln!("  {member} of others: {answers} answers, the longest took {longest:?}");
        }
        eprintln!("  setsid true: the longest took {:?}", self.noticed.longest_start);
        eprintln!(
            "  before {:?}\n  most   {:?}\n  after  {:?}",
            self.before, self.noticed.resources, self.after
        );
    }
}

/// Texts that mean something to somebody, and descriptors of every kind.
fn materials(dir: &Path, hanging: Option<&HangingMount>) -> Materials {
    let mut texts: Vec<String> = [
        "",
        "x",
        "true",
        "/",
        "..",
        "../../etc/passwd",
        "file:///etc/passwd",
        "file:///a%00b",
        "file:///%ff",
        "mtp:/x",
        "file://other/x",
        "trash:///",
        "http://a/\r\nX: y",
        "application",
        "exec",
        "groups",
        "mime",
        "private",
        "since",
        "most",
        "below",
        "nice",
        "idle",
        "timeout-ms",
        "unset-env",
        "PATH",
        "LD_PRELOAD",
        "text/plain",
        "version",
        "org.freedesktop.Flatpak.Development",
        "\x1b]0;x\x07\x1b[2J",
        "\u{202e}",
        "\u{fffe}",
        "\x01\x02",
        "\r\n",
        "<bookmark/>",
        "]]>",
        "%u %f $(true) `true` ;true",
        "99999999999999999999",
        "\u{1f600}\u{fffd}",
        "/proc/self/mem",
        "file:///proc/self/fd/0",
        "file:///dev/zero",
    ]
    .map(str::to_owned)
    .into();
    let fifo = dir.join("fifo");
    let status = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(status.unwrap().success());
    texts.push(fifo.to_str().unwrap().to_owned());
    let mut descriptors = planted::descriptors();
    let (one, other) = UnixStream::pair().unwrap();
    let directory = File::open(dir).unwrap();
    let zero = File::open("/dev/zero").unwrap();
    let fifo = File::options().read(true).write(true).open(&fifo).unwrap();
    descriptors.extend(
        [one.into(), other.into(), directory.into(), zero.into(), fifo.into()].map(Arc::new),
    );
    if let Some(hanging) = hanging {
        let path = hanging.path();
        let inside = path.join("x");
        texts.extend([inside.display().to_string(), format!("file://{}", inside.display())]);
        texts.push(path.display().to_string());
        // Named and not opened: whoever closes a file there waits for its server, which is this process.
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
        let named = rustix::fs::open(path, flags, rustix::fs::Mode::empty());
        descriptors.push(Arc::new(named.unwrap()));
    }
    Materials { texts, descriptors }
}

/// Calls of programs that have nothing to do with the sandbox.
fn bystanders() -> Vec<Bystander> {
    let call = |name, path, interface, member, signature, arguments| Bystander {
        target: Target::new(name, path, interface, member),
        signature,
        arguments,
        work: if member == "HostCommand" { Work::StartsASession } else { Work::Answers },
    };
    let (peer, nothing) = ("org.freedesktop.DBus.Peer", |_| Vec::new());
    let (flatpak, recent) = ("org.freedesktop.Flatpak", "org.unjank.Session1");
    let development = "/org/freedesktop/Flatpak/Development";
    vec![
        call(fixture::NAME, fixture::USER, peer, "Ping", "", nothing),
        call(recent, "/org/unjank/Recent1", peer, "Ping", "", nothing),
        call(flatpak, development, peer, "Ping", "", nothing),
        call(fixture::NAME, fixture::USER, "ca.desrt.dconf.Writer", "Change", "ay", |number| {
            let mut body = Bytes::default();
            body.bytes(&set(&format!("/own/key{}", number % 7), &number.to_string()));
            body.0
        }),
        call(recent, "/org/unjank/Recent1", "org.unjank.Recent1", "Add", "sa{sv}", |number| {
            let mut body = Bytes::default();
            body.text(&format!("file:///home/own{}", number % 50));
            body.array(8, |_| {});
            body.0
        }),
        call(recent, "/org/unjank/Recent1", "org.unjank.Recent1", "Policy", "", nothing),
        call(
            flatpak,
            development,
            "org.freedesktop.Flatpak.Development",
            "HostCommand",
            "ayaaya{uh}a{ss}u",
            |_| {
                let mut body = Bytes::default();
                body.bytes(b"/\0");
                body.array(4, |body| body.bytes(b"true\0"));
                body.array(8, |_| {});
                body.array(8, |_| {});
                body.number(0);
                body.0
            },
        ),
    ]
}

/// The names of the interfaces that we have.
fn our_interfaces() -> BTreeSet<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bus/xml");
    let mut names = BTreeSet::new();
    for file in std::fs::read_dir(dir).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let parts = text.split("<interface name=\"").skip(1);
        names.extend(parts.map(|part| part.split('"').next().unwrap().to_owned()));
    }
    names
}

/// Of these some calls must get as far as an answer.
const MEMBERS: [&str; 6] =
    ["Change", "Add", "HostCommand", "HostCommandWithOptions", "Blame", "RequestSession"];

#[test]
fn a_confined_caller_with_hostile_arguments_holds_up_nobody_and_takes_no_more_than_its_share() {
    let Some(bus) = Bus::start_in(Path::new("/dev/shm")) else { return };
    // Its commands are allowed, so that the whole way to a command is attacked; all that they do is to end.
    let policy = bus.dir().join("config/unjank/host-policy");
    std::fs::create_dir_all(policy.parent().unwrap()).unwrap();
    std::fs::write(policy, format!("[{EVIL}]\nallow true\n")).unwrap();
    let mut command = bus.command(OURS);
    command
        .args(["--names", "dconf,session,flatpak", "--log-level", "error"])
        .env("DCONF_BLAME", "");
    let service = bus.serve_by(command);
    let names = [fixture::NAME, "org.unjank.Session1", "org.freedesktop.Flatpak"];
    for name in names {
        bus.client().wait_for_owner(name).unwrap();
    }
    // So that there is a database to find.
    bus.client().change(fixture::USER, fixture::SET_A_B).unwrap();
    let methods: Vec<Method> =
        names.iter().flat_map(|name| interfaces::methods(bus.address(), name)).collect();
    let found: BTreeSet<String> =
        methods.iter().map(|method| method.target.interface.clone()).collect();
    assert_eq!(found, our_interfaces(), "an interface is not attacked");
    let root = rustix::process::geteuid().is_root();
    let hanging = root.then(|| HangingMount::make(Server::NeverAnswers)).flatten();
    let materials = materials(bus.dir(), hanging.as_ref());
    let time = Duration::from_secs(setting("HOSTILE_SECONDS").unwrap_or(6));
    let mut missing = BTreeSet::from(MEMBERS);
    // Arguments are made by chance: on a busy machine one attack may be too short for some.
    for _ in 0..5 {
        let attack =
            Attack::run(&bus, service.pid(), &methods, &materials, &bystanders(), time, PATIENCE);
        let Some(attack) = attack else { return };
        attack.print();
        let faults = attack.faults();
        assert!(faults.is_empty(), "{faults:#?}");
        missing.retain(|member| attack.outcomes.done(member) == 0);
        if missing.is_empty() {
            break;
        }
    }
    assert!(missing.is_empty(), "no call of {missing:?} got as far as an answer");
    drop(hanging);
    let (status, text, _) = service.end(rustix::process::Signal::TERM);
    assert!(status.success() && text.is_empty(), "{status:?} {text}");
}

#[test]
fn the_attack_finds_a_service_that_is_slow_keeps_what_it_gets_is_silent_or_ends() {
    for (fault, expected) in [
        (Fault::None, None),
        (Fault::Slow, Some("the longest took")),
        (Fault::KeepsMemory, Some("memory")),
        (Fault::KeepsDescriptors, Some("descriptors")),
        (Fault::Silent, Some("without an answer")),
        (Fault::Ends, Some("the service ended")),
    ] {
        let Some(bus) = Bus::start() else { return };
        let service = planted::start(&bus, fault);
        let methods = interfaces::methods(bus.address(), planted::NAME);
        assert_eq!(methods.len(), 1);
        let materials = materials(bus.dir(), None);
        let target = Target::new(planted::NAME, "/", planted::NAME, "Ask");
        let arguments = planted::question;
        let bystander = Bystander { target, signature: "sah", arguments, work: Work::Answers };
        let time = Duration::from_secs(2);
        let attack = Attack::run(
            &bus,
            service.pid(),
            &methods,
            &materials,
            &[bystander],
            time,
            Duration::from_secs(3),
        );
        let Some(attack) = attack else { return };
        attack.print();
        let faults = attack.faults();
        match expected {
            None => assert!(faults.is_empty(), "{faults:#?}"),
            Some(text) => {
                assert!(faults.iter().any(|fault| fault.contains(text)), "{fault:?}: {faults:#?}");
            }
        }
    }
}
