//! `--follow`: what is there, and then what is added, removed and changed, a line each, until the user ends it.

use report::error::chain;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use listing::{AttributeSet, EntryId, Listing, ListingError, ListingRequest, Update};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::entry::{Group, Known, Link};
use super::options::Options;
use super::order::Order;
use super::print::{Change, Printer, TroubleLevel};
use super::read::{Needs, is_left_out};

/// Directories that are followed together.
struct Followed {
    path: PathBuf,
    listing: Listing,
    /// Names as they were last told, for those that are gone by the time they are to be told.
    told: HashMap<EntryId, Box<[u8]>>,
    /// Entries whose names arrived and whose attributes are waited for.
    fresh: HashSet<EntryId>,
    is_listed: bool,
    /// Why nothing more will come was said already.
    is_over: bool,
}

/// Lists directories and follows them until nothing is left to follow.
///
/// # Errors
///
/// The output cannot be written.
pub(super) fn run(
    paths: Vec<PathBuf>,
    options: &Options,
    needs: Needs,
    order: &Order,
    printer: &mut Printer<'_>,
) -> io::Result<()> {
    let mut all = Vec::new();
    for path in paths {
        let fields = fields(needs);
        // Whoever lists may have been started elsewhere.
        let whole = path.canonicalize().unwrap_or_else(|_| path.clone());
        match Listing::in_process(&ListingRequest::of(&whole).with_fields(fields).followed()) {
            Ok(listing) => all.push(Followed {
                path,
                listing,
                told: HashMap::new(),
                fresh: HashSet::new(),
                is_listed: false,
                is_over: false,
            }),
            Err(error) => end(&path, &error, printer),
        }
    }
    while !all.is_empty() {
        let mut ended = Vec::new();
        for (at, followed) in all.iter_mut().enumerate() {
            if let Err(error) = followed.take(options, needs, order, printer)? {
                if !followed.is_over {
                    end(&followed.path, &error, printer);
                }
                ended.push(at);
            } else if followed.is_over && followed.is_listed {
                ended.push(at);
            }
        }
        ended.into_iter().rev().for_each(|at| drop(all.remove(at)));
        wait(&all)?;
    }
    Ok(())
}

/// Tells why a directory is not followed any more.
fn end(path: &Path, error: &ListingError, printer: &mut Printer<'_>) {
    let error = io::Error::other(chain(error));
    printer.error("follow", path.as_os_str().as_bytes(), &error, TroubleLevel::Serious);
}

/// Waits until one of them has something new.
fn wait(all: &[Followed]) -> io::Result<()> {
    let descriptors = all.iter().filter_map(|followed| followed.listing.descriptor());
    let mut descriptors: Vec<PollFd<'_>> =
        descriptors.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)).collect();
    if descriptors.is_empty() {
        return Ok(());
    }
    match poll(&mut descriptors, None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What a listing is asked for to show what is needed.
fn fields(needs: Needs) -> AttributeSet {
    let mut fields = AttributeSet::NONE;
    if needs.has_status() {
        fields |= AttributeSet::DEFAULT
            | AttributeSet::LINKS
            | AttributeSet::BLOCKS
            | AttributeSet::DEVICE;
    }
    if needs.has_targets() {
        fields |= AttributeSet::TARGET;
    }
    fields
}

impl Followed {
    /// Takes in everything that has arrived, and prints it; the inner error ends this directory.
    fn take(
        &mut self,
        options: &Options,
        needs: Needs,
        order: &Order,
        printer: &mut Printer<'_>,
    ) -> io::Result<Result<(), ListingError>> {
        loop {
            let update = match self.listing.next(Some(std::time::Duration::ZERO)) {
                Ok(None) => return Ok(Ok(())),
                Ok(Some(update)) => update,
                Err(error) => return Ok(Err(error)),
            };
            match update {
                Update::Failed(failure) => {
                    let path = self.path.as_os_str().as_bytes();
                    if failure.is_remark() {
                        printer.warn("follow", path, &failure.error());
                        continue;
                    }
                    printer.error("follow", path, &failure.error(), TroubleLevel::Serious);
                    self.is_over = true;
                }
                Update::Done(_) if !self.is_listed => {
                    self.is_listed = true;
                    let ids = 0..self.listing.len();
                    let mut group = self.group(ids, options);
                    order.sort(&mut group);
                    if !self.is_over || !group.entries.is_empty() {
                        printer.group(&group, Some(&self.path))?;
                        printer.flush()?;
                    }
                }
                _ if !self.is_listed => (),
                Update::Names(ids) if needs.has_status() => self.fresh.extend(ids),
                Update::Names(ids) => self.tell(Change::Added, ids, options, printer)?,
                Update::Attributes(ids) => {
                    let (fresh, old): (Vec<EntryId>, Vec<EntryId>) =
                        ids.iter().partition(|id| self.fresh.remove(id));
                    self.tell(Change::Added, fresh, options, printer)?;
                    self.tell(Change::Changed, old, options, printer)?;
                }
                Update::Removed(ids) => {
                    for id in ids {
                        // One that came and went between two looks was never told of.
                        if self.fresh.remove(&id) {
                            continue;
                        }
                        if let Some(name) = self.told.remove(&id) {
                            let mut group = Group::default();
                            group.add(&name, self.listing.kind(id));
                            printer.change(Change::Removed, &group, &self.path)?;
                        }
                    }
                }
                Update::Renamed(ids) => {
                    for id in ids {
                        if let Some(name) = self.told.remove(&id) {
                            let mut group = Group::default();
                            group.add(&name, self.listing.kind(id));
                            printer.change(Change::Removed, &group, &self.path)?;
                        }
                        self.tell(Change::Added, [id], options, printer)?;
                    }
                }
                _ => (),
            }
        }
    }

    fn tell(
        &mut self,
        change: Change,
        ids: impl IntoIterator<Item = EntryId>,
        options: &Options,
        printer: &mut Printer<'_>,
    ) -> io::Result<()> {
        let group = self.group(ids, options);
        if group.entries.is_empty() { Ok(()) } else { printer.change(change, &group, &self.path) }
    }

    /// Puts what is known of entries together; what is gone or left out is not in it.
    fn group(&mut self, ids: impl IntoIterator<Item = EntryId>, options: &Options) -> Group {
        let mut group = Group::default();
        let entries = self.listing.entries();
        for id in ids {
            let name = entries.name(id);
            if entries.is_removed(id) || is_left_out(options, name) {
                continue;
            }
            self.told.insert(id, name.into());
            let at = group.entries.len();
            let entry = group.add(name, entries.kind(id));
            entry.id = u32::try_from(at).unwrap_or(0);
            let Some(known) = entries.attributes(id) else {
                if entries.failure(id).is_some() {
                    entry.known = Known::Failed;
                }
                group.details.push(listing::Attributes::default());
                continue;
            };
            if !known.fields.is_empty() {
                entry.take(&known, options.time);
            }
            group.details.push(known);
            if let Some(target) = entries.string(known.target) {
                let mode = (known.target_mode != 0).then_some(known.target_mode);
                group.lead(at, Link { target: target.to_vec(), mode });
            }
        }
        group
    }
}
