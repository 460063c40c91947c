//! A followed listing ends as a fresh one, whatever happened and however much the kernel forgot.

#![expect(clippy::disallowed_methods, reason = "a test may panic without a thread")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::*;
use fastrand::Rng;
use std::sync::mpsc::channel;

use crate::attributes::Work;
use crate::collation::{Collation, Digits};
use crate::details::Types;
use crate::intern::Strings;
use crate::model::{By, Hidden, Model, RowOrder, ViewFilter};
use crate::scan::Scan;
use crate::{Entries, Listing, Update};
use sys::clock::SystemClock;

/// Creates, writes, removes and renames at random.
#[expect(clippy::disallowed_methods, reason = "the test is the other programs")]
fn stir(dir: &Path, random: &mut Rng, count: usize) {
    for _ in 0..count {
        let name = dir.join(format!("name {}", random.u64(..300)));
        // What is not there, or is there already, is part of the game.
        let _ = match random.u64(..10) {
            0..4 => fs::write(&name, vec![b'x'; usize::try_from(random.u64(..50)).unwrap()]),
            4 => fs::create_dir(&name),
            5..8 => fs::remove_file(&name).or_else(|_| fs::remove_dir(&name)),
            _ => fs::rename(&name, dir.join(format!("name {}", random.u64(..300)))),
        };
    }
}

/// Changes two files in turn until the kernel keeps no more changes.
#[expect(clippy::disallowed_methods, reason = "the test is the other program")]
fn flood(dir: &Path, count: usize) {
    use std::os::unix::fs::PermissionsExt;
    let files = ["one", "other"].map(|name| dir.join(name));
    for file in &files {
        fs::write(file, "").unwrap();
    }
    for (at, file) in (0..count).zip(files.iter().cycle()) {
        let mode = if at % 4 < 2 { 0o600 } else { 0o644 };
        fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// What is in a directory: names with types and sizes.
fn fresh(dir: &Path) -> BTreeMap<Vec<u8>, (EntryKind, u64)> {
    let listed = Listing::in_process(&ListingRequest::of(dir)).unwrap();
    let mut listed = listed;
    assert_eq!(listed.finish().unwrap(), []);
    contents(listed.entries())
}

fn contents(entries: &Entries) -> BTreeMap<Vec<u8>, (EntryKind, u64)> {
    let ids = (0..entries.len()).filter(|id| !entries.is_removed(*id));
    let size = |id| entries.attributes(id).map_or(u64::MAX, |known| known.size);
    ids.map(|id| (entries.name(id).to_vec(), (entries.kind(id), size(id)))).collect()
}

fn model() -> Model {
    let collation = Arc::new(Collation::new("en", Digits::ByValue));
    let order = RowOrder { by: By::Size, ..RowOrder::default() };
    Model::new(collation, order, ViewFilter { hidden: Hidden::Shown, pattern: None })
}

fn tell_model(model: &mut Model, entries: &Entries, update: &Update) {
    match update {
        Update::Names(_) => model.arrived(entries, entries.len()),
        Update::Attributes(ids) => model.attributes_changed(entries, ids.iter()),
        Update::Removed(ids) => model.removed(entries, ids.iter().copied()),
        Update::Renamed(ids) => model.renamed(entries, ids.iter().copied()),
        _ => return,
    };
}

/// The rows' names, and what they are if a model is made of the entries now.
fn rows(model: &Model, entries: &Entries) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let names = |model: &Model| {
        model.entries_from(0).map(|id| entries.name(id).to_vec()).collect::<Vec<_>>()
    };
    let mut anew = self::model();
    anew.removed(entries, []);
    anew.arrived(entries, entries.len());
    anew.removed(entries, (0..entries.len()).filter(|id| entries.is_removed(*id)));
    (names(model), names(&anew))
}

#[test]
fn the_followed_model_is_a_fresh_listing_at_the_end() {
    for seed in [1, 2, 3] {
        let dir = tempfile::tempdir().unwrap();
        let mut random = Rng::with_seed(0x9e37_79b9 + seed);
        stir(dir.path(), &mut random, 500);
        let mut listing = Listing::in_process(&ListingRequest::of(dir.path()).followed()).unwrap();
        let mut model = model();
        let path = dir.path().to_owned();
        let stirring = std::thread::spawn(move || stir(&path, &mut random, 10_000));
        let mut goal = None;
        loop {
            let update = listing.next(Some(Duration::from_secs(60))).unwrap();
            let update = update.expect("changes arrive until all are there");
            tell_model(&mut model, listing.entries(), &update);
            if stirring.is_finished() {
                let goal = goal.get_or_insert_with(|| fresh(dir.path()));
                if contents(listing.entries()) == *goal {
                    break;
                }
            }
        }
        stirring.join().unwrap();
        while let Some(update) = listing.next(Some(Duration::ZERO)).unwrap() {
            tell_model(&mut model, listing.entries(), &update);
        }
        let (followed, anew) = rows(&model, listing.entries());
        assert_eq!(followed, anew, "seed {seed}");
        assert_eq!(followed.len(), fresh(dir.path()).len(), "seed {seed}");
    }
}

/// Runs steps of a follower by hand: `between` happens while nobody reads what the kernel tells. Returns the entries at the end.
fn step_by_step(dir: &Path, between: &mut [&mut dyn FnMut()], blind: Blind) -> Entries {
    let mut between: Vec<_> = between
        .iter_mut()
        .map(|happen| {
            move |follower: &mut Follower<'_>| {
                happen();
                if blind == Blind::Yes {
                    follower.watch.read(|_| {}).unwrap();
                }
            }
        })
        .collect();
    let mut between: Vec<Between<'_>> =
        between.iter_mut().map(|happen| happen as Between<'_>).collect();
    steps(&ListingRequest::of(dir).followed(), &SystemClock::start(), &mut between).0
}

/// What happens before a step.
type Between<'a> = &'a mut dyn FnMut(&mut Follower<'_>);

/// Runs steps of a follower, each after something has happened. Returns the entries at the end, and what went wrong with the directory.
fn steps(
    request: &ListingRequest,
    clock: &dyn Clock,
    between: &mut [Between<'_>],
) -> (Entries, Vec<Failure>) {
    let (here, there) = sys::socket::pair().unwrap();
    let (here, there) = (Connection::new(here), Connection::new(there));
    let taking = std::thread::spawn({
        let limits = request.limits;
        move || {
            let (mut entries, mut failures) = (Entries::new(limits), Vec::new());
            loop {
                here.wait(None).unwrap();
                match here.receive() {
                    Ok(Some(message)) => {
                        for update in entries.take(message.unwrap().chunk()).unwrap() {
                            if let Update::Failed(failure) = update {
                                failures.push(failure);
                            }
                        }
                    }
                    Ok(None) => {}
                    Err(_) => return (entries, failures),
                }
            }
        }
    });
    let work = Work::new();
    let directory = OpenDirectory::open(&request.path).unwrap();
    let connection = &there;
    let (watch, since) = watch(&directory, request, connection, clock).unwrap().unwrap();
    let scan = Scan { directory: &directory, request, connection, clock };
    let mut names = Vec::new();
    let given = scan.run(|more| {
        names.push(Arc::clone(&more));
        work.keep(more);
    });
    let given = given.unwrap();
    let strings = Strings::new(connection);
    let types = Types::of(request);
    let reader = Reader {
        directory: &directory,
        fields: request.fields,
        connection,
        work: &work,
        clock,
        strings: &strings,
        types: &types,
    };
    let mut follower = Follower::new(reader, request, &watch, since);
    follower.take(names, given);
    for happen in between {
        happen(&mut follower);
        follower.step().unwrap();
    }
    there.hang_up();
    taking.join().unwrap()
}

/// Whether the follower is made not to see what happened.
#[derive(Clone, Copy, PartialEq)]
enum Blind {
    No,
    Yes,
}

#[test]
fn what_the_kernel_forgot_is_found_by_reading_again() {
    let most = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let most: usize = most.trim().parse().unwrap();
    assert!(most < 1 << 20, "the queue of this machine cannot be made to overflow");
    for seed in [11, 12] {
        let dir = tempfile::tempdir().unwrap();
        let mut random = Rng::with_seed(seed);
        stir(dir.path(), &mut random, 200);
        let mut further = Rng::with_seed(seed + 100);
        let mut end = Rng::with_seed(seed + 200);
        let overflow = |random: &mut Rng| {
            flood(dir.path(), most + 1);
            stir(dir.path(), random, 1000);
        };
        let entries = step_by_step(
            dir.path(),
            &mut [
                &mut || overflow(&mut random),
                &mut || stir(dir.path(), &mut further, 50),
                &mut || overflow(&mut end),
            ],
            Blind::No,
        );
        assert_eq!(contents(&entries).len(), fresh(dir.path()).len(), "seed {seed}");
        let unread = contents(&entries).values().filter(|(_, size)| *size == u64::MAX).count();
        let known = fresh(dir.path());
        for (name, (kind, size)) in contents(&entries) {
            let (fresh_kind, fresh_size) = known[&name];
            assert!(size == fresh_size || size == u64::MAX, "seed {seed}");
            assert!(kind == fresh_kind || size == u64::MAX, "seed {seed}");
        }
        // Only what was not touched since the listing began has no attributes here: nobody read them at first.
        assert!(unread < 300, "seed {seed}");
    }
}

#[test]
fn a_follower_that_does_not_look_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Rng::with_seed(5);
    let entries =
        step_by_step(dir.path(), &mut [&mut || stir(dir.path(), &mut random, 500)], Blind::Yes);
    assert_ne!(contents(&entries), fresh(dir.path()));
}

#[expect(clippy::disallowed_methods, reason = "the test is the other program")]
#[test]
fn a_directory_that_is_removed_or_moved_is_said_to_be_gone() {
    for moved in [true, false] {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("dir");
        fs::create_dir(&dir).unwrap();
        let mut listing = Listing::in_process(&ListingRequest::of(&dir).followed()).unwrap();
        assert_eq!(listing.finish().unwrap(), []);
        if moved {
            fs::rename(&dir, parent.path().join("other")).unwrap();
        } else {
            fs::remove_dir(&dir).unwrap();
        }
        let update = listing.next(Some(Duration::from_secs(60))).unwrap();
        let Some(Update::Failed(failure)) = update else { panic!("{update:?}") };
        assert_eq!(failure.step, ListingStep::Gone);
    }
}

#[test]
fn a_name_that_was_listed_twice_is_removed_once() {
    let (here, there) = sys::socket::pair().unwrap();
    let connection = Connection::new(there);
    let mut rows = NameRows::default();
    for name in [c"a", c"b", c"a"] {
        rows.push(name, EntryKind::File).unwrap();
    }
    let names = Arc::new(give(&mut rows, Vec::new(), 0, &connection).unwrap());
    let mut known = ClientNames { names: vec![names], table: None, hasher: RandomState::new() };
    assert_eq!(known.begin(), [2]);
    assert_eq!((known.find(c"a"), known.find(c"b"), known.find(c"c")), (Some(0), Some(1), None));
    known.forget(c"a");
    assert_eq!((known.find(c"a"), known.ids().count()), (None, 1));
    drop(here);
}

#[expect(clippy::disallowed_methods, reason = "the test is the other program")]
#[test]
fn what_went_is_told_before_there_is_too_much() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c"] {
        fs::write(dir.path().join(name), "").unwrap();
    }
    let mut request = ListingRequest::of(dir.path()).followed();
    request.limits.entries = 4;
    let path = dir.path();
    let mut first = |_: &mut Follower<'_>| {
        fs::remove_file(path.join("b")).unwrap();
        fs::write(path.join("d"), "").unwrap();
        fs::write(path.join("e"), "").unwrap();
        fs::write(path.join("a"), "longer").unwrap();
    };
    let mut nothing_more = |_: &mut Follower<'_>| fs::remove_file(path.join("c")).unwrap();
    let (entries, failures) =
        steps(&request, &SystemClock::start(), &mut [&mut first, &mut nothing_more]);
    let contents = contents(&entries);
    let names: Vec<&[u8]> = contents.keys().map(|name| &name[..]).collect();
    assert_eq!(names, [&b"a"[..], b"c", b"d"]);
    assert_eq!(contents[&b"a"[..]].1, 6, "attributes are told too");
    let steps: Vec<ListingStep> = failures.iter().map(|failure| failure.step).collect();
    assert_eq!(steps, [ListingStep::TooLarge], "it is said once, and nothing after it");
}

/// A clock on which time passes when a test says so.
#[derive(Debug, Default)]
struct SetClock(Mutex<Duration>);

impl SetClock {
    fn advance(&self, time: Duration) {
        *self.0.lock().unwrap() += time;
    }
}

impl Clock for SetClock {
    fn now(&self) -> SystemTime {
        SystemClock::start().now()
    }

    fn monotonic(&self) -> Duration {
        *self.0.lock().unwrap()
    }
}

/// Makes this test the process whose descriptors run out.
const EXHAUSTED: &str = "LISTING_EXHAUSTED";

#[test]
fn what_was_missed_is_looked_for_until_it_is_found_or_told_to_be_lost() {
    const NAME: &str =
        "follow::tests::what_was_missed_is_looked_for_until_it_is_found_or_told_to_be_lost";
    if std::env::var_os(EXHAUSTED).is_some() {
        return miss_changes();
    }
    let mut command = std::process::Command::new("/bin/sh");
    command.args(["-c", "ulimit -n 64; exec \"$0\" \"$@\""]);
    command.arg(std::env::current_exe().unwrap()).args(["--exact", NAME]);
    let output = command.env(EXHAUSTED, "yes").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[expect(clippy::disallowed_methods, reason = "the test is the other program")]
fn miss_changes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    fs::write(path.join("old"), "").unwrap();
    let request = ListingRequest::of(path).followed();
    // All descriptors that there are.
    let hoard = std::cell::RefCell::new(Vec::new());
    let take_all = || hoard.borrow_mut().extend(std::iter::from_fn(|| fs::File::open("/").ok()));
    let clock = SetClock::default();
    // The kernel has forgotten something, and the names cannot be read when they are looked for.
    let miss = |follower: &mut Follower<'_>| {
        assert_eq!(follower.more, MoreToFollow::More);
        follower.watch.read(|_| {}).unwrap();
        follower.missed = follower.missed.max(1);
        clock.advance(AGAIN);
        take_all();
    };
    let mut first = |follower: &mut Follower<'_>| {
        fs::write(path.join("new"), "").unwrap();
        fs::remove_file(path.join("old")).unwrap();
        miss(follower);
    };
    // Other changes come all the time. They are told, and what was missed is looked for when it is time.
    let busy = |number: u32| {
        move |follower: &mut Follower<'_>| {
            assert_eq!((follower.more, follower.missed), (MoreToFollow::More, 2), "{number}");
            fs::create_dir(path.join(format!("busy {number}"))).unwrap();
        }
    };
    let mut busy: Vec<_> = (0..3 * TRIES).map(busy).collect();
    let mut again = |follower: &mut Follower<'_>| {
        let told = 1 + 3 * TRIES;
        assert_eq!((follower.missed, follower.next), (2, told), "what is not missed is told");
        hoard.borrow_mut().clear();
        clock.advance(AGAIN);
    };
    let mut between: Vec<Between<'_>> = vec![&mut first];
    between.extend(busy.iter_mut().map(|happen| happen as Between<'_>));
    between.push(&mut again);
    let (entries, failures) = steps(&request, &clock, &mut between);
    let mut names: Vec<Vec<u8>> = contents(&entries).into_keys().collect();
    names.retain(|name| !name.starts_with(b"busy "));
    assert_eq!((names, failures), (vec![b"new".to_vec()], Vec::new()));

    let mut last = |follower: &mut Follower<'_>| {
        assert_eq!(follower.more, MoreToFollow::Nothing);
        hoard.borrow_mut().clear();
    };
    let mut misses = vec![miss; usize::try_from(TRIES).unwrap() - 1];
    let mut between: Vec<Between<'_>> = misses.iter_mut().map(|miss| miss as Between<'_>).collect();
    between.push(&mut last);
    let (_, failures) = steps(&request, &clock, &mut between);
    let [failure] = &failures[..] else { panic!("{failures:?}") };
    assert_eq!(failure.step, ListingStep::Follow);
    assert_eq!(failure.error().raw_os_error(), Some(24));
}

#[test]
fn what_the_kernel_does_not_tell_of_is_said_to_be_followed_in_part() {
    for path in ["/proc/self/net", "/sys/class/net", "/sys"] {
        let request = ListingRequest::of(Path::new(path)).followed();
        let failures = Listing::in_process(&request).unwrap().finish().unwrap();
        let [failure] = &failures[..] else { panic!("{path}: {failures:?}") };
        assert!(failure.is_remark(), "{path}: {failure:?}");
    }
    let dir = tempfile::tempdir().unwrap();
    let request = ListingRequest::of(dir.path()).followed();
    assert_eq!(Listing::in_process(&request).unwrap().finish().unwrap(), []);
}

#[test]
fn the_root_is_followed_as_any_directory() {
    let Ok(dir) = tempfile::Builder::new().prefix(".unjank-test-").tempdir_in("/") else {
        eprintln!("SKIPPED: nothing can be made in the root directory");
        return;
    };
    let mut listing = Listing::in_process(&ListingRequest::of(Path::new("/")).followed()).unwrap();
    listing.finish().unwrap();
    let new = tempfile::Builder::new().prefix(".unjank-test-").tempdir_in("/").unwrap();
    let name = new.path().file_name().unwrap().to_owned();
    let is_there = |listing: &Listing| {
        let entries = listing.entries();
        let of_name = |id: &EntryId| entries.name(*id) == name.as_encoded_bytes();
        (0..entries.len()).filter(of_name).any(|id| !entries.is_removed(id))
    };
    let wait_until = |listing: &mut Listing, wanted: bool| {
        while is_there(listing) != wanted {
            let update = listing.next(Some(Duration::from_secs(60))).unwrap();
            assert!(update.is_some(), "changes arrive");
        }
    };
    wait_until(&mut listing, true);
    drop(new);
    wait_until(&mut listing, false);
    drop(dir);
}

#[expect(clippy::disallowed_methods, reason = "the test is the other program")]
#[test]
fn what_is_wanted_is_not_told_after_what_was_seen_later() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let mut old_is_wanted = |follower: &mut Follower<'_>| {
        let reader = follower.reader;
        let (looked, has_looked) = channel();
        let (tell, may_tell) = channel();
        reader.work.stop_next((looked, may_tell));
        reader.work.want(vec![0]);
        let held = Mutex::new(std::mem::replace(
            follower,
            Follower::new(reader, follower.request, follower.watch, follower.checked),
        ));
        std::thread::scope(|scope| {
            let wanted = scope.spawn(|| reader.run_beside(|| alone(&held), |_| Ok(())));
            let limit = Duration::from_secs(60);
            if has_looked.recv_timeout(limit).is_err() {
                reader.work.end();
                panic!("nobody looks at what is wanted");
            }
            fs::write(&file, "12345").unwrap();
            // Whoever follows has to wait: the other one has seen less, and has not told it yet.
            let is_kept_waiting = match held.try_lock() {
                Ok(mut follower) => follower.step().map(|_| false).unwrap(),
                Err(_) => true,
            };
            tell.send(()).unwrap();
            reader.work.end();
            wanted.join().unwrap().unwrap();
            assert!(is_kept_waiting, "what was seen first is told first");
        });
        *follower = held.into_inner().unwrap();
    };
    let request = ListingRequest::of(dir.path()).followed();
    let (entries, _) = steps(&request, &SystemClock::start(), &mut [&mut old_is_wanted]);
    assert_eq!(contents(&entries)[&b"file"[..]].1, 5);
}
