//! `unjank ls`: GNU `ls`, option by option, faster where directories are large.
//!
//! Begin with [`Ls`], which is a command of clap or reads plain words, and [`Ls::run`]. README.md has an example.

mod arguments;
mod charset;
mod color;
mod columns;
mod entry;
mod environment;
mod follow;
mod glob;
mod json;
mod long;
mod moment;
mod name;
mod options;
mod order;
mod owners;
mod print;
mod quote;
mod read;
mod size;
mod template;
mod version;

use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args, Command, FromArgMatches};
use listing::EntryKind;
use sys::clock::{Clock, SystemClock};
use sys::dir::OpenDirectory;

use self::arguments::Given;
use self::entry::{Entry, Group};
use self::environment::Environment;
use self::moment::Moment;
pub use self::options::OptionError;
use self::options::{Hidden, Options};
use self::order::Order;
use self::print::Printer;
pub use self::print::TroubleLevel;
use self::read::Needs;

/// List directories, as GNU ls does.
#[derive(Clone, Debug)]
pub struct Ls {
    given: Vec<Given>,
    paths: Vec<PathBuf>,
}

impl Args for Ls {
    fn augment_args(command: Command) -> Command {
        arguments::add_to(command.about("List directories, as GNU ls does"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Ls::augment_args(command)
    }
}

impl FromArgMatches for Ls {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Ls, clap::Error> {
        let paths = matches.get_many::<OsString>("paths").into_iter().flatten();
        Ok(Ls { given: arguments::in_order(matches), paths: paths.map(PathBuf::from).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Ls::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Why nothing was listed, or not everything that was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LsError {
    /// An option has a value that cannot be used; nothing was read or written.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The output cannot be written; what was written before stands there.
    #[error(transparent)]
    Output(#[from] io::Error),
}

impl Ls {
    /// Reads a command line that needs none of clap's help; nothing for any other.
    #[must_use]
    pub fn plain(words: &[OsString]) -> Option<Ls> {
        arguments::read_plain(words).map(|(given, paths)| Ls { given, paths })
    }

    /// Lists on stdout, and returns how far errors reached, which are on stderr already.
    ///
    /// `warn` is given each sentence about a variable of the environment that cannot be used.
    ///
    /// # Errors
    ///
    /// An option or the output cannot be used.
    pub fn run(&self, warn: impl FnMut(&String)) -> Result<TroubleLevel, LsError> {
        let environment = Environment::read();
        let options = Options::new(&self.given, &environment)?;
        options.warnings.iter().for_each(warn);
        Ok(list(&options, &self.paths)?)
    }
}

/// Returns the time of day.
fn now() -> Moment {
    let since_1970 =
        SystemClock::start().now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Moment {
        seconds: i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX),
        nanos: since_1970.subsec_nanos(),
    }
}

/// Lists what was named, and what is in it.
fn list(options: &Options, paths: &[PathBuf]) -> io::Result<TroubleLevel> {
    let needs = Needs::of(options);
    let mut listing = Listing {
        options,
        needs,
        order: Order::new(options),
        printer: Printer::new(options, now),
        pending: VecDeque::new(),
        ancestors: HashSet::new(),
        headings: paths.len() > 1 || options.recursive,
        is_first: true,
    };
    if options.follow {
        let named = if paths.is_empty() { vec![PathBuf::from(".")] } else { paths.to_vec() };
        follow::run(named, options, needs, &listing.order, &mut listing.printer)?;
        return listing.printer.finish();
    }
    listing.named(paths)?;
    while let Some(pending) = listing.pending.pop_front() {
        listing.directory(&pending)?;
    }
    listing.printer.finish()
}

/// A directory that is still to be listed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pending {
    /// Named on the command line.
    Named(PathBuf),
    /// Found in another.
    Found(PathBuf),
    /// The end of what is below a directory.
    Left((u32, u32, u64)),
}

/// The work of one command.
struct Listing<'a> {
    options: &'a Options,
    needs: Needs,
    order: Order,
    printer: Printer<'a>,
    pending: VecDeque<Pending>,
    /// The directories above the one that is listed, by device and inode: none is listed in itself.
    ancestors: HashSet<(u32, u32, u64)>,
    headings: bool,
    is_first: bool,
}

impl Listing<'_> {
    /// Prints the files that were named, and remembers the directories.
    fn named(&mut self, paths: &[PathBuf]) -> io::Result<()> {
        let mut group = Group::default();
        let here = [PathBuf::from(".")];
        let named = if paths.is_empty() { &here } else { paths };
        if paths.is_empty() && !self.options.itself {
            self.pending.push_back(Pending::Named(PathBuf::from(".")));
            return Ok(());
        }
        for path in named {
            if let Err(error) = read::named(path, &mut group, self.options, self.needs) {
                let path = path.as_os_str().as_bytes();
                self.printer.error("access", path, &error, TroubleLevel::Serious);
            }
        }
        self.order.sort(&mut group);
        if !self.options.itself {
            let is_directory = |entry: &Entry| entry.kind == EntryKind::Directory;
            for entry in group.entries.iter().filter(|entry| is_directory(entry)) {
                let path = PathBuf::from(std::ffi::OsStr::from_bytes(group.name(entry)));
                self.pending.push_back(Pending::Named(path));
            }
            (group.elsewhere, group.entries) =
                group.entries.iter().partition(|entry| is_directory(entry));
        }
        if !group.entries.is_empty() {
            self.printer.group(&group, None)?;
            if !self.pending.is_empty() {
                self.printer.push(b'\n');
            }
            self.headings |= !self.pending.is_empty();
        }
        Ok(())
    }

    /// Prints what is in a directory.
    fn directory(&mut self, pending: &Pending) -> io::Result<()> {
        let (path, trouble) = match pending {
            Pending::Named(path) => (path, TroubleLevel::Serious),
            Pending::Found(path) => (path, TroubleLevel::Minor),
            Pending::Left(id) => {
                self.ancestors.remove(id);
                return Ok(());
            }
        };
        let bytes = path.as_os_str().as_bytes();
        let directory = match OpenDirectory::open(path) {
            Ok(directory) => directory,
            Err(error) => {
                self.printer.error("open directory", bytes, &error, trouble);
                return Ok(());
            }
        };
        let mut own = None;
        if self.options.recursive {
            match directory.own_status(rustix::fs::StatxFlags::INO) {
                Ok(status) => {
                    let id = (status.stx_dev_major, status.stx_dev_minor, status.stx_ino);
                    if !self.ancestors.insert(id) {
                        let error = io::Error::other("it is above itself");
                        self.printer.error("list again", bytes, &error, TroubleLevel::Serious);
                        return Ok(());
                    }
                    own = Some(id);
                }
                Err(error) => {
                    self.printer.error("access", bytes, &error, trouble);
                    return Ok(());
                }
            }
        }
        if self.headings {
            let is_first = std::mem::replace(&mut self.is_first, false);
            if !is_first && !matches!(self.options.layout, options::Layout::Template(_)) {
                self.printer.push(b'\n');
            }
            self.printer.heading(path);
        }
        let mut failures = Vec::new();
        let (mut group, read) =
            read::directory(path, &directory, self.options, self.needs, &mut failures);
        if let Err(error) = read {
            self.printer.error("read directory", bytes, &error, trouble);
        }
        for (name, error) in failures {
            let path = joined(path, &name);
            self.printer.error("access", path.as_os_str().as_bytes(), &error, TroubleLevel::Minor);
        }
        self.order.sort(&mut group);
        if let Some(own) = own {
            self.queue(&group, path, own);
        }
        let is_shown = !group.entries.is_empty()
            || !matches!(
                self.options.layout,
                options::Layout::Lines
                    | options::Layout::Down
                    | options::Layout::Across
                    | options::Layout::Commas
            )
            || self.options.blocks;
        if is_shown { self.printer.group(&group, Some(path)) } else { Ok(()) }
    }

    /// Puts the directories in a group before all others that are to be listed.
    fn queue(&mut self, group: &Group, path: &Path, own: (u32, u32, u64)) {
        self.pending.push_front(Pending::Left(own));
        for entry in group.entries.iter().rev() {
            let name = group.name(entry);
            let is_self = self.options.hidden == Hidden::Show && matches!(name, b"." | b"..");
            if entry.kind == EntryKind::Directory && !is_self {
                self.pending.push_front(Pending::Found(joined(path, name)));
            }
        }
    }
}

/// Returns the path of a name in a directory.
fn joined(directory: &Path, name: &[u8]) -> PathBuf {
    directory.join(std::ffi::OsStr::from_bytes(name))
}

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
