//! The log of commands, written by a thread of its own: a disk that hangs holds up no command.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use session::host::log::{End, Entry, Outcome, Process, Writer};

/// The sending side.
#[derive(Debug)]
pub(super) struct Log {
    lines: Option<Sender<Line>>,
    /// What the thread was not told yet.
    held: Vec<Line>,
    next: u64,
    thread: Option<JoinHandle<()>>,
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
        let thread = thread.spawn(move || write(writer, &taken));
        if let Err(error) = &thread {
            tracing::warn!(%error, "cannot log host commands");
        }
        Log { lines: Some(lines), held: Vec::new(), next: 0, thread: thread.ok() }
    }

    /// Takes it that a command was asked for and returns its number, which counts from our start; [`Log::flush`] writes it.
    pub(super) fn begin(&mut self, mut entry: Entry) -> u64 {
        entry.id = self.next;
        self.next += 1;
        let id = entry.id;
        self.held.push(Line::Begin(entry));
        id
    }

    /// Takes it that a command ended; [`Log::flush`] writes it.
    pub(super) fn end(&mut self, id: u64, end: End) {
        self.held.push(Line::End(id, end));
    }

    /// Has what was taken written.
    pub(super) fn flush(&mut self) {
        for line in self.held.drain(..) {
            if let Some(lines) = &self.lines {
                // Without a thread there is no log, which was said.
                let _ = lines.send(line);
            }
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // What was told is written before we end.
        self.flush();
        drop(self.lines.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
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
