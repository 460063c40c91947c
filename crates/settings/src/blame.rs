//! Blame: the text that `dconf blame` prints, in bounded memory.

use std::collections::VecDeque;

/// Records calls while blame is on.
#[derive(Debug)]
pub struct CallLog {
    /// All calls, with a line between each two.
    text: String,
    /// Where each call ends, counted from the start of the record.
    ends: VecDeque<u64>,
    /// How much was dropped from the start.
    dropped: u64,
    most_bytes: usize,
}

/// One call to record.
#[derive(Clone, Copy, Debug)]
pub struct LoggedCall<'a> {
    /// The sender's unique bus name.
    pub sender: &'a str,
    /// The object that was called.
    pub object_path: &'a str,
    /// `Init`, `Change` or `Blame`.
    pub method: &'a str,
    /// The parameters as GVariant text.
    pub parameters: &'a str,
    /// The sender's process id, or why it is not known.
    pub pid: Result<u32, &'a str>,
}

/// What stands between two calls: a line of 68 signs.
const LINE: &str = "\n====================================================================\n";

/// The most bytes of one call's parameters that are kept.
pub const LONGEST_PARAMETERS: usize = 4096;

impl CallLog {
    /// Starts a record of at most `most_bytes` bytes; the oldest calls are dropped first, the latest never.
    #[must_use]
    pub fn new(most_bytes: usize) -> CallLog {
        CallLog { text: String::new(), ends: VecDeque::new(), dropped: 0, most_bytes }
    }

    /// Records one call; very long parameters are cut.
    pub fn record(&mut self, call: LoggedCall<'_>) {
        let pid = match call.pid {
            Ok(pid) => format!("PID: {pid}"),
            Err(why) => format!("Unable to acquire PID: {why}"),
        };
        let mut cut = call.parameters.len().min(LONGEST_PARAMETERS);
        while !call.parameters.is_char_boundary(cut) {
            cut -= 1;
        }
        let more = if cut < call.parameters.len() { "…" } else { "" };
        if !self.text.is_empty() {
            self.text.push_str(LINE);
        }
        let text = format!(
            "Sender: {}\nObject path: {}\nMethod: {}\nParameters: {}{more}\n{pid}\n",
            call.sender,
            call.object_path,
            call.method,
            &call.parameters[..cut],
        );
        self.text.push_str(&text);
        self.ends.push_back(self.dropped + self.text.len() as u64);
        if self.text.len() > self.most_bytes {
            self.shrink();
        }
    }

    /// Drops the oldest calls until half of the room is free, so that the rest is not moved at each call.
    fn shrink(&mut self) {
        let mut cut = 0;
        while self.text.len() - cut > self.most_bytes / 2 && self.ends.len() > 1 {
            let end = self.ends.pop_front().unwrap_or_default();
            cut = usize::try_from(end - self.dropped).unwrap_or_default() + LINE.len();
        }
        self.text.drain(..cut);
        self.dropped += cut as u64;
    }

    /// Returns everything that is still recorded, oldest first.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_is_bounded_and_keeps_the_latest() {
        let mut blame = CallLog::new(1000);
        for pid in 0..100 {
            blame.record(LoggedCall {
                sender: ":1.7",
                object_path: "/ca/desrt/dconf/Writer/user",
                method: "Change",
                parameters: "([byte 0x2f],)",
                pid: if pid == 99 { Ok(pid) } else { Err("gone") },
            });
        }
        let text = blame.text();
        assert!(text.len() < 1500);
        assert!(text.ends_with("Method: Change\nParameters: ([byte 0x2f],)\nPID: 99\n"), "{text}");
        assert!(text.starts_with("Sender: :1.7\nObject path: /ca/desrt/dconf/Writer/user\n"));
    }
}
