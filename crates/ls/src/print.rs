//! What is printed, and when: groups one after another, errors beside them, and the exit code at the end.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;

use jiff::tz::TimeZone;
use report::guard::{Content, Guard};
use report::paint::Paint;

use super::columns;
use super::entry::Group;
use super::json::Document;
use super::long::{self, Line, Widths};
use super::moment::{Moment, Times};
use super::name::Names;
use super::options::{Layout, Options};
use super::owners::Owners;
use super::quote::{Quoting, Style, Unprintable};
use super::template::Writer;

/// What is buffered is written at this size.
const FULL: usize = 128 << 10;
/// Lines are written by two threads from so many on.
const WORTH_A_THREAD: usize = 20_000;

/// How far an error reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TroubleLevel {
    /// All is well.
    None,
    /// Something in a directory could not be shown.
    Minor,
    /// Something that was named could not be.
    Serious,
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Added,
    Removed,
    Changed,
}

impl Change {
    fn mark(self) -> u8 {
        match self {
            Change::Added => b'+',
            Change::Removed => b'-',
            Change::Changed => b'~',
        }
    }

    fn word(self) -> &'static str {
        match self {
            Change::Added => "added",
            Change::Removed => "removed",
            Change::Changed => "changed",
        }
    }
}

/// Prints groups and errors.
#[derive(Debug)]
pub(super) struct Printer<'a> {
    pub(super) options: &'a Options,
    names: Names<'a>,
    owners: Owners,
    times: Times,
    writer: Writer,
    document: Option<Document>,
    out: Vec<u8>,
    trouble: TroubleLevel,
    /// What went wrong, for the document.
    errors: Vec<(&'static str, Vec<u8>, String)>,
}

impl<'a> Printer<'a> {
    /// Begins; `now` tells the time of day, by which recent times are told from others.
    pub(super) fn new(options: &'a Options, now: fn() -> Moment) -> Printer<'a> {
        let owners = if options.numeric { Owners::by_number() } else { Owners::by_name() };
        let needs_zone = matches!(options.layout, Layout::Long | Layout::Template(_));
        // Reading the zone's file is a good part of listing a small directory.
        let zone = if needs_zone {
            report::time_zone::local(options.time_zone.as_deref())
        } else {
            TimeZone::UTC
        };
        let times = Times::new(options.time_style.clone(), zone.clone(), now);
        let mut out = Vec::new();
        let document = (options.layout == Layout::Json).then(|| match options.follow {
            true => Document::events(),
            false => Document::begin(&mut out),
        });
        Printer {
            options,
            names: Names::new(options),
            owners,
            times,
            writer: Writer::new(&options.quoting, zone, now),
            document,
            out,
            trouble: TroubleLevel::None,
            errors: Vec::new(),
        }
    }

    /// Appends bytes as they are.
    pub(super) fn push(&mut self, byte: u8) {
        if self.document.is_none() {
            self.out.push(byte);
        }
    }

    /// Prints the heading of a directory.
    pub(super) fn heading(&mut self, directory: &Path) {
        if !matches!(self.options.layout, Layout::Json | Layout::Template(_)) {
            self.names.heading(directory, &mut self.out);
        }
    }

    /// Prints what is in `directory`, or what was named on the command line.
    ///
    /// # Errors
    ///
    /// The output cannot be written.
    pub(super) fn group(&mut self, group: &Group, directory: Option<&Path>) -> io::Result<()> {
        let place = directory.unwrap_or(Path::new(""));
        match &self.options.layout {
            Layout::Json => match &mut self.document {
                Some(document) if self.options.follow => {
                    for entry in &group.entries {
                        document.event("listed", group, entry, place, &mut self.out);
                    }
                }
                Some(document) => document.listing(group, directory, &mut self.out),
                None => (),
            },
            Layout::Template(template) => {
                for entry in &group.entries {
                    template.write(group, entry, directory, &mut self.writer, &mut self.out);
                    self.out.push(self.options.end);
                }
            }
            Layout::Long => {
                if directory.is_some() {
                    self.total(group);
                }
                self.lines(group, place)?;
            }
            _ => {
                if directory.is_some() && self.options.blocks {
                    self.total(group);
                }
                self.names.begin(group);
                columns::write(group, place, self.options, &mut self.names, &mut self.out);
            }
        }
        self.flush_at(FULL)
    }

    /// Prints what became of entries of a directory, and lets the reader see it at once.
    ///
    /// # Errors
    ///
    /// The output cannot be written.
    pub(super) fn change(
        &mut self,
        change: Change,
        group: &Group,
        directory: &Path,
    ) -> io::Result<()> {
        let options = self.options;
        let widths = Widths::of(group, options, &mut self.owners);
        self.names.begin(group);
        for entry in &group.entries {
            if let Some(document) = &mut self.document {
                document.event(change.word(), group, entry, directory, &mut self.out);
                continue;
            }
            self.out.extend([change.mark(), b' ']);
            match &options.layout {
                Layout::Template(template) if change != Change::Removed => {
                    template.write(group, entry, Some(directory), &mut self.writer, &mut self.out);
                }
                Layout::Long if change != Change::Removed => {
                    let mut line = Line {
                        options,
                        widths,
                        owners: &mut self.owners,
                        times: &mut self.times,
                        names: &mut self.names,
                    };
                    long::write(group, entry, directory, &mut line, &mut self.out);
                }
                // Of what is gone there is the name alone.
                _ => {
                    self.names.write(group, entry, directory, 0, &mut self.out);
                    self.out.extend(self.names.indicator(entry));
                }
            }
            self.out.push(options.end);
        }
        self.flush_at(0)
    }

    /// Lets the reader see what was printed.
    ///
    /// # Errors
    ///
    /// The output cannot be written.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.flush_at(0)
    }

    /// Prints how much a directory takes on the disk.
    fn total(&mut self, group: &Group) {
        let blocks: u128 = group.entries.iter().map(|entry| u128::from(entry.blocks)).sum();
        self.out.extend_from_slice(b"total ");
        self.options.block_style.write(blocks * 512, &mut self.out);
        self.out.push(self.options.end);
    }

    fn lines(&mut self, group: &Group, directory: &Path) -> io::Result<()> {
        let options = self.options;
        let widths = Widths::of(group, options, &mut self.owners);
        self.names.begin(group);
        let plain = options.colors.is_none() && !options.hyperlinks;
        if group.entries.len() < WORTH_A_THREAD || !plain {
            for entries in group.entries.chunks(1024) {
                let mut line = Line {
                    options,
                    widths,
                    owners: &mut self.owners,
                    times: &mut self.times,
                    names: &mut self.names,
                };
                for entry in entries {
                    long::write(group, entry, directory, &mut line, &mut self.out);
                    self.out.push(options.end);
                }
                self.flush_at(FULL)?;
            }
            return Ok(());
        }
        self.flush_at(0)?;
        self.lines_on_two_threads(group, directory, widths)
    }

    /// Writes every other part of the lines on a thread of its own.
    fn lines_on_two_threads(
        &mut self,
        group: &Group,
        directory: &Path,
        widths: Widths,
    ) -> io::Result<()> {
        let options = self.options;
        let parts: Vec<&[super::entry::Entry]> = group.entries.chunks(4096).collect();
        let (full, written) = std::sync::mpsc::sync_channel::<Vec<u8>>(2);
        let (mut owners, mut times) = (self.owners.clone(), self.times.clone());
        let mut other_names = self.names.again();
        std::thread::scope(|scope| {
            let odd = parts.iter().skip(1).step_by(2).copied();
            let other = sys::thread::spawn_scoped(scope, "ls-writer", move || {
                for entries in odd {
                    let mut out = Vec::with_capacity(entries.len() * 96);
                    let mut line = Line {
                        options,
                        widths,
                        owners: &mut owners,
                        times: &mut times,
                        names: &mut other_names,
                    };
                    for entry in entries {
                        long::write(group, entry, directory, &mut line, &mut out);
                        out.push(options.end);
                    }
                    // The other side is gone when the output cannot be written.
                    if full.send(out).is_err() {
                        return;
                    }
                }
            });
            let mut odd_next = written.into_iter();
            for (number, entries) in parts.iter().enumerate() {
                // Where there is no further thread, all lines are written here.
                if number % 2 == 1 && other.is_ok() {
                    if let Some(out) = odd_next.next() {
                        write_all(&out)?;
                    }
                    continue;
                }
                let mut line = Line {
                    options,
                    widths,
                    owners: &mut self.owners,
                    times: &mut self.times,
                    names: &mut self.names,
                };
                for entry in *entries {
                    long::write(group, entry, directory, &mut line, &mut self.out);
                    self.out.push(options.end);
                }
                write_all(&self.out)?;
                self.out.clear();
            }
            Ok(())
        })
    }

    /// Tells of something that went wrong: `cannot <what> <path>: <error>`.
    pub(super) fn error(
        &mut self,
        what: &'static str,
        path: &[u8],
        error: &io::Error,
        trouble: TroubleLevel,
    ) {
        self.trouble = self.trouble.max(trouble);
        let why = self.tell("cannot", what, path, error);
        self.errors.push((what, path.to_vec(), why));
    }

    /// Tells of something that is not all that was wanted, and no error: `cannot fully <what> <path>: <error>`.
    pub(super) fn warn(&mut self, what: &'static str, path: &[u8], error: &io::Error) {
        self.tell("cannot fully", what, path, error);
    }

    /// Writes a line on stderr, and returns why.
    #[expect(clippy::disallowed_methods, reason = "names are quoted as GNU ls does")]
    fn tell(&mut self, how: &str, what: &str, path: &[u8], error: &io::Error) -> String {
        // What was printed before comes before it on a terminal too; an error of that is met again at the end.
        if self.document.is_none() {
            let _ = self.flush_at(0);
        }
        let why = said(error);
        let mut line = format!("unjank: {how} {what} ").into_bytes();
        let quoting = Quoting {
            style: Style::ShellEscapeAlways,
            unprintable: Unprintable::QuestionMark,
            charset: self.options.quoting.charset.on_terminal(),
            ..self.options.quoting.clone()
        };
        quoting.write(path, &mut line);
        line.extend_from_slice(format!(": {why}\n").as_bytes());
        // Nobody is left to be told when stderr itself is gone.
        let _ = io::stderr().lock().write_all(&line);
        why
    }

    /// Writes everything that is left and returns how far errors reached.
    ///
    /// # Errors
    ///
    /// The output cannot be written.
    pub(super) fn finish(mut self) -> io::Result<TroubleLevel> {
        if let Some(document) = self.document.take().filter(|_| !self.options.follow) {
            document.end(&self.errors, &mut self.out);
        }
        self.names.end(&mut self.out);
        self.flush_at(0)?;
        Ok(self.trouble)
    }

    /// Writes what is buffered if it is more than `size` bytes.
    #[expect(clippy::disallowed_methods, reason = "what a terminal would obey is escaped here")]
    fn flush_at(&mut self, size: usize) -> io::Result<()> {
        if self.out.len() > size {
            if let (Layout::Json, Some(charset)) = (&self.options.layout, self.options.terminal) {
                let paint = Paint::new(false, charset);
                let mut out = Guard::new(io::stdout().lock(), paint, Content::Json);
                out.write_all(&self.out)?;
                out.flush()?;
            } else {
                write_all(&self.out)?;
            }
            self.out.clear();
        }
        Ok(())
    }
}

/// Returns what the system said, without the number that Rust adds.
pub(super) fn said(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error ").next().unwrap_or_default().to_owned()
}

/// Writes to stdout, past its own buffer: ours are large enough.
#[expect(clippy::disallowed_methods, reason = "names are quoted as GNU ls does")]
pub(super) fn write_all(mut bytes: &[u8]) -> io::Result<()> {
    let stdout = io::stdout();
    while !bytes.is_empty() {
        match rustix::io::write(stdout.as_fd(), bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(rustix::io::Errno::INTR) => (),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
