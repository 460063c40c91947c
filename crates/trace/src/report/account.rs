//! The account of a main thread's time in a report: what all of it went to, and its longest blocks.

use serde::{Deserialize, Serialize};

/// A time divided into what it went to; the parts are all of it, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct TimeParts {
    /// On a processor.
    pub processor_ns: u64,
    /// Ready to run, without a processor.
    pub ready_ns: u64,
    /// Waiting for pages of memory that are read from a disk.
    pub fault_ns: u64,
    /// Blocked in calls that are stalls.
    pub call_ns: u64,
    /// Waiting for operations of `io_uring`.
    #[serde(default)]
    pub ring_ns: u64,
    /// Blocked in waits for locks.
    pub lock_ns: u64,
    /// Taking memory back before it got some, on a processor and blocked.
    #[serde(default)]
    pub reclaim_ns: u64,
    /// Reading its own memory back from swap, on a processor and blocked.
    #[serde(default)]
    pub swap_ns: u64,
    /// Stopped by a signal, or frozen.
    pub stopped_ns: u64,
    /// Waiting for something to do.
    pub idle_ns: u64,
    /// Waiting for children that are in the report themselves.
    pub child_ns: u64,
    /// Stopped by the tracer; an estimate.
    pub tracer_ns: u64,
    /// Not explained.
    pub unknown_ns: u64,
}

impl TimeParts {
    /// Returns each part with what it is called, in the order in which they are shown.
    #[must_use]
    pub fn named(&self) -> [(&'static str, u64); 13] {
        [
            ("on a processor", self.processor_ns),
            ("ready, without a processor", self.ready_ns),
            ("waiting for pages from a disk", self.fault_ns),
            ("blocked in calls", self.call_ns),
            ("waiting for io_uring", self.ring_ns),
            ("waiting for locks", self.lock_ns),
            ("reclaiming memory", self.reclaim_ns),
            ("swapping in", self.swap_ns),
            ("stopped or frozen", self.stopped_ns),
            ("idle", self.idle_ns),
            ("waiting for children", self.child_ns),
            ("stopped by the tracer", self.tracer_ns),
            ("not explained", self.unknown_ns),
        ]
    }
}

/// The time from one moment at which a thread had nothing to do to the next: an event loop could not go on meanwhile.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct TimeBlock {
    /// When it began, in nanoseconds since the recording did.
    pub at_ns: u64,
    /// How long it took, without the time in which the tracer stopped the thread.
    pub wall_ns: u64,
    /// What it went to.
    #[serde(flatten)]
    pub parts: TimeParts,
    /// The function that most of its samples on a processor were in: an index into the report's frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame: Option<u32>,
    /// How much time on a processor those samples stand for.
    #[serde(default)]
    pub frame_ns: u64,
    /// What it waited for in calls that were each too short to be recorded, the longest waits first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub short_calls: Vec<ShortCallRow>,
}

/// Calls that were each too short to be recorded, and together were not. All is known from samples.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct ShortCallRow {
    /// The call: an index into the report's calls.
    pub call: u32,
    /// What they worked on most: an index into the report's targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<u32>,
    /// On how many other objects samples were seen.
    #[serde(default, skip_serializing_if = "is_none")]
    pub more_targets: u32,
    /// The function to blame: an index into the report's frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame: Option<u32>,
    /// About how many there were.
    pub count: u64,
    /// About how long they were blocked together, in nanoseconds.
    pub wall_ns: u64,
}

/// Samples of one function on a processor.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct ProcessorShare {
    /// The function: an index into the report's frames.
    pub frame: u32,
    /// How many samples.
    pub count: u64,
    /// How much time they stand for.
    pub wall_ns: u64,
}

/// Pages of one file that were read from a disk while the thread waited.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PageShare {
    /// The file; none for memory without one, which was in swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The function that touched most of them: an index into the report's frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame: Option<u32>,
    /// How many waits.
    pub count: u64,
}

/// Work of the kernel in the thread because memory was short.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct MemoryRow {
    /// `reclaim`, `compaction` or `swap-in`.
    pub work: String,
    /// How often.
    pub count: u64,
    /// How long, without the time in which the thread had no processor. A reclaim inside of a swap-in is in both.
    pub wall_ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// Pages that were taken back.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pages: u64,
    /// The swap that was read from: a device or a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap: Option<String>,
    /// The function that most of the time went to: an index into the report's frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame: Option<u32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_none(count: &u32) -> bool {
    *count == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// All of a main thread's time.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct TimeAccount {
    /// How long the thread was recorded.
    pub wall_ns: u64,
    /// What that went to.
    #[serde(flatten)]
    pub parts: TimeParts,
    /// How often it waited for pages that were read from a disk.
    pub page_faults: u64,
    /// Blocks longer than a frame.
    pub missed: u64,
    /// Frames that could not be drawn in those.
    pub frames: u64,
    /// The longest blocks, the longest first.
    pub blocks: Vec<TimeBlock>,
    /// The functions that ran on a processor, by samples; empty where the kernel allows none.
    pub functions: Vec<ProcessorShare>,
    /// The files whose pages were waited for.
    pub pages: Vec<PageShare>,
    /// What a shortage of memory cost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<MemoryRow>,
    /// Its waits in calls that were each too short to be recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub short_calls: Vec<ShortCallRow>,
    /// How long it was blocked in all of those, in nanoseconds; a part of the parts above.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub short_calls_ns: u64,
    /// What could not be seen, with what would allow it.
    pub unseen: Vec<String>,
    /// The language whose runtime had the thread rest while the program's functions waited, or ran in others: what those waited
    /// for is not in the account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
}

impl TimeAccount {
    /// Returns the file that at least half of the pages were of that were waited for. Where most were of no file, such as those in
    /// swap, there is none.
    #[must_use]
    pub fn file_of_most_pages(&self) -> Option<&str> {
        let all = self.pages.iter().fold(0_u64, |sum, page| sum.saturating_add(page.count));
        let most = self.pages.iter().max_by_key(|page| page.count)?;
        most.file.as_deref().filter(|_| most.count.saturating_mul(2) >= all)
    }
}

impl TimeAccount {
    /// Says that the account is not of the program's functions, if a runtime had them wait elsewhere.
    #[must_use]
    pub fn elsewhere(&self) -> Option<String> {
        let runtime = self.runtime.as_ref()?;
        Some(format!(
            "{runtime} runs the program's functions in threads of its own choice: what those wait for is not in this thread's time"
        ))
    }

    /// Returns the longest block.
    #[must_use]
    pub fn longest(&self) -> Option<&TimeBlock> {
        self.blocks.first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_only_if_most_of_the_pages_were_of_it() {
        let most = |rows: &[(Option<&str>, u64)]| {
            let row = |(file, count): &(Option<&str>, u64)| PageShare {
                file: file.map(str::to_owned),
                frame: None,
                count: *count,
            };
            let pages = rows.iter().map(row).collect();
            let account = TimeAccount { pages, ..TimeAccount::default() };
            account.file_of_most_pages().map(str::to_owned)
        };
        assert_eq!(most(&[]), None);
        assert_eq!(most(&[(Some("/a"), 3), (Some("/b"), 2), (None, 1)]).as_deref(), Some("/a"));
        // Seen with a program in swap, of which 5 of 9,611 pages were of the C library.
        assert_eq!(most(&[(None, 9604), (Some("/usr/lib/libc.so.6"), 5), (Some("/m"), 2)]), None);
        assert_eq!(most(&[(Some("/a"), 2), (Some("/b"), 2), (None, 1)]), None);
    }
}
