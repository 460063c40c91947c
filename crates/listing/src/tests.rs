//! Listings of real directories.

use super::*;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;

fn tree(count: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..count {
        let path = dir.path().join(format!("entry {number}"));
        std::fs::OpenOptions::new().write(true).create_new(true).open(path).unwrap();
    }
    dir
}

#[test]
fn names_and_attributes_are_those_of_the_directory() {
    for count in [0, 1, 63, 3000] {
        let dir = tree(count);
        let mut listing = Listing::in_process(&ListingRequest::of(dir.path())).unwrap();
        assert_eq!(listing.finish().unwrap(), []);
        let mut found = BTreeMap::new();
        for id in 0..listing.len() {
            found.insert(listing.name(id).to_vec(), listing.attributes(id).unwrap());
        }
        assert_eq!(found.len(), count);
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            let entry = entry.unwrap();
            let known = found[entry.file_name().as_encoded_bytes()];
            let metadata = entry.metadata().unwrap();
            assert_eq!(known.kind, EntryKind::File);
            assert_eq!((known.size, known.inode), (metadata.size(), metadata.ino()));
            assert_eq!(u32::from(known.mode), metadata.mode());
            assert_eq!(known.modified.seconds, metadata.mtime());
            assert_eq!(i64::from(known.modified.nanoseconds), metadata.mtime_nsec());
        }
    }
}

#[test]
fn a_missing_directory_is_told_with_its_path() {
    let mut listing = Listing::in_process(&ListingRequest::of(Path::new("/no/such"))).unwrap();
    let failures = listing.finish().unwrap();
    assert_eq!(failures.len(), 1);
    assert_eq!((failures[0].step, &*failures[0].path), (ListingStep::Open, Path::new("/no/such")));
    assert_eq!(failures[0].error().kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn more_names_than_allowed_are_told_and_no_fault_of_who_lists() {
    for (count, limit) in [(1000, 100), (101, 100), (100, 100), (70, 65), (70, 64), (3, 0)] {
        let dir = tree(count);
        let mut request = ListingRequest::of(dir.path());
        request.limits.entries = limit;
        let mut listing = Listing::in_process(&request).unwrap();
        let failures = listing.finish().unwrap();
        let steps: Vec<ListingStep> = failures.iter().map(|failure| failure.step).collect();
        let is_more = usize::try_from(limit).unwrap() < count;
        let expected = if is_more { vec![ListingStep::TooLarge] } else { vec![] };
        assert_eq!(steps, expected, "{count} names, {limit} allowed");
        assert_eq!(listing.len(), limit.min(count.try_into().unwrap()));
        assert!((0..listing.len()).all(|id| listing.attributes(id).is_some()));
    }
}

/// A directory on a file system in memory, which gives a name that was made again a second time.
fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// Reads all names as they come, and calls `meanwhile` after the first part.
fn raw_names(path: &Path, meanwhile: impl FnOnce()) -> Vec<Vec<u8>> {
    let directory = sys::dir::OpenDirectory::open(path).unwrap();
    let mut buffer = vec![std::mem::MaybeUninit::uninit(); 2048];
    let mut names = Vec::new();
    let mut each = |name: sys::dir::FileName<'_>| names.push(name.name.to_bytes().to_vec());
    let mut meanwhile = Some(meanwhile);
    while directory.read(&mut buffer, &mut each).unwrap() {
        if let Some(meanwhile) = meanwhile.take() {
            meanwhile();
        }
    }
    names
}

/// As [`raw_names`], with the names and types that a client gets.
fn scanned_names(path: &Path, meanwhile: impl FnOnce()) -> Vec<(Vec<u8>, EntryKind)> {
    let directory = sys::dir::OpenDirectory::open(path).unwrap();
    let (here, there) = sys::socket::pair().unwrap();
    let (here, there) = (Connection::new(here), Connection::new(there));
    let clock = sys::clock::SystemClock::start();
    let request = ListingRequest::of(path).with_fields(AttributeSet::NONE);
    let scan =
        scan::Scan { directory: &directory, request: &request, connection: &there, clock: &clock };
    let mut meanwhile = Some(meanwhile);
    scan.run(|_| {
        if let Some(meanwhile) = meanwhile.take() {
            meanwhile();
        }
    })
    .unwrap();
    let mut entries = Entries::new(ListingLimits::default());
    while let Some(message) = here.receive().unwrap() {
        entries.take(message.unwrap().chunk()).unwrap();
    }
    (0..entries.len()).map(|id| (entries.name(id).to_vec(), entries.kind(id))).collect()
}

fn distinct<T: Ord>(all: &[T]) -> usize {
    all.iter().collect::<std::collections::BTreeSet<_>>().len()
}

#[test]
fn a_name_that_is_made_again_while_names_are_read_comes_once() {
    let dir = in_memory();
    let path = |number: usize| dir.path().join(format!("entry {number}"));
    (0..500).for_each(|number| std::fs::create_dir(path(number)).unwrap());
    // Everything is removed and made again, as something else, behind the place that was read.
    let make_again = || {
        for number in 0..500 {
            std::fs::remove_dir(path(number)).unwrap();
            std::os::unix::fs::symlink("x", path(number)).unwrap();
        }
    };
    let found = scanned_names(dir.path(), make_again);
    let names: Vec<_> = found.iter().map(|(name, _)| name).collect();
    assert_eq!((names.len(), distinct(&names)), (500, 500));
    assert!(found.iter().all(|(_, kind)| *kind == EntryKind::Link), "types are those of the last");

    // The checker would notice: the file system itself gives names twice.
    let make_again = || {
        for number in 0..500 {
            std::fs::remove_file(path(number)).unwrap();
            std::fs::create_dir(path(number)).unwrap();
        }
    };
    let raw = raw_names(dir.path(), make_again);
    if sys::dir::OpenDirectory::open(dir.path()).unwrap().file_system().unwrap() == 0x0102_1994 {
        assert!(raw.len() > distinct(&raw), "tmpfs gives a name again that is made again");
    }
}

#[test]
fn entries_that_vanish_or_may_not_be_seen_are_told_one_by_one() {
    let dir = tree(100);
    let (here, there) = sys::socket::pair().unwrap();
    let (here, there) = (Connection::new(here), Connection::new(there));
    let directory = sys::dir::OpenDirectory::open(dir.path()).unwrap();
    let (clock, work) = (sys::clock::SystemClock::start(), attributes::Work::new());
    let request = ListingRequest::of(dir.path());
    let scan =
        scan::Scan { directory: &directory, request: &request, connection: &there, clock: &clock };
    scan.run(|names| work.add(names)).unwrap();
    work.whole();
    std::fs::remove_file(dir.path().join("entry 7")).unwrap();
    let reader = attributes::Reader {
        directory: &directory,
        fields: request.fields,
        connection: &there,
        work: &work,
        clock: &clock,
        strings: &intern::Strings::new(&there),
        types: &details::Types::of(&request),
    };
    reader.run(attributes::Phase::First).unwrap();
    let mut entries = Entries::new(ListingLimits::default());
    while let Some(message) = here.receive().unwrap() {
        entries.take(message.unwrap().chunk()).unwrap();
    }
    for id in 0..100 {
        let vanished = entries.name(id) == b"entry 7";
        assert_eq!(entries.failure(id), vanished.then_some(EntryFailure::Vanished));
        assert_eq!(entries.attributes(id).is_none(), vanished);
        assert_eq!(entries.kind(id), EntryKind::File, "the directory told that");
    }
}

#[test]
fn what_is_wanted_comes_before_the_rest_and_again_after_the_end() {
    let dir = tree(3000);
    let mut listing = Listing::in_process(&ListingRequest::of(dir.path())).unwrap();
    listing.finish().unwrap();
    let id = (0..3000).find(|id| listing.name(*id) == b"entry 1234").unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(dir.path().join("entry 1234")).unwrap();
    file.set_len(77).unwrap();
    assert_eq!(listing.attributes(id).unwrap().size, 0);
    listing.want(&[id, 9_999_999]).unwrap();
    let update = listing.next(None).unwrap();
    assert!(matches!(update, Some(Update::Attributes(ids)) if ids.iter().eq([id])));
    assert_eq!(listing.attributes(id).unwrap().size, 77);
    assert_eq!(listing.attributes((id + 1) % 3000).unwrap().size, 0);
}

#[test]
fn owners_targets_and_types_are_told_once_each() {
    let dir = tree(3);
    let database = tempfile::tempdir().unwrap();
    let file = |dir: &Path, name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        std::io::Write::write_all(&mut file, bytes).unwrap();
    };
    file(database.path(), "globs2", b"50:text/x-one:*.one\n");
    file(database.path(), "magic", b"MIME-Magic\0\n[50:a/magic]\n>0=\0\x02MM\n");
    file(dir.path(), "x.one", b"");
    file(dir.path(), "y.ONE", b"");
    file(dir.path(), "by contents", b"MM rest");
    file(dir.path(), "text", b"some text\n");
    for link in ["first", "second"] {
        std::os::unix::fs::symlink("x.one", dir.path().join(link)).unwrap();
    }
    std::os::unix::fs::symlink("nowhere", dir.path().join("broken")).unwrap();
    let fields = AttributeSet::OWNER_NAMES | AttributeSet::TARGET | AttributeSet::MIME_TYPE;
    let mut request = ListingRequest::of(dir.path()).with_fields(fields);
    request.mime_directories = vec![database.path().to_owned()];
    let mut listing = Listing::in_process(&request).unwrap();
    assert_eq!(listing.finish().unwrap(), []);
    let ids: BTreeMap<Vec<u8>, EntryId> =
        (0..listing.len()).map(|id| (listing.name(id).to_vec(), id)).collect();
    let known = |name: &str| listing.attributes(ids[name.as_bytes()]).unwrap();
    let entries = listing.entries();
    let text = |id| entries.string(id).map(|text| String::from_utf8_lossy(text).into_owned());
    assert_eq!(text(known("x.one").mime_type).unwrap(), "text/x-one");
    assert_eq!(known("x.one").mime_type, known("y.ONE").mime_type);
    assert_eq!((known("text").mime_type, text(0)), (0, None));
    assert_eq!(text(known("first").mime_type).unwrap(), "inode/symlink");
    assert_eq!(text(known("first").target).unwrap(), "x.one");
    assert_eq!(known("first").target, known("second").target);
    assert_eq!(EntryKind::from_mode(known("first").target_mode), EntryKind::File);
    assert_eq!(
        (text(known("broken").target).unwrap(), known("broken").target_mode),
        ("nowhere".into(), 0)
    );
    let owner = std::fs::metadata(dir.path().join("x.one")).unwrap();
    assert_eq!(known("x.one").user, owner.uid());
    assert_eq!(entries.user_name(owner.uid()), sys::account::user_name(owner.uid()).as_deref());
    assert_eq!(entries.group_name(owner.gid()), sys::account::group_name(owner.gid()).as_deref());
    assert_eq!(entries.user_name(4_000_123_456), None);

    let expected = [
        ("by contents", "a/magic"),
        ("text", "text/plain"),
        ("entry 0", "application/x-zerosize"),
        ("first", "inode/symlink"),
        ("x.one", "text/x-one"),
    ];
    let asked: Vec<_> = expected.iter().map(|(name, _)| ids[name.as_bytes()]).collect();
    listing.ask_details(&asked).unwrap();
    for (name, mime_type) in expected {
        let Some(Update::Details(found)) = listing.next(None).unwrap() else { panic!("{name}") };
        assert_eq!((found.id, &*found.mime_type), (ids[name.as_bytes()], mime_type));
        assert!(!found.has_access_list && !found.has_default_list);
    }
}
