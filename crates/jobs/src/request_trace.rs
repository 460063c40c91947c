//! In which class the bytes of a disk really went out, where the kernel's trace of block requests can be read (root, usually).
//!
//! The event `block_rq_issue` tells the class of each request as it is given to the disk: the one thing that says whether a class reached the bytes. It tells of all writers of the disk, not of the job alone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::claim::{DirectoryClaim, of_nobody};

/// Bytes written to disks, by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct BytesWritten {
    /// In the idle class.
    pub idle_bytes: u64,
    /// In any other.
    pub other_bytes: u64,
    /// Requests that were not seen, because there were more than the kernel's buffer holds.
    pub lost: u64,
}

/// A trace of our own, beside all others. Dropping it removes it.
#[derive(Debug)]
pub struct RequestTrace {
    instance: PathBuf,
    _claim: Option<DirectoryClaim>,
    pipe: File,
    rest: Vec<u8>,
    written: BytesWritten,
}

/// Returns where a trace called `name` is, below the tracefs at `tracefs`.
#[must_use]
pub fn instance(tracefs: &Path, name: &str) -> PathBuf {
    tracefs.join("instances").join(name)
}

/// Removes the trace at `instance`, of somebody who could not.
pub fn remove(instance: &Path) {
    // It is not there: nothing was left.
    let _ = put(&instance.join("events/block/block_rq_issue/enable"), "0");
    let step = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
    for _ in 0..100 {
        match fs::remove_dir(instance) {
            // Its reader is on its way out.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                let _ = rustix::thread::nanosleep(&step);
            }
            Ok(()) | Err(_) => return,
        }
    }
}

/// Removes traces below the tracefs at `tracefs` that belong to nobody.
pub fn sweep(tracefs: &Path) {
    let Some((_alone, left)) = of_nobody(&tracefs.join("instances")) else { return };
    for trace in left {
        remove(&trace);
    }
}

impl RequestTrace {
    /// Starts to trace writes to the disk with device `number` (major, minor), in a trace called `name`.
    ///
    /// # Errors
    ///
    /// `EACCES`, `ENOENT`: the kernel's traces cannot be read here; nothing is left behind.
    pub fn start(tracefs: &Path, name: &str, number: (u32, u32)) -> io::Result<RequestTrace> {
        let instance = instance(tracefs, name);
        let making = instance.parent().and_then(DirectoryClaim::while_making_in);
        fs::create_dir(&instance)?;
        let claim = DirectoryClaim::of(&instance);
        drop(making);
        let opened = || {
            let event = instance.join("events/block/block_rq_issue");
            // The kernel's own number of a device: 20 bits for the minor one.
            put(&event.join("filter"), &format!("dev == {}", (number.0 << 20) | number.1))?;
            put(&instance.join("buffer_size_kb"), "2048")?;
            put(&event.join("enable"), "1")?;
            let flags = OFlags::NONBLOCK.bits().cast_signed();
            OpenOptions::new().read(true).custom_flags(flags).open(instance.join("trace_pipe"))
        };
        match opened() {
            Ok(pipe) => Ok(RequestTrace {
                instance,
                _claim: claim,
                pipe,
                rest: Vec::new(),
                written: BytesWritten::default(),
            }),
            Err(error) => {
                remove(&instance);
                Err(error)
            }
        }
    }

    /// Returns what has been written so far. To be called from time to time: the kernel keeps some tens of thousands of requests.
    pub fn written(&mut self) -> BytesWritten {
        let mut text = [0; 64 * 1024];
        while let Ok(len) = self.pipe.read(&mut text) {
            if len == 0 {
                break;
            }
            self.rest.extend_from_slice(text.get(..len).unwrap_or_default());
            let whole = self.rest.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
            for line in self.rest.get(..whole).unwrap_or_default().split(|&byte| byte == b'\n') {
                self.written.count(line);
            }
            self.rest.drain(..whole);
        }
        self.written
    }
}

impl BytesWritten {
    /// Counts the request that a line tells of:
    /// `… block_rq_issue: 254,0 W 4096 () 1234 + 8 idle,0,0 [dd]`.
    fn count(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        if let Some((_, lost)) = text.split_once("[LOST ") {
            let events = lost.split_ascii_whitespace().next();
            self.lost += events.and_then(|number| number.parse::<u64>().ok()).unwrap_or(1);
            return;
        }
        let Some((_, request)) = text.split_once("block_rq_issue: ") else { return };
        let mut words = request.split_ascii_whitespace().skip(1);
        let (Some(kind), Some(bytes)) = (words.next(), words.next()) else { return };
        let (true, Ok(bytes)) = (kind.contains('W'), bytes.parse::<u64>()) else { return };
        // The command of a request that is no read or write stands in parentheses, and may be several words.
        let class = words.find(|word| word.matches(',').count() == 2);
        if class.is_some_and(|class| class.starts_with("idle,")) {
            self.idle_bytes += bytes;
        } else {
            self.other_bytes += bytes;
        }
    }

    /// Returns the share of the idle class.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 52 bits")]
    pub fn share(&self) -> Option<f64> {
        let all = self.idle_bytes + self.other_bytes;
        (all > 0).then(|| self.idle_bytes as f64 / all as f64)
    }
}

impl Drop for RequestTrace {
    fn drop(&mut self) {
        // The pipe is still open, which holds the directory: it is closed first, by a file in its place.
        if let Ok(null) = File::open("/dev/null") {
            self.pipe = null;
        }
        remove(&self.instance);
    }
}

fn put(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_class() {
        let mut written = BytesWritten::default();
        for line in [
            "dd-1 [001] ..... 1.0: block_rq_issue: 254,0 W 4096 () 1234 + 8 idle,0,0 [dd]",
            "k-2 [001] ..... 1.0: block_rq_issue: 254,0 WFS 8192 () 8 + 16 be,0,4 [kworker/u8:1]",
            "k-2 [001] ..... 1.0: block_rq_issue: 254,0 R 512 () 8 + 1 idle,0,0 [cat]",
            "CPU:1 [LOST 17 EVENTS]",
            "k-2 [001] ..... 1.0: block_rq_issue: 254,0 FF 0 () 0 + 0 none,0,0 [jbd2]",
            "k-2 [001] ..... 1.0: block_rq_issue: 254,0 W",
            "nonsense",
        ] {
            written.count(line.as_bytes());
        }
        assert_eq!(written, BytesWritten { idle_bytes: 4096, other_bytes: 8192, lost: 17 });
        assert_eq!(written.share(), Some(4096.0 / 12288.0));
        assert_eq!(BytesWritten::default().share(), None);
    }
}
