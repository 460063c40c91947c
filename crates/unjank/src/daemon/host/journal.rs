//! The log of commands, written by a thread of its own: a disk that hangs holds up no command.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use session::host::log::{End, Entry, Outcome, Process, Writer};

/// The sending side.
#[derive(Debug)]
pub(super) struct Log {
    lines: Sender<Line>,
    next: u64,
}

#[derive(Debug)]
enum Line {
    Begin(Entry),
    End(u64, End),
}

impl Log {
    /// Starts the thread, which ends with this.
    pub(super) fn start(writer: Writer) -> Log {
        let (lines, taken) = channel();
        let thread = thread::Builder::new().name("host-log".to_owned());
        if let Err(error) = thread.spawn(move || write(writer, &taken)) {
            tracing::warn!(%error, "cannot log host commands");
        }
        Log { lines, next: 0 }
    }

    /// Writes that a command was asked for and returns its number, which counts from our start.
    pub(super) fn begin(&mut self, mut entry: Entry) -> u64 {
        entry.id = self.next;
        self.next += 1;
        let id = entry.id;
        // Without a thread there is no log, which was said.
        let _ = self.lines.send(Line::Begin(entry));
        id
    }

    /// Writes that a command ended.
    pub(super) fn end(&self, id: u64, end: End) {
        let _ = self.lines.send(Line::End(id, end));
    }
}

fn write(mut writer: Writer, lines: &Receiver<Line>) {
    let first = writer.next_id().unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot log host commands");
        0
    });
    let mut fails = false;
    while let Ok(line) = lines.recv() {
        let written = match line {
            Line::Begin(mut entry) => {
                entry.id += first;
                if let Outcome::Began(process) = &mut entry.outcome {
                    *process = Process::of(process.pid);
                }
                writer.begin(&entry)
            }
            Line::End(id, end) => writer.end(id + first, &end),
        };
        // Said once for each time that it begins to fail.
        if let Err(error) = &written
            && !fails
        {
            tracing::warn!(%error, "cannot log host commands");
        }
        fails = written.is_err();
    }
}
