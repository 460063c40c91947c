//! What a recorder that runs leaves out of what it stores: it has watched it before it was erased.
//!
//! The file has a line for each order, with the moment at which it was given, the span that was meant, and hashes of the names of the
//! program with the salt of the store, or `*` for all programs. It is removed when a recorder ends, and when one begins, which remembers
//! nothing.

use std::io;
use std::path::{Path, PathBuf};

use store::disk::Disk;
use store::publish::{is_link, publish};

use super::selection::{EraseSelection, MeantProgram, names_of, rest};
use crate::excluded::{self, salted_hash};
use crate::model::{HangRecord, without_helper};

/// The name of the file.
const NAME: &str = "forgotten";
/// The most orders that are kept, the newest.
const MOST: usize = 256;

/// What has been ordered.
#[derive(Debug, Default)]
pub(super) struct ForgottenRecords {
    salt: [u8; 16],
    /// The text of the file when it was last read.
    text: String,
    orders: Vec<ForgetOrder>,
}

#[derive(Debug, Eq, PartialEq)]
struct ForgetOrder {
    at_ns: u64,
    since_ns: u64,
    until_ns: u64,
    /// Hashes of the names, its own first; none if all programs are meant.
    names: Option<Vec<String>>,
}

impl ForgottenRecords {
    /// Reads the file again.
    pub(super) fn refresh(&mut self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        let text = read(disk, &path(dir))?;
        if text != self.text {
            self.salt = excluded::salt(disk, dir)?;
            self.orders = text.lines().filter_map(ForgetOrder::parse).collect();
            self.text = text;
        }
        Ok(())
    }

    /// Returns what is left of a record.
    pub(super) fn rest(&self, record: &HangRecord) -> Option<HangRecord> {
        let mut left = record.clone();
        for order in &self.orders {
            // What began later was not meant.
            let meets = |from_ns: u64, to_ns: u64| {
                from_ns < order.at_ns && to_ns >= order.since_ns && from_ns <= order.until_ns
            };
            let hash = |program: &str| salted_hash(self.salt, program);
            left = match &order.names {
                None => rest(left, &meets, None),
                Some(names) => {
                    let is = |program: &str| names.first() == Some(&hash(program));
                    let is_it = |program: &str| is(program) || is(without_helper(program));
                    let is_named = |program: &str| is_it(program) || names.contains(&hash(program));
                    rest(left, &meets, Some(&MeantProgram { is_it: &is_it, is_named: &is_named }))
                }
            }
            .0?;
        }
        Some(left)
    }
}

impl ForgetOrder {
    fn parse(line: &str) -> Option<ForgetOrder> {
        let mut words = line.split(' ');
        let mut number = || words.next()?.parse().ok();
        let (at_ns, since_ns, until_ns) = (number()?, number()?, number()?);
        let names: Vec<String> = words.map(str::to_owned).collect();
        let is_all = names == ["*"];
        (!names.is_empty()).then_some(ForgetOrder {
            at_ns,
            since_ns,
            until_ns,
            names: (!is_all).then_some(names),
        })
    }
}

/// Has a recorder that runs leave out what is meant and began before `now_ns`.
pub(super) fn note(
    disk: &dyn Disk,
    dir: &Path,
    selection: &EraseSelection,
    now_ns: u64,
) -> io::Result<()> {
    let path = path(dir);
    let names = match &selection.program {
        None => vec!["*".to_owned()],
        Some(program) => {
            let salt = excluded::salt(disk, dir)?;
            names_of(program).into_iter().map(|name| salted_hash(salt, name)).collect()
        }
    };
    let before = read(disk, &path)?;
    let (since_ns, until_ns) =
        (selection.since_ns.unwrap_or(0), selection.until_ns.unwrap_or(u64::MAX));
    let order = format!("{now_ns} {since_ns} {until_ns} {}", names.join(" "));
    // Everything is more than any order before it.
    let before = if selection.is_everything() { "" } else { &*before };
    let mut lines: Vec<&str> = before.lines().chain([&*order]).collect();
    lines.drain(..lines.len().saturating_sub(MOST));
    let text = format!("{}\n", lines.join("\n"));
    publish(disk, &path, text.as_bytes())
        .map(drop)
        .map_err(|error| io::Error::other(error.to_string()))
}

/// Removes the file: what began before this recorder is in the store alone.
pub(super) fn clear(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    match is_link(disk, &path(dir)) {
        Ok(_) => disk.remove(&path(dir)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn path(dir: &Path) -> PathBuf {
    dir.join(NAME)
}

/// Returns the text of the file; nothing of one that another program made.
fn read(disk: &dyn Disk, path: &Path) -> io::Result<String> {
    match is_link(disk, path) {
        Ok(true) => return disk.remove(path).map(|()| String::new()),
        Ok(false) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(error),
    }
    Ok(String::from_utf8_lossy(&disk.read(path)?).into_owned())
}
