//! Listings from the daemon: shared, followed, and safe from whoever calls.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test that plays the programs"
)]

use crate::fixture;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use fixture::fuse::{HangingMount, OPENDIR, Server};
use fixture::{OURS, Service, has, in_time, skip};
use listing::{
    AttributeSet, Listing, ListingAccess, ListingError, ListingRequest, ListingStep, Update,
};
use sys::socket::Full;

/// Longer than anything here takes, on any machine.
const LONG: Option<Duration> = Some(Duration::from_secs(50));
/// Makes this program a caller instead of a test; see [`a_caller_with_other_mounts_is_refused_and_helps_itself`].
const CALLER: &str = "LISTING_CALLER_SOCKET";

/// A daemon that serves listings and nothing else.
struct Daemon {
    dir: tempfile::TempDir,
    service: Service,
}

impl Daemon {
    fn start() -> Daemon {
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new(OURS)
            .args(["--names", "session", "--idle-exit", "0", "--verbose"])
            .env_clear()
            .env("HOME", dir.path())
            .env("XDG_RUNTIME_DIR", dir.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let serving = lines.any(|line| line.unwrap().contains("serving listings"));
        assert!(serving, "the daemon ended at once");
        // Nobody may be kept waiting by a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Daemon { dir, service: Service::from(child) }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("unjank/listing.sock")
    }

    /// A listing that only the daemon can give.
    fn list(&self, request: &ListingRequest) -> Listing {
        Listing::over(sys::socket::connect_to(&self.socket()).unwrap(), request).unwrap()
    }

    /// The workers that have not ended.
    fn workers(&self) -> Vec<u32> {
        let parent = self.service.pid().to_string();
        let is_worker = |pid: u32| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let mut fields = text.rsplit_once(')')?.1.split_whitespace();
            (fields.next()? != "Z" && fields.next()? == parent).then_some(pid)
        };
        let entries = std::fs::read_dir("/proc").unwrap();
        let pids = entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        pids.filter_map(is_worker).collect()
    }

    fn wait_for_workers(&self, count: usize) {
        while self.workers().len() != count {
            fixture::pause();
        }
    }
}

fn some_files(count: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..count {
        std::fs::create_dir(dir.path().join(format!("{number}"))).unwrap();
    }
    dir
}

fn names(listing: &Listing) -> BTreeSet<Vec<u8>> {
    let entries = listing.entries();
    let ids = (0..entries.len()).filter(|id| !entries.is_removed(*id));
    ids.map(|id| entries.name(id).to_vec()).collect()
}

/// Follows until the names are these.
fn follow_until(listing: &mut Listing, wanted: &BTreeSet<Vec<u8>>) {
    while names(listing) != *wanted {
        assert!(listing.next(LONG).unwrap().is_some(), "changes arrive");
    }
}

#[test]
fn two_clients_share_one_reading_and_its_changes() {
    in_time(|| {
        let daemon = Daemon::start();
        let files = some_files(3000);
        let request = ListingRequest::of(files.path()).followed();
        let mut first = daemon.list(&request);
        assert_eq!(first.finish().unwrap(), []);
        let mut second = daemon.list(&request);
        assert_eq!(second.finish().unwrap(), []);
        assert_eq!((first.len(), second.len()), (3000, 3000));
        assert!((0..3000).all(|id| second.attributes(id) == first.attributes(id)));
        assert!((0..3000).all(|id| second.attributes(id).is_some()));
        assert_eq!(daemon.workers().len(), 1, "there is one reading");

        std::fs::create_dir(files.path().join("new")).unwrap();
        std::fs::remove_dir(files.path().join("7")).unwrap();
        std::fs::rename(files.path().join("8"), files.path().join("eight")).unwrap();
        let mut wanted: BTreeSet<Vec<u8>> = (0..3000).map(|n| n.to_string().into_bytes()).collect();
        wanted.retain(|name| name != b"7" && name != b"8");
        wanted.extend([b"new".to_vec(), b"eight".to_vec()]);
        follow_until(&mut first, &wanted);
        follow_until(&mut second, &wanted);

        let mut third = daemon.list(&ListingRequest::of(files.path()));
        assert_eq!(third.finish().unwrap(), []);
        assert_eq!(names(&third), wanted, "who does not follow gets what is there");
        drop((first, second));
        // Its own reading.
        daemon.wait_for_workers(1);
        drop(third);
        daemon.wait_for_workers(0);
    });
}

#[test]
fn who_does_not_follow_gets_what_was_there_when_it_asked() {
    in_time(|| {
        let daemon = Daemon::start();
        let files = some_files(300);
        let request = ListingRequest::of(files.path()).with_fields(AttributeSet::NONE);
        let mut followed = daemon.list(&request.clone().followed());
        assert_eq!(followed.finish().unwrap(), []);
        // Nothing has changed: it is the same reading. A machine that is busy may take too long to say so.
        loop {
            let mut listing = daemon.list(&request);
            assert_eq!(listing.finish().unwrap(), []);
            assert_eq!(names(&listing), names(&followed));
            if daemon.workers().len() == 1 {
                break;
            }
            drop(listing);
            daemon.wait_for_workers(1);
        }
        // Before whoever follows has been told of it, and after.
        for number in 0..30 {
            let (new, old) = (format!("new {number}"), number.to_string());
            std::fs::create_dir(files.path().join(&new)).unwrap();
            std::fs::remove_dir(files.path().join(&old)).unwrap();
            let mut listing = daemon.list(&request);
            assert_eq!(listing.finish().unwrap(), []);
            let names = names(&listing);
            assert!(names.contains(new.as_bytes()) && !names.contains(old.as_bytes()), "{number}");
            assert_eq!(names.len(), 300);
        }
    });
}

#[test]
fn who_does_not_follow_gets_the_attributes_that_there_are() {
    in_time(|| {
        let daemon = Daemon::start();
        let (files, elsewhere) = (some_files(3), tempfile::tempdir().unwrap());
        std::fs::write(files.path().join("file"), "").unwrap();
        let hard_link = elsewhere.path().join("link");
        std::fs::hard_link(files.path().join("file"), &hard_link).unwrap();
        let request = ListingRequest::of(files.path())
            .with_fields(AttributeSet::DEFAULT | AttributeSet::LINKS | AttributeSet::BLOCKS);
        let mut followed = daemon.list(&request.clone().followed());
        assert_eq!(followed.finish().unwrap(), []);
        // The kernel tells those who watch the directory of neither.
        std::fs::create_dir(files.path().join("1/new")).unwrap();
        std::fs::write(&hard_link, "longer").unwrap();
        let mut listing = daemon.list(&request);
        assert_eq!(listing.finish().unwrap(), []);
        for id in 0..listing.len() {
            let name = std::ffi::OsStr::from_bytes(listing.name(id));
            let found = std::fs::symlink_metadata(files.path().join(name)).unwrap();
            let known = listing.attributes(id).unwrap();
            assert_eq!(
                (known.size, u64::from(known.links), known.modified.seconds),
                (found.size(), found.nlink(), found.mtime()),
                "{name:?}"
            );
            assert_eq!(i64::from(known.modified.nanoseconds), found.mtime_nsec(), "{name:?}");
        }
    });
}

#[test]
fn who_does_not_follow_is_answered_after_the_end_and_told_no_changes() {
    in_time(|| {
        let daemon = Daemon::start();
        let files = some_files(300);
        let target = |target: &str, name: &str| {
            std::os::unix::fs::symlink(target, files.path().join(name)).unwrap();
        };
        target("one", "link");
        let request = ListingRequest::of(files.path());
        let fields = AttributeSet::DEFAULT | AttributeSet::TARGET;
        let alone = daemon.list(&request.clone().with_fields(fields));
        let request = request.with_fields(AttributeSet::NONE);
        let mut followed = daemon.list(&request.clone().followed());
        assert_eq!(followed.finish().unwrap(), []);
        let shared = daemon.list(&request);
        for mut listing in [alone, shared] {
            assert_eq!(listing.finish().unwrap(), []);
            let names = names(&listing);
            // Changes that whoever follows is told, with strings that later records count on.
            let new = format!("new {}", names.len() + usize::try_from(followed.len()).unwrap());
            target(&new, &new);
            while !self::names(&followed).contains(new.as_bytes()) {
                assert!(followed.next(LONG).unwrap().is_some());
            }
            listing.ask_details(&[0]).unwrap();
            loop {
                match listing.next(LONG).unwrap().unwrap() {
                    Update::Details(details) if details.id == 0 => break,
                    Update::Names(_) | Update::Removed(_) => panic!("it follows nothing"),
                    _ => {}
                }
            }
            listing.want(&[1]).unwrap();
            loop {
                match listing.next(LONG).unwrap().unwrap() {
                    Update::Attributes(ids) if ids.iter().any(|id| id == 1) => break,
                    Update::Names(_) | Update::Removed(_) => panic!("it follows nothing"),
                    _ => {}
                }
            }
            assert_eq!(self::names(&listing), names);
        }
    });
}

#[test]
fn a_listing_takes_no_more_memory_than_its_client_allows() {
    in_time(|| {
        let daemon = Daemon::start();
        let (files, few) = (some_files(3000), some_files(3));
        let mut small = ListingRequest::of(files.path()).followed();
        small.limits.bytes = 10_000;
        let mut spared = daemon.list(&ListingRequest::of(few.path()).followed());
        assert_eq!(spared.finish().unwrap(), []);
        // What it has received is not kept for others, who get readings of their own.
        let mut greedy = vec![daemon.list(&small)];
        while daemon.workers().len() < 3 {
            fixture::pause();
            greedy.push(daemon.list(&small));
        }
        std::fs::create_dir(few.path().join("new")).unwrap();
        assert!(matches!(spared.next(LONG).unwrap(), Some(Update::Names(_))));
        drop(greedy);
    });
}

#[test]
fn other_fields_and_other_directories_are_other_readings() {
    in_time(|| {
        let daemon = Daemon::start();
        let (one, other) = (some_files(3), some_files(5));
        let mut listings = [
            daemon.list(&ListingRequest::of(one.path())),
            daemon.list(&ListingRequest::of(other.path())),
            daemon.list(&ListingRequest::of(one.path()).with_fields(AttributeSet::NONE)),
        ];
        let counts = listings.each_mut().map(|listing| {
            assert_eq!(listing.finish().unwrap(), []);
            listing.len()
        });
        assert_eq!(counts, [3, 5, 3]);
        assert_eq!(daemon.workers().len(), 3);
    });
}

#[test]
fn a_killed_worker_ends_its_listing_and_nothing_else() {
    in_time(|| {
        let daemon = Daemon::start();
        let (one, other) = (some_files(3), some_files(5));
        let mut listing = daemon.list(&ListingRequest::of(one.path()).followed());
        assert_eq!(listing.finish().unwrap(), []);
        let worker = daemon.workers()[0];
        let mut spared = daemon.list(&ListingRequest::of(other.path()).followed());
        assert_eq!(spared.finish().unwrap(), []);
        let worker = rustix::process::Pid::from_raw(worker.try_into().unwrap()).unwrap();
        rustix::process::kill_process(worker, rustix::process::Signal::KILL).unwrap();
        let error = listing.next(LONG).unwrap_err();
        assert!(matches!(error, ListingError::WorkerEnded { .. }), "{error}");
        assert_eq!(listing.len(), 3, "what arrived stays");

        std::fs::create_dir(other.path().join("new")).unwrap();
        assert!(matches!(spared.next(LONG).unwrap(), Some(Update::Names(_))));
        let mut again = daemon.list(&ListingRequest::of(one.path()));
        assert_eq!(again.finish().unwrap(), []);
        assert_eq!(again.len(), 3);
    });
}

#[test]
fn a_file_system_that_never_answers_keeps_only_its_own_client_waiting() {
    in_time(|| {
        let Some(hanging) = HangingMount::make(Server::NeverAnswers) else { return };
        let daemon = Daemon::start();
        let files = some_files(100);
        let mut waiting = daemon.list(&ListingRequest::of(hanging.path()));
        hanging.wait_for(OPENDIR);
        let mut listing = daemon.list(&ListingRequest::of(files.path()));
        assert_eq!(listing.finish().unwrap(), []);
        assert_eq!(listing.len(), 100);
        assert_eq!(waiting.next(Some(Duration::ZERO)).unwrap(), None);
        drop(listing);
        daemon.wait_for_workers(1);
        drop((waiting, hanging));
        daemon.wait_for_workers(0);
    });
}

#[test]
fn a_caller_with_other_mounts_is_refused_and_helps_itself() {
    if let Some(socket) = std::env::var_os(CALLER) {
        return call(Path::new(&socket));
    }
    in_time(|| {
        if !has(&["unshare"]) || !rustix::process::geteuid().is_root() {
            return skip("a mount namespace needs root");
        }
        let daemon = Daemon::start();
        let mut alike = daemon.list(&ListingRequest::of(daemon.dir.path()));
        assert_eq!(alike.finish().unwrap(), []);
        let output = Command::new("unshare")
            .arg("--mount")
            .arg(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "listing_daemon::a_caller_with_other_mounts_is_refused_and_helps_itself",
            ])
            .arg("--nocapture")
            .env(CALLER, daemon.socket())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains("REFUSED AND LISTED"), "{text}");
    });
}

/// What the caller with other mounts does.
fn call(socket: &Path) {
    let dir = socket.parent().unwrap();
    let request = ListingRequest::of(dir);
    let mut refused = Listing::over(sys::socket::connect_to(socket).unwrap(), &request).unwrap();
    let failures = refused.finish().unwrap();
    assert_eq!(failures[0].step, ListingStep::Refused);
    assert_eq!((&*failures[0].path, refused.len()), (dir, 0));
    let ways = ListingAccess { daemon: Some(socket.to_owned()), worker: None };
    let mut listing = Listing::open(&ways, &request).unwrap();
    assert_eq!(listing.finish().unwrap(), []);
    assert!(listing.len() >= 2, "the socket and its lock are there");
    println!("REFUSED AND LISTED");
}

#[test]
fn bytes_that_are_no_request_end_their_caller_alone() {
    in_time(|| {
        let daemon = Daemon::start();
        let files = some_files(10);
        let mut listing = daemon.list(&ListingRequest::of(files.path()).followed());
        assert_eq!(listing.finish().unwrap(), []);
        let mut random = fastrand::Rng::with_seed(1);
        for round in 0..200 {
            let caller = sys::socket::connect_to(&daemon.socket()).unwrap();
            let mut bytes = vec![0; 1 + round * 7 % 300];
            random.fill(&mut bytes);
            // The daemon may hang up while we send.
            let _ = sys::socket::send(&caller, &bytes, None, Full::Fail);
            let mut answer = [0; 64];
            assert!(sys::socket::wait_readable(&caller, LONG).unwrap(), "it is hung up on");
            let length = sys::socket::receive(&caller, &mut answer).map_or(0, |got| got.length);
            assert_eq!(length, 0, "there is no answer to bytes");
        }
        let with_memory = sys::socket::connect_to(&daemon.socket()).unwrap();
        let memory = sys::memfd::create("large").unwrap();
        memory.set_len(1 << 30).unwrap();
        sys::socket::send(&with_memory, &[0], Some(std::os::fd::AsFd::as_fd(&memory)), Full::Fail)
            .unwrap();
        assert!(sys::socket::wait_readable(&with_memory, LONG).unwrap());

        let ways = ListingAccess { daemon: Some(daemon.socket()), worker: None };
        let relative = ListingRequest::of(Path::new("."));
        assert!(Listing::open(&ways, &relative).unwrap().finish().is_ok(), "not asked at all");
        std::fs::create_dir(files.path().join("new")).unwrap();
        assert!(matches!(listing.next(LONG).unwrap(), Some(Update::Names(_))), "it still follows");
    });
}

#[test]
fn more_callers_than_it_takes_wait_and_a_listing_that_is_followed_costs_nothing() {
    in_time(|| {
        let daemon = Daemon::start();
        let files = some_files(10);
        let request = ListingRequest::of(files.path()).followed();
        let mut listings: Vec<Listing> = (0..64).map(|_| daemon.list(&request)).collect();
        for listing in &mut listings {
            assert_eq!(listing.finish().unwrap(), []);
        }
        let mut late = daemon.list(&request);
        assert_eq!(late.next(Some(Duration::ZERO)).unwrap(), None);
        // What else the daemon does when it starts, as to look at the index, is over at some time.
        let mut second_of_nothing = || {
            let before = daemon.service.cpu();
            assert_eq!(listings[0].next(Some(Duration::from_secs(1))).unwrap(), None);
            daemon.service.cpu() - before
        };
        while second_of_nothing() >= Duration::from_millis(10) {}
        listings.truncate(63);
        assert_eq!(late.finish().unwrap(), [], "there is room now");
    });
}

#[test]
fn a_daemon_that_is_not_there_is_no_error() {
    let files = some_files(10);
    let ways = ListingAccess { daemon: Some("/nowhere/at/all".into()), worker: None };
    let mut listing = Listing::open(&ways, &ListingRequest::of(files.path())).unwrap();
    assert_eq!(listing.finish().unwrap(), []);
    assert_eq!(listing.len(), 10);
}

#[test]
fn the_socket_is_for_its_user_alone_and_goes_with_the_daemon() {
    use std::os::unix::fs::PermissionsExt;
    in_time(|| {
        let daemon = Daemon::start();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&daemon.socket()), 0o600);
        assert_eq!(mode(daemon.socket().parent().unwrap()), 0o700);
        let socket = daemon.socket();
        let Daemon { dir: _dir, service } = daemon;
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(service.pid().try_into().unwrap()).unwrap(),
            rustix::process::Signal::TERM,
        )
        .unwrap();
        while socket.exists() {
            fixture::pause();
        }
    });
}
