//! Who tidies up behind a measurement: a process that learns of each thing before it is made and takes all of them away when its input ends, however that comes about.

use std::fs;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use jobs::request_trace;
use serde::{Deserialize, Serialize};

use super::teardown;
use slowdisk::Queue;

/// Something that is not to stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    /// A cgroup, with all that runs in it.
    Cgroup(PathBuf),
    /// A trace of block requests.
    Trace(PathBuf),
    /// An empty directory.
    Directory(PathBuf),
    /// A directory with all that is in it.
    Tree(PathBuf),
    /// A disk whose queue was set like this.
    Queue {
        /// Its name in sysfs.
        disk: String,
        /// Its scheduler.
        scheduler: String,
        /// Its throttling target in microseconds.
        wbt_lat_usec: Option<u64>,
    },
}

impl Resource {
    fn take_away(&self) {
        // What is not there any more was taken away by the one who made it.
        match self {
            Resource::Cgroup(path) => teardown::clear(path, Duration::from_secs(5)),
            Resource::Trace(path) => request_trace::remove(path),
            Resource::Directory(path) => drop(fs::remove_dir(path)),
            Resource::Tree(path) => drop(fs::remove_dir_all(path)),
            Resource::Queue { disk, scheduler, wbt_lat_usec } => {
                let queue = Queue { scheduler: scheduler.clone(), wbt_lat_usec: *wbt_lat_usec };
                drop(queue.set(disk));
            }
        }
    }
}

/// Is the guardian: reads things, one a line, and takes them away in the opposite order when `input` ends.
pub fn guard(input: impl BufRead) {
    let mut things: Vec<Resource> = Vec::new();
    for line in input.lines().map_while(Result::ok) {
        // A line that was cut off was of something that was not made yet.
        things.extend(serde_json::from_str::<Resource>(&line));
    }
    for thing in things.iter().rev() {
        thing.take_away();
    }
}

/// The guardian, seen by the one that it watches. Dropping it has everything taken away.
#[derive(Debug)]
pub struct Guardian {
    child: Child,
}

impl Guardian {
    /// Starts `command`, which calls [`guard`] with its standard input.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn start(command: &[String]) -> io::Result<Guardian> {
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null());
        // A Ctrl-C is for the one that it watches, whose end it sees.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        Ok(Guardian { child: command.spawn()? })
    }

    /// Tells it of a thing that is about to be made.
    ///
    /// # Errors
    ///
    /// It has ended.
    pub fn tell(&mut self, thing: &Resource) -> io::Result<()> {
        let mut line = serde_json::to_vec(thing)?;
        line.push(b'\n');
        let Some(stdin) = &mut self.child.stdin else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        stdin.write_all(&line)
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_was_told_is_taken_away_the_last_first() {
        let parent = tempfile::tempdir().unwrap();
        let (outer, inner) = (parent.path().join("outer"), parent.path().join("outer/inner"));
        fs::create_dir_all(&inner).unwrap();
        let mut input = Vec::new();
        for path in [&outer, &inner, &parent.path().join("never made")] {
            serde_json::to_writer(&mut input, &Resource::Directory(path.clone())).unwrap();
            input.push(b'\n');
        }
        input.extend_from_slice(b"{\"directory\":\"/et");
        guard(&input[..]);
        assert!(!outer.exists() && parent.path().exists());
    }
}
