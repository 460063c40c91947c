//! Listings in a worker process: one that hangs is left behind, one that dies is told.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test that times and kills")]

mod fixture;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fixture::fuse::{HangingMount, OPENDIR, Server};
use fixture::{in_time, setting};
use listing::{Listing, ListingError, ListingRequest, ReadyWorker, WorkerProgram};

fn program() -> WorkerProgram {
    WorkerProgram {
        path: env!("CARGO_BIN_EXE_unjank").into(),
        arguments: vec!["listing-worker".into()],
    }
}

fn some_files(count: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..count {
        std::fs::create_dir(dir.path().join(format!("{number}"))).unwrap();
    }
    dir
}

/// Lists with another worker and counts.
fn count(path: &Path) -> u32 {
    let mut listing = Listing::in_worker(&program(), &ListingRequest::of(path)).unwrap();
    assert_eq!(listing.finish().unwrap(), []);
    assert!((0..listing.len()).all(|id| listing.attributes(id).is_some()));
    listing.len()
}

/// The processes that we started and that have not ended.
fn children() -> Vec<String> {
    let own = std::process::id().to_string();
    let status = |entry: std::fs::DirEntry| {
        let text = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let mut fields = text.rsplit_once(')')?.1.split_whitespace();
        let (state, parent) = (fields.next()?.to_owned(), fields.next()?);
        (parent == own && state != "Z").then_some(text)
    };
    std::fs::read_dir("/proc").unwrap().filter_map(|entry| status(entry.unwrap())).collect()
}

#[test]
fn a_file_system_that_never_answers_is_left_at_once() {
    in_time(|| {
        let files = some_files(100);
        for server in [Server::NeverReads, Server::NeverAnswers] {
            let Some(hanging) = HangingMount::make(server) else { return };
            let mut listing =
                Listing::in_worker(&program(), &ListingRequest::of(hanging.path())).unwrap();
            if server == Server::NeverAnswers {
                hanging.wait_for(OPENDIR);
            }
            let nothing = listing.next(Some(Duration::from_millis(50))).unwrap();
            assert_eq!(nothing, None, "{server:?}: nothing can arrive");
            let start = Instant::now();
            listing.cancel();
            let took = start.elapsed();
            println!("{server:?}: cancelled in {took:?}");
            // Under load a thread may wait for its turn; a quiet machine is told with CANCEL_MS=10.
            assert!(took < Duration::from_millis(setting("CANCEL_MS").unwrap_or(5000)));
            assert!(matches!(listing.next(None), Err(ListingError::Cancelled { .. })));
            assert_eq!(count(files.path()), 100, "{server:?}: the client keeps working");
            if server == Server::NeverReads {
                // Whoever waits for an unread request can be killed, and is.
                let end = Instant::now() + Duration::from_secs(50);
                while children().iter().any(|child| child.contains("unjank")) {
                    assert!(Instant::now() < end, "{:?}", children());
                    fixture::pause();
                }
            }
        }
    });
}

#[test]
fn threads_of_this_process_that_hang_are_left_behind() {
    in_time(|| {
        let files = some_files(10);
        let Some(hanging) = HangingMount::make(Server::NeverAnswers) else { return };
        let listing = Listing::in_process(&ListingRequest::of(hanging.path())).unwrap();
        hanging.wait_for(OPENDIR);
        drop(listing);
        assert_eq!(count(files.path()), 10);
    });
}

#[test]
fn a_worker_ends_with_its_client_although_it_hangs() {
    in_time(|| {
        let Some(hanging) = HangingMount::make(Server::NeverReads) else { return };
        let (here, there) = sys::socket::pair().unwrap();
        let mut worker = Command::new(env!("CARGO_BIN_EXE_unjank"))
            .arg("listing-worker")
            .stdin(Stdio::from(there))
            .spawn()
            .unwrap();
        let mut listing = Listing::over(here, &ListingRequest::of(hanging.path())).unwrap();
        assert_eq!(listing.next(Some(Duration::from_millis(50))).unwrap(), None);
        assert_eq!(worker.try_wait().unwrap(), None, "it waits for its file system");
        drop(listing);
        assert!(worker.wait().unwrap().success());
    });
}

#[test]
fn a_worker_that_dies_is_told() {
    in_time(|| {
        let files = some_files(5000);
        let (here, there) = sys::socket::pair().unwrap();
        let mut worker = Command::new(env!("CARGO_BIN_EXE_unjank"))
            .arg("listing-worker")
            .stdin(Stdio::from(there))
            .spawn()
            .unwrap();
        let mut listing = Listing::over(here, &ListingRequest::of(files.path())).unwrap();
        listing.next(None).unwrap();
        let arrived = listing.len();
        worker.kill().unwrap();
        worker.wait().unwrap();
        let error = loop {
            match listing.next(None) {
                Ok(update) => assert_ne!(update, None),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, ListingError::WorkerEnded { .. }), "{error}");
        assert!(listing.len() >= arrived && !listing.name(0).is_empty(), "names stay");
    });
}

#[test]
fn a_program_that_is_none_or_does_not_list_is_told() {
    let request = ListingRequest::of(Path::new("/"));
    let missing = WorkerProgram { path: "/no/such/program".into(), arguments: Vec::new() };
    let error = Listing::in_worker(&missing, &request).unwrap_err();
    assert_eq!(error.to_string(), "cannot start listing \"/\"");
    let other = WorkerProgram { path: "/bin/true".into(), arguments: Vec::new() };
    let error = match Listing::in_worker(&other, &request) {
        Ok(mut listing) => listing.next(None).unwrap_err(),
        Err(error) => error,
    };
    assert!(
        matches!(error, ListingError::WorkerEnded { .. } | ListingError::NotStarted { .. }),
        "{error}"
    );
}

#[test]
fn a_worker_can_be_started_before_there_is_anything_to_list() {
    in_time(|| {
        let files = some_files(30);
        let unused = ReadyWorker::start(&program()).unwrap();
        let mut listing = ReadyWorker::start(&program())
            .unwrap()
            .list(&ListingRequest::of(files.path()))
            .unwrap();
        drop(unused);
        assert_eq!(listing.finish().unwrap(), []);
        assert_eq!(listing.len(), 30);
    });
}

#[test]
fn the_worker_wants_a_socket() {
    for stdin in [Stdio::null(), Stdio::piped()] {
        let output = Command::new(env!("CARGO_BIN_EXE_unjank"))
            .arg("listing-worker")
            .stdin(stdin)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.starts_with("unjank: cannot serve a listing"), "{text}");
    }
}
