//! Programs of ours beside those of GTK and KDE, and LibreOffice, each of which stops for a while at any point: what was
//! acknowledged is in every list in the end.
//!
//! `STALL_RUNS`, `STALL_ROUNDS` and `STALL_SECONDS` make it long; LibreOffice takes part in the long one.
#![expect(clippy::unwrap_used, reason = "the test is many other programs")]
#![expect(clippy::disallowed_methods, reason = "the test is many other programs")]

use crate::fixture;
use crate::recent_home;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use fixture::{Bus, OURS, Service, setting, skip};
use recent_home::{Display, Home, UNJANK, gtk, kde};
use rustix::process::{Pid, Signal, kill_process};

/// Writers of ours.
const WRITERS: usize = 4;
/// LibreOffice without the script around it, which would not be stopped with it.
const OFFICE: &str = "/usr/lib/libreoffice/program/soffice.bin";
/// Nothing takes longer once nobody is stopped, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(120);

/// Numbers by lot, drawn by several threads.
struct Lot(Mutex<fastrand::Rng>);

impl Lot {
    fn below(&self, most: Duration) -> Duration {
        most.mul_f64(self.0.lock().unwrap().f64())
    }
}

/// Lets time pass.
fn pause(time: Duration) {
    let (_nobody, silence) = mpsc::channel::<()>();
    let _ = silence.recv_timeout(time);
}

/// A program that is stopped and goes on until it ends, or until nobody is to be stopped any more.
struct Victim {
    child: Child,
    /// It is stopped first for the whole time.
    first: Option<Duration>,
}

impl Victim {
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    fn stop_and_go(mut self, stall: Duration, lot: &Lot, is_over: &AtomicBool) -> Child {
        while !self.has_ended() && !is_over.load(Ordering::Relaxed) {
            let first = self.first.take();
            pause(if first.is_some() { Duration::ZERO } else { lot.below(stall / 2) });
            if self.has_ended() {
                break;
            }
            self.signal(Signal::STOP);
            pause(first.unwrap_or_else(|| lot.below(stall)));
            self.signal(Signal::CONT);
        }
        self.child
    }
}

fn wait_for(child: &mut Child, what: &str) {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < PATIENCE, "{what} does not end");
        pause(Duration::from_millis(20));
    }
}

fn lines(bytes: Vec<u8>) -> BTreeSet<String> {
    String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
}

/// One run; returns the acknowledged documents that are missing in our list, and in the one that GTK reads.
fn run(seed: u64, stall: Duration, each: usize) -> Option<(BTreeSet<String>, BTreeSet<String>)> {
    let (gtk, kde) = (gtk()?, kde()?);
    let display = Display::start()?;
    let home = Home::make();
    let bus = Bus::start()?;
    let lot = Lot(Mutex::new(fastrand::Rng::with_seed(seed)));
    let docs = home.at("docs");
    let command = |program: &Path| {
        let mut command = home.command(program);
        command.env("DISPLAY", &display.name).env("GDK_BACKEND", "x11");
        command.env("DBUS_SESSION_BUS_ADDRESS", bus.address()).stdout(Stdio::null());
        command.stderr(Stdio::null());
        command
    };
    // Every other time the daemon watches; else writers are started.
    let daemon = (seed % 2 == 1).then(|| {
        let mut daemon = command(Path::new(OURS));
        daemon.args(["--names", "session", "--idle-exit", "0"]);
        Service::from(daemon.stderr(Stdio::piped()).spawn().unwrap())
    });
    let start = |name: &str, program: &Path, arguments: &[&str]| {
        let dir = docs.join(name);
        std::fs::create_dir(&dir).unwrap();
        let mut command = command(program);
        command.arg(arguments[0]).arg(&dir).args(&arguments[1..]).spawn().unwrap()
    };
    let millis = |time: Duration| time.as_millis().to_string();
    let gap = millis(stall / 40);
    let mut victims: Vec<Victim> = ["g0", "g1"]
        .map(|name| start(name, gtk, &["burst", "40", &gap]))
        .into_iter()
        .chain(["k0", "k1"].map(|name| start(name, kde, &["add", "40", "org.kde.kate", &gap])))
        .map(|child| Victim { child, first: None })
        .collect();
    if stall >= Duration::from_secs(30) && Path::new(OFFICE).exists() {
        victims.push(Victim { child: office(&command, &docs), first: None });
    }
    // One that has read the empty list, and writes when ours are all there.
    let xbel = home.at(".local/share/recently-used.xbel");
    let begun = Instant::now();
    while !std::fs::read_to_string(&xbel).is_ok_and(|text| text.contains("/docs/g0/")) {
        assert!(begun.elapsed() < PATIENCE, "GTK's program writes nothing");
        pause(Duration::from_millis(5));
    }
    victims[0].first = Some(stall);
    let is_over = AtomicBool::new(false);
    let acknowledged: BTreeSet<String> = std::thread::scope(|scope| {
        let (lot, is_over, command, docs) = (&lot, &is_over, &command, &docs);
        let stopped: Vec<_> = victims
            .into_iter()
            .map(|victim| scope.spawn(move || victim.stop_and_go(stall, lot, is_over)))
            .collect();
        let ours: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || add_ours(command, docs, writer, each, stall, lot)))
            .collect();
        let acknowledged = ours.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
        // The others go on for a while.
        pause(lot.below(stall));
        is_over.store(true, Ordering::Relaxed);
        for (number, victim) in stopped.into_iter().enumerate() {
            let mut child = victim.join().unwrap();
            // LibreOffice would stay.
            if number == 4 {
                pause(Duration::from_secs(5));
                let _ = child.kill();
            }
            wait_for(&mut child, "a program that is not stopped any more");
        }
        acknowledged
    });
    assert_eq!(acknowledged.len(), WRITERS * each, "seed {seed}: every addition is acknowledged");
    if let Some(daemon) = daemon {
        daemon.end(Signal::TERM);
    }
    let synced = home.unjank(&["recent", "sync"]);
    assert!(synced.status.success(), "seed {seed}: {synced:?}");
    let missing = |mut command: Command| {
        let found = lines(command.output().unwrap().stdout);
        acknowledged.difference(&found).cloned().collect()
    };
    let mut listed = home.command(UNJANK);
    listed.args(["recent", "list", "--uris"]);
    let mut read = command(gtk);
    read.arg("list").stdout(Stdio::piped());
    Some((missing(listed), missing(read)))
}

fn office(command: &impl Fn(&Path) -> Command, docs: &Path) -> Child {
    let profile = format!("-env:UserInstallation=file://{}/office", docs.display());
    let paths: Vec<_> = (0..6).map(|number| docs.join(format!("office-{number}.txt"))).collect();
    paths.iter().for_each(|path| std::fs::write(path, "text").unwrap());
    let mut office = command(Path::new(OFFICE));
    office.env("SAL_USE_VCLPLUGIN", "gtk3").args(["--norestore", "--nologo", &profile]);
    office.arg("--nofirststartwizard").args(paths);
    office.spawn().unwrap()
}

/// Adds documents one after the other, each in a process of its own that is stopped now and then; returns those that were
/// acknowledged.
fn add_ours(
    command: &(impl Fn(&Path) -> Command + Sync),
    docs: &Path,
    writer: usize,
    each: usize,
    stall: Duration,
    lot: &Lot,
) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for number in 0..each {
        let path = docs.join(format!("ours-{writer}-{number}.txt"));
        let mut adding = command(Path::new(UNJANK));
        adding.args(["recent", "add", "--app", "org.kde.okular"]).arg(&path);
        let mut child = adding.spawn().unwrap();
        // A few are stopped on their way.
        if number % 10 == 5 {
            let victim = Victim { child, first: Some(lot.below(stall / 5)) };
            child = victim.stop_and_go(Duration::ZERO, lot, &AtomicBool::new(false));
        }
        if child.wait().unwrap().success() {
            acknowledged.push(format!("file://{}", path.display()));
        }
        let share = u32::try_from(each).unwrap();
        pause(lot.below(stall * 2 / share));
    }
    acknowledged
}

#[test]
fn a_program_that_was_busy_and_then_writes_the_list_that_it_had_takes_nothing_away() {
    let (Some(gtk), Some(_)) = (gtk(), kde()) else { return };
    let Some(display) = Display::start() else { return };
    let home = Home::make();
    let shown = || std::fs::read_to_string(home.at(".local/share/recently-used.xbel"));
    let wait_until_shown = |name: &str| {
        let start = Instant::now();
        while !shown().is_ok_and(|text| text.contains(name)) {
            assert!(start.elapsed() < PATIENCE, "{name} is not in the file");
            pause(Duration::from_millis(5));
        }
    };
    let add = |name: &str| {
        let path = home.at("docs").join(name);
        assert!(home.unjank(&["recent", "add", path.to_str().unwrap()]).status.success());
    };
    add("before");
    wait_until_shown("/docs/before");
    for round in 0..setting("STALL_ROUNDS").unwrap_or(1) {
        let theirs = home.at(&format!("docs/theirs-{round}"));
        std::fs::create_dir(&theirs).unwrap();
        let mut busy = home.command(gtk);
        busy.env("DISPLAY", &display.name).env("GDK_BACKEND", "x11").arg("busy").arg(theirs);
        let mut busy = busy.args(["1", "7"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(busy.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        (0..3).for_each(|number| add(&format!("ours-{round}-{number}")));
        wait_until_shown(&format!("/docs/ours-{round}-2"));
        wait_for(&mut busy, "GTK's program");
        assert!(!shown().unwrap().contains(&format!("/docs/ours-{round}-2")), "it had read it");
        let synced = home.unjank(&["recent", "sync"]);
        assert!(synced.status.success(), "{synced:?}");
        let listed = lines(home.unjank(&["recent", "list", "--uris"]).stdout);
        let kept = listed.iter().filter(|uri| uri.contains("/ours-")).count();
        assert_eq!(kept, usize::try_from(3 * (round + 1)).unwrap(), "{listed:?}");
        wait_until_shown(&format!("/docs/ours-{round}-2"));
    }
}

#[test]
fn programs_that_stop_for_a_while_lose_nothing_that_was_acknowledged() {
    if gtk().is_none() || kde().is_none() {
        return;
    }
    let seconds = setting("STALL_SECONDS");
    let stall = Duration::from_secs(seconds.unwrap_or(2));
    let each = if seconds.is_some() { 100 } else { 10 };
    let runs = setting("STALL_RUNS").unwrap_or(1);
    let first = setting("SEED").unwrap_or(1);
    let next = AtomicU64::new(first);
    let worker = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + runs {
                return;
            }
            let Some((ours, read)) = run(seed, stall, each) else {
                return skip("no bus or display");
            };
            eprintln!("seed {seed}: {} missing in our list, {} in GTK's", ours.len(), read.len());
            assert_eq!((ours, read), (BTreeSet::new(), BTreeSet::new()), "seed {seed}");
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..runs.min(10)).map(|_| scope.spawn(worker)).collect();
        assert!(workers.into_iter().all(|worker| worker.join().is_ok()), "see above");
    });
}
