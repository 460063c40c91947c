//! kill -9 of the real daemon at random points under four writers: nothing acknowledged is lost and no half state is seen.
//!
//! `KILLS` sets how often each kind is killed (the gate does a few, `ci/slow` 500); `KILL_SEED` repeats a run.
#![expect(clippy::disallowed_methods, reason = "a test may panic without a thread")]
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![expect(clippy::print_stderr, reason = "the seed and what was done")]

use crate::fixture;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use std::{fs, io};

use bus::client::blocking::BlockingClient;
use fixture::{Bus, NAME, OURS, Service, setting};
use gvdb::gvariant::Variant;
use gvdb::{GvdbTable, Stamp, stamp};
use rustix::process::Signal;
use settings::changeset::Changeset;

const WRITERS: usize = 4;

/// What a writer knows: the number it last asked for and the one that was last acknowledged.
#[derive(Default)]
struct Numbers {
    asked: AtomicU64,
    acknowledged: AtomicU64,
}

/// The number that `database` holds for a writer: both its keys say the same, or the state is half of one.
fn number(table: GvdbTable<'_>, writer: usize) -> Result<u64, String> {
    let read = |key: &str| {
        let bytes = table.value(&format!("/kill/{key}{writer}"));
        bytes.map_or(0, |v| {
            gvdb::gvariant::VariantView::inside(v, table.order()).as_u64().unwrap_or(u64::MAX)
        })
    };
    let (first, last) = (read("a/first"), read("z/last"));
    if first == last { Ok(first) } else { Err(format!("half state: {first} and {last}")) }
}

/// The numbers in a whole and undamaged database; all 0 if there is none yet.
fn numbers_in(bytes: &[u8]) -> Result<[u64; WRITERS], String> {
    if bytes.is_empty() {
        return Ok([0; WRITERS]);
    }
    let table = GvdbTable::open(bytes).map_err(|e| e.to_string())?;
    table.check().map_err(|e| e.to_string())?;
    if matches!(stamp(bytes), Stamp::Bad) {
        return Err("the checksum is wrong".into());
    }
    let mut numbers = [0; WRITERS];
    for (writer, slot) in numbers.iter_mut().enumerate() {
        *slot = number(table, writer)?;
    }
    Ok(numbers)
}

/// Reads a database as its readers do: one in the runtime directory that begins with a zero was replaced, and is opened
/// again.
fn read(path: &Path) -> Vec<u8> {
    loop {
        match fs::read(path) {
            Ok(bytes) if bytes.first() == Some(&0) => {}
            Ok(bytes) => return bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => panic!("{path:?}: {error}"),
        }
    }
}

/// Writes both keys of a writer again and again, each time as one changeset, until it is told to stop.
fn write(
    writer: usize,
    address: &str,
    object: &str,
    known: &Numbers,
    stop: &AtomicBool,
    progress: &Sender<()>,
) {
    let client = BlockingClient::connect(Some(address)).unwrap();
    while !stop.load(Ordering::Relaxed) {
        let next = known.asked.load(Ordering::Relaxed) + 1;
        let mut changes = Changeset::default();
        changes.change(&format!("/kill/a/first{writer}"), Some(Variant::from(next)));
        changes.change(&format!("/kill/z/last{writer}"), Some(Variant::from(next)));
        known.asked.store(next, Ordering::SeqCst);
        // An error says that the daemon died: whether the change was made is then unknown.
        if client.change(object, &changes.encode()).is_ok() {
            known.acknowledged.store(next, Ordering::SeqCst);
            let _ = progress.send(());
        } else {
            // Nobody owns the name: wait for the next daemon by asking the bus, not by time.
            while !stop.load(Ordering::Relaxed) && !matches!(client.name_owner(NAME), Ok(Some(_))) {
                fixture::pause();
            }
        }
    }
}

/// Reads every image it can get hold of and reports the first that is not whole.
fn watch(database: &Path, stop: &AtomicBool) -> Result<u64, String> {
    let mut before = [0; WRITERS];
    let mut seen = 0;
    while !stop.load(Ordering::Relaxed) {
        let now = numbers_in(&read(database))?;
        if now.iter().zip(&before).any(|(now, before)| now < before) {
            return Err(format!("went back from {before:?} to {now:?}"));
        }
        seen += u64::from(now != before);
        before = now;
    }
    Ok(seen)
}

/// Waits until writers have made progress, then for a random part of a few commits more.
fn wait_for_work(progress: &Receiver<()>, dice: &mut fastrand::Rng) {
    while progress.try_recv().is_ok() {}
    for _ in 0..=dice.u64(..12) {
        progress.recv_timeout(Duration::from_secs(30)).expect("the writers make progress");
    }
    let pause = Duration::from_micros(dice.u64(..3000));
    while progress.recv_timeout(pause).is_ok() && dice.u64(..3) > 0 {}
}

/// What happens between a kill and the next start.
#[derive(Clone, Copy, PartialEq)]
enum After {
    /// The daemon alone died.
    Kill,
    /// The runtime directory went too, as at a restart of the machine.
    Reboot,
}

fn start(session: &Bus) -> Service {
    session.serve(OURS, &["--names", "dconf"])
}

/// Kills the daemon and waits until the bus knows that it is gone.
fn kill_now(daemon: Service, session: &Bus) {
    daemon.end(Signal::KILL);
    let client = session.client();
    while client.name_owner(NAME).unwrap().is_some() {
        fixture::pause();
    }
}

fn kill_loop(object: &str, database: impl Fn(&Bus) -> std::path::PathBuf, after: After) {
    let kills = setting("KILLS").unwrap_or(12);
    let seed = setting("KILL_SEED").unwrap_or_else(|| u64::from(std::process::id()) + 1);
    eprintln!("{kills} kills, KILL_SEED={seed}");
    let mut dice = fastrand::Rng::with_seed(seed);
    let Some(session) = Bus::start() else { return };
    let database = database(&session);
    let known: [Numbers; WRITERS] = Default::default();
    let (stop, reader_stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let (sender, progress) = channel();
    let mut daemon = Some(start(&session));

    std::thread::scope(|scope| {
        for (writer, known) in known.iter().enumerate() {
            let (sender, stop, address) = (sender.clone(), &stop, session.address());
            scope.spawn(move || write(writer, address, object, known, stop, &sender));
        }
        // A file in the runtime directory comes and goes with a restart; it is looked at after each.
        let reader = (after == After::Kill).then(|| scope.spawn(|| watch(&database, &reader_stop)));
        let verdict = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for kill in 0..kills {
                wait_for_work(&progress, &mut dice);
                kill_now(daemon.take().unwrap(), &session);
                let promised: Vec<u64> =
                    known.iter().map(|known| known.acknowledged.load(Ordering::SeqCst)).collect();
                if after == After::Reboot {
                    fs::remove_dir_all(session.dir().join("run/dconf-service")).unwrap();
                    daemon = Some(start(&session));
                    let client = BlockingClient::connect(Some(session.address())).unwrap();
                    client.init(object).unwrap();
                }
                let found =
                    numbers_in(&read(&database)).unwrap_or_else(|e| panic!("kill {kill}: {e}"));
                for (writer, (found, promised)) in found.iter().zip(&promised).enumerate() {
                    assert!(
                        found >= promised,
                        "kill {kill}: writer {writer} was promised {promised}, the file has {found}"
                    );
                    let asked = known[writer].asked.load(Ordering::SeqCst);
                    assert!(*found <= asked, "kill {kill}: {found} was never asked for ({asked})");
                }
                if after == After::Kill {
                    daemon = Some(start(&session));
                }
            }
        }));
        stop.store(true, Ordering::Relaxed);
        reader_stop.store(true, Ordering::Relaxed);
        if let Some(reader) = reader {
            let seen =
                reader.join().unwrap().unwrap_or_else(|fault| panic!("a reader saw: {fault}"));
            eprintln!("the reader saw {seen} different whole images");
        }
        if let Err(fault) = verdict {
            std::panic::resume_unwind(fault);
        }
    });
    let total: u64 = known.iter().map(|k| k.acknowledged.load(Ordering::SeqCst)).sum();
    eprintln!("{total} changes acknowledged");
}

#[test]
fn no_acknowledged_change_is_lost_by_kill_9() {
    kill_loop("/ca/desrt/dconf/Writer/user", |session| session.user_database(), After::Kill);
}

#[test]
fn no_acknowledged_change_in_the_journal_is_lost_with_the_runtime_directory() {
    kill_loop(
        "/ca/desrt/dconf/journal/user",
        |session| session.dir().join("run/dconf-service/journal/user"),
        After::Reboot,
    );
}

#[test]
fn a_half_state_and_a_damaged_image_are_noticed() {
    let value = Variant::from(7_u64);
    let other = Variant::from(8_u64);
    let write = |first: &Variant, last: &Variant| {
        let entries = [("/kill/a/first0", first.as_bytes()), ("/kill/z/last0", last.as_bytes())];
        let image = gvdb::Image { locks: &[], generation: Some(1) };
        gvdb::write(entries.into_iter(), &image).unwrap()
    };
    assert_eq!(numbers_in(&write(&value, &value)).unwrap(), [7, 0, 0, 0]);
    numbers_in(&write(&value, &other)).unwrap_err();
    let whole = write(&value, &value);
    for at in 24..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1;
        numbers_in(&flipped).unwrap_err();
    }
}
