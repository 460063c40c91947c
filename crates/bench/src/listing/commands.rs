//! Programs that list a directory for a person, timed from outside.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use super::Lab;
use crate::lab::{BenchError, Measuring};

/// A program to compare with, as the user named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingPeer {
    /// What it is called in the table.
    pub name: String,
    /// The program and its arguments; `{dir}` is the directory.
    pub command: Vec<String>,
}

/// Why a peer is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// There is no `=`, or nothing before or after it.
    #[error("give a name and a command, for example 'eza=eza -l {{dir}}'")]
    Form,
    /// The command does not say where the directory goes.
    #[error("the command has no {{dir}} for the directory")]
    NoDirectory,
}

impl ListingPeer {
    /// Reads `name=command`; the command is split at spaces, and no shell sees it.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<ListingPeer, PeerError> {
        let (name, command) = text.split_once('=').ok_or(PeerError::Form)?;
        let command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        if name.is_empty() || command.is_empty() {
            return Err(PeerError::Form);
        }
        if !command.iter().any(|word| word.contains("{dir}")) {
            return Err(PeerError::NoDirectory);
        }
        Ok(ListingPeer { name: name.to_owned(), command })
    }
}

/// Runs a command on a directory with its output thrown away, and returns how long it took in nanoseconds.
///
/// # Errors
///
/// It cannot be started, or does not end well.
pub(super) fn time(lab: &Lab<'_>, command: &[&str], dir: &Path) -> Result<f64, BenchError> {
    lab.go_on()?;
    let cannot = |cause: String| BenchError::Peer { program: command.join(" "), cause };
    let mut words = command.iter().map(|word| place(word, dir));
    let Some(program) = words.next() else { return Err(cannot("it is empty".to_owned())) };
    let mut run = Command::new(program);
    run.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // The same order and the same texts for all, whatever the caller's locale.
    run.env("LC_ALL", "C.UTF-8").env_remove("LS_COLORS");
    let (time, status) = lab.time(|| run.status());
    match status {
        Ok(status) if status.success() => Ok(time),
        Ok(status) => Err(cannot(status.to_string())),
        Err(error) => Err(cannot(error.to_string())),
    }
}

fn place(word: &str, dir: &Path) -> OsString {
    let mut placed = OsString::new();
    for (at, part) in word.split("{dir}").enumerate() {
        if at > 0 {
            placed.push(dir);
        }
        placed.push(part);
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_a_name_and_a_command_with_a_place_for_the_directory() {
        let peer = ListingPeer::parse("ls=ls -U {dir}/.").unwrap();
        assert_eq!((&*peer.name, peer.command.len()), ("ls", 3));
        assert_eq!(place("{dir}/.", Path::new("/a b")), "/a b/.");
        assert_eq!(ListingPeer::parse("ls -U"), Err(PeerError::Form));
        assert_eq!(ListingPeer::parse("=ls {dir}"), Err(PeerError::Form));
        assert_eq!(ListingPeer::parse("ls=ls"), Err(PeerError::NoDirectory));
    }
}
