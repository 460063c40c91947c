//! Two settings services of one user, as two sessions with one home have them: no acknowledged change is lost.
//!
//! `TWO_SERVICES_ROUNDS` sets how often each writer writes (the gate does 20 rounds).
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::path::Path;

use crate::fixture;

use bus::client::blocking::BlockingClient;
use fixture::{Bus, OURS, SharedDirectories, in_time, set, setting};
use gvdb::GvdbTable;

const WRITERS: usize = 8;

/// Every key that was acknowledged, by writers of which half are in each session.
fn write_from_both(sessions: [&Bus; 2], object: &str, rounds: u64) -> Vec<String> {
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let address = sessions[writer % 2].address();
                let work = move || {
                    let client = BlockingClient::connect(Some(address)).unwrap();
                    let keys = (0..rounds).map(|round| format!("/two/writer{writer}/k{round}"));
                    let acknowledged = keys.filter(|key| {
                        client.change(object, &set(key, key)).unwrap();
                        true
                    });
                    acknowledged.collect::<Vec<_>>()
                };
                sys::thread::spawn_scoped(scope, "writer", work).unwrap()
            })
            .collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    })
}

fn lost(image: &[u8], acknowledged: &[String]) -> Vec<String> {
    let table = GvdbTable::open(image).unwrap();
    acknowledged.iter().filter(|key| table.value(key).is_none()).cloned().collect()
}

fn nothing_is_lost(kind: &'static str, shared: SharedDirectories) {
    nothing_is_lost_in(&std::env::temp_dir(), kind, shared);
}

fn nothing_is_lost_in(parent: &Path, kind: &'static str, shared: SharedDirectories) {
    let Some(first) = Bus::start_in(parent) else { return };
    let second = Bus::start_beside(&first, shared).unwrap();
    let services = [first.serve(OURS, &["--no-pacing"]), second.serve(OURS, &["--no-pacing"])];
    let object = format!("/ca/desrt/dconf/{kind}/user");
    let rounds = setting("TWO_SERVICES_ROUNDS").unwrap_or(20);
    let acknowledged = write_from_both([&first, &second], &object, rounds);
    for service in services {
        let (status, log, _) = service.end(rustix::process::Signal::TERM);
        assert!(status.success(), "{log}");
    }
    let image = match kind {
        "Writer" => first.user_database(),
        _ => {
            // What the two stored is what a service that starts afterwards finds.
            let service = first.serve(OURS, &[]);
            first.client().init(&object).unwrap();
            drop(service);
            first.dir().join("run/dconf-service").join(kind).join("user")
        }
    };
    let lost = lost(&std::fs::read(image).unwrap(), &acknowledged);
    assert!(lost.is_empty(), "{} of {} lost: {lost:?}", lost.len(), acknowledged.len());
}

#[test]
fn two_sessions_with_one_home_lose_no_acknowledged_change() {
    in_time(|| nothing_is_lost("Writer", SharedDirectories::Home));
}

/// There the thread that answers writes the image itself, unless another thread is at the files.
#[test]
fn two_sessions_with_one_home_in_memory_lose_no_acknowledged_change() {
    in_time(|| nothing_is_lost_in(Path::new("/dev/shm"), "Writer", SharedDirectories::Home));
}

#[test]
fn two_buses_of_one_machine_lose_no_acknowledged_change() {
    in_time(|| nothing_is_lost("Writer", SharedDirectories::HomeAndRuntime));
}

#[test]
fn a_text_file_of_two_sessions_loses_no_acknowledged_change() {
    in_time(|| nothing_is_lost("keyfile", SharedDirectories::Home));
}

#[test]
fn a_journal_of_two_sessions_loses_no_acknowledged_change() {
    in_time(|| nothing_is_lost("journal", SharedDirectories::Home));
}

#[test]
fn a_volatile_database_of_two_buses_loses_no_acknowledged_change() {
    in_time(|| nothing_is_lost("shm", SharedDirectories::HomeAndRuntime));
}
