//! `unjank bus record`: traffic of one bus or several into a file.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use capture::capture::RecordFormat;
use capture::record::{
    self, BusRecorder, LaneEnd, Output, ROOM, RecordOptions, RecordWriteError, RecordingLimits,
    RecordingSummary, Why,
};
use clap::{Args, ValueEnum};
use report::figure::Quantity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sys::clock::SystemClock;
use tokio::sync::oneshot;

use super::buses::{Asks, Buses, told};
use super::output::create;
use super::until::{First, StopCondition};
use crate::cli::screen;
use crate::error::{Error, FailureCategory, Verdict};

/// How often the line on the screen changes.
const INTERVAL: Duration = Duration::from_millis(500);
/// How long the last messages may take to be written; what blocks a pipe is given up long before.
const PATIENCE: Duration = Duration::from_secs(20);

/// Record D-Bus traffic into a file, until Ctrl-C.
///
/// The file contains every message unchanged, and the identities of the connections. The bus never waits for the
/// disk. Exits with 0 when the recording or the bus ended, 2 on an error.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank bus record -o session.pcapng --for 10s")]
pub(super) struct Record {
    /// The file, which must not exist; - is standard output.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    buses: Buses,
    /// Stop after this time, for example 10s.
    #[arg(long = "for", value_name = "TIME", value_parser = ::report::duration::parse)]
    time: Option<Duration>,
    /// Stop before the file exceeds this size, for example 100M.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_size: Option<u64>,
    /// The format; by default from the file's suffix, else pcapng.
    #[arg(long, value_name = "FORMAT")]
    format: Option<OutputFormat>,
    /// Memory for unwritten messages; further ones are dropped and counted.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value_t = u64::try_from(ROOM).unwrap_or(0), hide_default_value = true)]
    room: u64,
}

/// A format that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputFormat {
    /// Nanoseconds, several buses, identities of connections, number of dropped messages.
    Pcapng,
    /// The format of dbus-monitor --pcap.
    Pcap,
}

impl OutputFormat {
    /// Returns the format that was chosen, or that the name of a file says.
    pub(super) fn chosen(format: Option<OutputFormat>, path: &Path) -> OutputFormat {
        let is_pcap = path.extension().is_some_and(|ending| ending == "pcap");
        format.unwrap_or(if is_pcap { OutputFormat::Pcap } else { OutputFormat::Pcapng })
    }

    pub(super) fn format(self) -> RecordFormat {
        match self {
            OutputFormat::Pcapng => RecordFormat::Pcapng,
            OutputFormat::Pcap => RecordFormat::Pcap,
        }
    }
}

impl Record {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let format = OutputFormat::chosen(self.format, &self.output);
        let asks = if format == OutputFormat::Pcap { Asks::AmongMessages } else { Asks::First };
        let sources = self.buses.watch(asks)?;
        if format == OutputFormat::Pcap && sources.len() > 1 {
            return Err(Error::new(FailureCategory::User, "record several buses into a pcap file")
                .hint("use --format pcapng, which holds any number of buses"));
        }
        let what = Buses::describe(&sources);
        let file = create(&self.output)?;
        let output = Output::new(file, format.format())?;
        let options = RecordOptions {
            room: usize::try_from(self.room).unwrap_or(usize::MAX),
            ..RecordOptions::default()
        };
        let clock = Arc::new(SystemClock::start());
        // It forks, so it comes before everything that needs threads or catches signals.
        let recorder = BusRecorder::start_in_child(sources, &options, clock).map_err(told)?;
        let recorder = Arc::new(recorder);
        let mut until = StopCondition::listen()?;
        let limits = RecordingLimits { size: self.max_size };
        let (sender, mut done) = oneshot::channel();
        let taken = Arc::clone(&recorder);
        sys::thread::spawn("bus-writer", move || {
            let result = record::write(&taken, output, &limits);
            drop(taken);
            // Nobody waits for it any more if this fails.
            let _ = sender.send(result);
        })
        .map_err(|error| Error::new(FailureCategory::Config, "start recording").because(error))?;
        let screen = Screen::start(&format!("Recording {what}; Ctrl-C ends it."));
        let first = until.wait(&mut done, self.time, screen.interval(), || {
            screen.show(&recorder);
        });
        let result = match first {
            First::Done(result) => result,
            First::Asked => {
                recorder.stop();
                until.finish(done, PATIENCE)
            }
        };
        screen.clear();
        self.end(recorder, result, &screen)
    }

    /// Says what is in the file, and what is not.
    fn end(
        &self,
        recorder: Arc<BusRecorder>,
        result: Option<Result<RecordingSummary, RecordWriteError>>,
        screen: &Screen,
    ) -> Result<Verdict, Error> {
        let cannot =
            || Error::new(FailureCategory::Config, format!("write {}", self.output.display()));
        // What the bus still held is read, and counted, before anything is said.
        let so_far = recorder.tally();
        let finished = Arc::into_inner(recorder).map(BusRecorder::finish);
        let (tally, ends) = finished.unwrap_or((so_far, Vec::new()));
        let ended = match result {
            Some(Ok(ended)) => ended,
            Some(Err(RecordWriteError::Unfinished { messages, source })) => {
                let lost = tally.messages.saturating_sub(messages) + tally.dropped;
                let error = cannot().because(source);
                return Err(error
                    .hint(format!("the file contains {messages} messages, {lost} are missing")));
            }
            Some(Err(error)) => return Err(cannot().because(error)),
            None => return Err(cannot().because("the last messages could not be written in time")),
        };
        let is_all = ends.is_empty();
        if let Some((_, end)) = ends.iter().find(|(_, end)| matches!(end, LaneEnd::Killed { .. })) {
            let error =
                Error::new(FailureCategory::Config, "continue recording").because(end.to_string());
            return Err(error.hint(format!(
                "{} messages are in {}; later ones are missing",
                ended.messages,
                self.output.display()
            )));
        }
        for (_, end) in ends {
            if let LaneEnd::Broken(_) | LaneEnd::NoMessage(_) = end {
                screen.write(
                    &Error::new(FailureCategory::Config, "continue recording")
                        .because(end)
                        .to_string(),
                );
            }
        }
        let unwritten = tally.messages.saturating_sub(ended.messages);
        // What came after the file was long enough is not missing in it.
        let lost = if ended.why == Why::Over { unwritten } else { 0 } + tally.dropped;
        let size = Quantity::Size.show(approximate(ended.bytes));
        let dropped = match lost {
            0 => "none was dropped".to_owned(),
            1 => "1 was dropped for lack of room".to_owned(),
            lost => format!("{lost} were dropped for lack of room"),
        };
        let why = match ended.why {
            Why::Over if is_all => "",
            Why::Over => " The bus has ended.",
            Why::Size => " The file is as long as it may be.",
            Why::Closed => " Nobody reads any more.",
        };
        screen.say(&format!(
            "{} messages, {size}, in {}; {dropped}.{why}",
            ended.messages,
            self.output.display()
        ));
        Ok(Verdict::Yes)
    }
}

/// What a person sees meanwhile, on standard error.
struct Screen {
    is_terminal: bool,
}

impl Screen {
    fn start(text: &str) -> Screen {
        let screen = Screen { is_terminal: screen::is_error_terminal() };
        screen.say(text);
        screen
    }

    fn interval(&self) -> Option<Duration> {
        self.is_terminal.then_some(INTERVAL)
    }

    fn show(&self, recorder: &BusRecorder) {
        let tally = recorder.tally();
        let size = Quantity::Size.show(approximate(tally.bytes));
        self.write(&format!(
            "\r\x1b[K{} messages, {size}, {} dropped",
            tally.messages, tally.dropped
        ));
    }

    fn clear(&self) {
        if self.is_terminal {
            self.write("\r\x1b[K");
        }
    }

    fn say(&self, text: &str) {
        self.write(&format!("{}\n", screen::sentence(text)));
    }

    /// Writes if that does not wait: a terminal that was stopped must not keep us from ending.
    #[expect(clippy::disallowed_methods, reason = "what moves the cursor in the line is ours")]
    fn write(&self, text: &str) {
        let stderr = io::stderr();
        let mut polled = [PollFd::new(&stderr, PollFlags::OUT)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut polled, Some(&at_once)).is_ok_and(|ready| ready > 0) {
            // Nobody is left to be told when stderr is gone.
            let _ = stderr.lock().write_all(text.as_bytes());
        }
    }
}

/// A number as the nearest that a picture of it needs.
fn approximate(number: u64) -> f64 {
    u32::try_from(number >> 10).map_or(f64::INFINITY, |kib| {
        f64::from(kib) * 1024.0 + f64::from(u32::try_from(number & 1023).unwrap_or(0))
    })
}

/// Reads a size: `100M`, `64K`, `4096`.
pub(in crate::cli) fn size(text: &str) -> Result<u64, String> {
    let split = text.find(|letter: char| letter.is_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let shift = match unit {
        "" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        _ => return Err("expected a number with K, M or G, for example 100M".to_owned()),
    };
    let number: u64 = number.trim().parse().map_err(|_| format!("{number:?} is no number"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text} is too much"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_may_have_a_unit() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("64K"), Ok(65536));
        assert_eq!(size("1G"), Ok(1 << 30));
        for wrong in ["", "M", "-1", "1.5M", "9999999999999G", "1T"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_name_of_the_file_says_the_format() {
        let chosen = |format, path: &str| OutputFormat::chosen(format, path.as_ref());
        assert_eq!(chosen(None, "a.pcap"), OutputFormat::Pcap);
        assert_eq!(chosen(None, "a.pcapng"), OutputFormat::Pcapng);
        assert_eq!(chosen(None, "-"), OutputFormat::Pcapng);
        assert_eq!(chosen(Some(OutputFormat::Pcapng), "a.pcap"), OutputFormat::Pcapng);
    }
}
