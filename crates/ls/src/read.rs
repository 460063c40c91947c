//! Reading what is in a directory: all names first, then attributes on several threads where that pays.
//!
//! A directory is read in this process and by its descriptor. Listings that others wait for go through
//! `listing`; here nobody waits but the one who typed the command, and most directories are small.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use listing::{Attributes, EntryKind};
use rustix::fs::{AtFlags, CWD, StatxFlags, lgetxattr, readlinkat, statx};
use sys::dir::OpenDirectory;

use super::color::Role;
use super::entry::{Entry, Group, Known, Link, Mark, TimeField, attributes};
use super::name::checks_targets;
use super::options::{Dereference, Hidden, Indicators, Layout, Options, Sort};

/// Names are read in pieces of this size: one call for most directories, few for the largest.
const BUFFER: usize = 256 << 10;
/// A thread more is started for so many entries.
const WORTH_A_THREAD: usize = 1500;
/// Entries that a thread takes at a time.
const PART: usize = 256;
/// More threads than this only wait for each other.
const THREADS: usize = 8;

/// What must be known of entries to show them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Needs {
    /// Attributes, of every entry.
    status: Option<StatxFlags>,
    /// Where links lead.
    targets: bool,
    /// The type of what links lead to.
    target_modes: bool,
    /// Attributes of what links lead to instead of their own.
    follow: bool,
    /// Access control lists.
    acl: bool,
    /// Capabilities of programs.
    capabilities: bool,
    /// All times and numbers, for machines.
    details: bool,
}

impl Needs {
    /// Works out what the options need.
    pub(super) fn of(options: &Options) -> Needs {
        let is_long = options.layout == Layout::Long;
        let template = match &options.layout {
            Layout::Template(template) => Some(template),
            _ => None,
        };
        let details = options.layout == Layout::Json
            || template.is_some_and(super::template::Template::needs_attributes);
        let colors = options.colors.as_ref();
        let shows = |role| colors.is_some_and(|colors| colors.shows(role));
        let follow = options.dereference == Dereference::Always;
        let mut flags = StatxFlags::empty();
        let mut wanted = |when: bool, what: StatxFlags| {
            if when {
                flags |= what;
            }
        };
        wanted(details, StatxFlags::BASIC_STATS | StatxFlags::BTIME);
        wanted(
            is_long,
            StatxFlags::MODE
                | StatxFlags::NLINK
                | StatxFlags::UID
                | StatxFlags::GID
                | StatxFlags::SIZE,
        );
        wanted(is_long || options.blocks, StatxFlags::BLOCKS);
        wanted(options.inode, StatxFlags::INO);
        wanted(options.sort == Sort::Size, StatxFlags::SIZE);
        let time = match options.time {
            TimeField::Modified => StatxFlags::MTIME,
            TimeField::Accessed => StatxFlags::ATIME,
            TimeField::Changed => StatxFlags::CTIME,
            TimeField::Born => StatxFlags::BTIME,
        };
        wanted(is_long || options.sort == Sort::Time, time);
        wanted(colors.is_some() || options.indicators == Indicators::Classify, StatxFlags::MODE);
        wanted(shows(Role::HardLinks), StatxFlags::NLINK);
        let by_kind = options.recursive
            || options.dirs_first
            || options.indicators != Indicators::None
            || options.sort == Sort::Type
            || template.is_some();
        wanted(follow && by_kind, StatxFlags::TYPE);
        Needs {
            status: (!flags.is_empty()).then_some(flags | StatxFlags::TYPE),
            targets: is_long
                || options.layout == Layout::Json
                || template.is_some_and(super::template::Template::needs_targets),
            target_modes: checks_targets(options),
            follow,
            acl: options.acl && (is_long || details),
            capabilities: shows(Role::Capability),
            details,
        }
    }
}

impl Needs {
    /// Says whether more than names and types is needed.
    pub(super) fn has_status(&self) -> bool {
        self.status.is_some()
    }

    /// Says whether it is needed where links lead.
    pub(super) fn has_targets(&self) -> bool {
        self.targets || self.target_modes
    }
}

/// A file that could not be looked at.
pub(super) type Failure = (Vec<u8>, io::Error);

/// Reads the names in a directory that are to be shown, and what must be known of them.
///
/// # Errors
///
/// The group holds what was read before.
pub(super) fn directory(
    path: &Path,
    directory: &OpenDirectory,
    options: &Options,
    needs: Needs,
    failures: &mut Vec<Failure>,
) -> (Group, io::Result<()>) {
    let mut group = Group::default();
    if options.hidden == Hidden::Show {
        for name in [&b"."[..], b".."] {
            if !is_left_out(options, name) {
                add(&mut group, name, EntryKind::Directory, 0);
            }
        }
    }
    let plain =
        options.hidden == Hidden::Show && options.ignore.is_empty() && options.filter.is_empty();
    let mut buffer = vec![MaybeUninit::uninit(); BUFFER];
    let read = loop {
        let more = directory.read(&mut buffer, |name| {
            let bytes = name.name.to_bytes();
            if plain || !is_left_out(options, bytes) {
                add(&mut group, bytes, EntryKind::from_number(name.kind), name.inode);
            }
        });
        match more {
            Ok(true) => (),
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    look(path, directory, &mut group, options, needs, failures);
    (group, read)
}

/// Adds a name with a NUL after it, as the kernel wants it back.
fn add(group: &mut Group, name: &[u8], kind: EntryKind, inode: u64) {
    let entry = group.add(name, kind);
    entry.inode = inode;
    group.names.push(0);
}

/// Says whether a name is not shown.
pub(super) fn is_left_out(options: &Options, name: &[u8]) -> bool {
    let any = |globs: &[super::glob::Glob]| globs.iter().any(|glob| glob.matches(name));
    let by_dot = match options.hidden {
        Hidden::Show => false,
        Hidden::Almost => matches!(name, b"." | b".."),
        Hidden::Skip => name.first() == Some(&b'.'),
    };
    by_dot
        || (options.hidden == Hidden::Skip && any(&options.hide))
        || any(&options.ignore)
        || (!options.filter.is_empty() && !any(&options.filter))
}

/// Reads what must be known of a group's entries.
fn look(
    path: &Path,
    directory: &OpenDirectory,
    group: &mut Group,
    options: &Options,
    needs: Needs,
    failures: &mut Vec<Failure>,
) {
    let unknown_types = needs.status.is_none()
        && (options.recursive
            || options.dirs_first
            || options.indicators != Indicators::None
            || options.sort == Sort::Type
            || matches!(options.layout, Layout::Json | Layout::Template(_)))
        && group.entries.iter().any(|entry| entry.kind == EntryKind::Unknown);
    let looks = needs.status.is_some() || needs.targets || needs.target_modes || unknown_types;
    if !looks {
        return;
    }
    let look = Look { path, directory, options, needs, unknown_types };
    let count = group.entries.len();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = cores.min(THREADS).min(count / WORTH_A_THREAD + 1);
    let mut entries = std::mem::take(&mut group.entries);
    let names = &*group.names;
    let found = if threads == 1 {
        let mut found = Found::default();
        look.part(names, 0, &mut entries, &mut found);
        vec![found]
    } else {
        let parts = Mutex::new(entries.chunks_mut(PART).enumerate());
        std::thread::scope(|scope| {
            let work = || {
                let mut found = Found::default();
                loop {
                    let next = parts.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some((number, part)) = next else { return found };
                    look.part(names, number * PART, part, &mut found);
                }
            };
            // Where there is no further thread, those that there are look at all.
            let other = |_| sys::thread::spawn_scoped(scope, "ls-reader", work).ok();
            let others: Vec<_> = (1..threads).map_while(other).collect();
            let mut found = vec![work()];
            // A thread that panicked has nothing to give; its panic has been said.
            found.extend(others.into_iter().filter_map(|other| other.join().ok()));
            found
        })
    };
    group.entries = entries;
    let mut failed = Vec::new();
    if needs.details {
        group.details = vec![Attributes::default(); count];
    }
    for found in found {
        for (at, link) in found.links {
            group.lead(at, link);
        }
        for (at, known) in found.details {
            group.details[at] = known;
            group.entries[at].id = u32::try_from(at).unwrap_or(0);
        }
        failed.extend(found.failures);
    }
    failed.sort_by_key(|(at, _)| *at);
    for (at, error) in failed {
        failures.push((group.name(&group.entries[at]).to_vec(), error));
    }
}

/// What a thread found, by the numbers of entries.
#[derive(Default)]
struct Found {
    links: Vec<(usize, Link)>,
    details: Vec<(usize, Attributes)>,
    failures: Vec<(usize, io::Error)>,
}

/// What is looked for, and where.
#[derive(Clone, Copy)]
struct Look<'a> {
    path: &'a Path,
    directory: &'a OpenDirectory,
    options: &'a Options,
    needs: Needs,
    unknown_types: bool,
}

impl Look<'_> {
    fn part(self, names: &[u8], first: usize, entries: &mut [Entry], found: &mut Found) {
        for (offset, entry) in entries.iter_mut().enumerate() {
            let start = entry.start as usize;
            let name = &names[start..=start + entry.length as usize];
            // Every name was added with its NUL and holds no other.
            let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
            self.entry(name, first + offset, entry, found);
        }
    }

    fn entry(self, name: &CStr, at: usize, entry: &mut Entry, found: &mut Found) {
        let flags = match self.needs.status {
            None if self.unknown_types && entry.kind == EntryKind::Unknown => {
                Some(StatxFlags::TYPE)
            }
            flags => flags,
        };
        if let Some(flags) = flags {
            let status = if self.needs.follow {
                self.directory.target_status(name, flags)
            } else {
                self.directory.status(name, flags)
            };
            match status {
                Ok(status) => {
                    entry.take_status(&status, self.options.time);
                    if self.needs.details {
                        found.details.push((at, attributes(&status)));
                    }
                }
                Err(error) => {
                    entry.known = Known::Failed;
                    found.failures.push((at, error));
                    return;
                }
            }
        }
        if entry.kind == EntryKind::Link && (self.needs.targets || self.needs.target_modes) {
            let target =
                if self.needs.targets { self.directory.target(name) } else { Ok(Vec::new()) };
            match target {
                Ok(target) => {
                    let mode = self.needs.target_modes.then(|| {
                        let wanted = StatxFlags::TYPE | StatxFlags::MODE;
                        self.directory
                            .target_status(name, wanted)
                            .ok()
                            .map(|status| status.stx_mode)
                    });
                    found.links.push((at, Link { target, mode: mode.flatten() }));
                }
                Err(error) => found.failures.push((at, error)),
            }
        }
        let path = || self.path.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
        mark(&path, entry, self.needs);
    }
}

/// Looks for what is shown behind permissions.
fn mark(path: &impl Fn() -> std::path::PathBuf, entry: &mut Entry, needs: Needs) {
    // A byte is too short for any value, and so tells that there is one.
    let has = |attribute: &str| {
        let length = lgetxattr(path(), attribute, &mut [0_u8; 1]);
        matches!(length, Err(rustix::io::Errno::RANGE) | Ok(1))
    };
    if needs.acl && entry.kind != EntryKind::Link {
        let is_directory = entry.kind == EntryKind::Directory;
        if has("system.posix_acl_access") || (is_directory && has("system.posix_acl_default")) {
            entry.mark = Mark::Acl;
        }
    }
    if needs.capabilities
        && entry.kind == EntryKind::File
        && entry.mode & 0o111 != 0
        && has("security.capability")
    {
        entry.mark = Mark::Capability;
    }
}

/// Adds a file that was named on the command line.
///
/// # Errors
///
/// It cannot be looked at; nothing was added.
pub(super) fn named(
    path: &Path,
    group: &mut Group,
    options: &Options,
    needs: Needs,
) -> io::Result<()> {
    let flags = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let stat = |follow: AtFlags| statx(CWD, path, follow | AtFlags::NO_AUTOMOUNT, flags);
    let itself = || stat(AtFlags::SYMLINK_NOFOLLOW);
    let status = match options.dereference {
        Dereference::Never => itself()?,
        Dereference::Always | Dereference::Named => stat(AtFlags::empty())?,
        Dereference::NamedDirectories => match stat(AtFlags::empty()) {
            Ok(status) if EntryKind::from_mode(status.stx_mode) == EntryKind::Directory => status,
            Ok(_) | Err(rustix::io::Errno::NOENT) => itself()?,
            Err(error) => return Err(error.into()),
        },
    };
    let at = group.entries.len();
    let entry = group.add(path.as_os_str().as_bytes(), EntryKind::from_mode(status.stx_mode));
    entry.take_status(&status, options.time);
    entry.id = u32::try_from(at).unwrap_or(0);
    let mut entry = *entry;
    mark(&|| path.to_owned(), &mut entry, needs);
    group.entries[at] = entry;
    if needs.details {
        group.details.push(attributes(&status));
    }
    if entry.kind == EntryKind::Link && (needs.targets || needs.target_modes) {
        let target = readlinkat(CWD, path, Vec::new())?.into_bytes();
        let mode =
            needs.target_modes.then(|| stat(AtFlags::empty()).ok().map(|status| status.stx_mode));
        group.lead(at, Link { target, mode: mode.flatten() });
    }
    Ok(())
}
