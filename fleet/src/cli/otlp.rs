//! `otlp --to URL`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use report::paragraph::counted;
use report::text::{Charset, json_escaped};
use rustix::event::{PollFd, Timespec, poll};
use unjank_export::otlp::client::{OtlpClient, UrlError, logs_url};
use unjank_export::otlp::events::request;
use unjank_export::otlp::sent::{SentHangs, read_sent};
use unjank_export::otlp::transfer::{
    BATCH, StoreReading, TransferError, TransferOutcome, send_pending,
};

use super::{AS_FAR, Failure, Session, print, say, state_directory};

/// How often the store is read for new hangs.
const INTERVAL: Duration = Duration::from_secs(5);
/// The first and the longest pause after a failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Send hangs as log events of OpenTelemetry to a Collector, each once
#[derive(Debug, Args)]
pub(super) struct Otlp {
    /// The Collector's address for OTLP/HTTP, such as http://127.0.0.1:4318.
    #[arg(long, value_name = "URL")]
    to: String,
    /// Print what would be sent, and send nothing.
    #[arg(long)]
    dry_run: bool,
    /// Go on with new hangs, and after outages, until it is stopped.
    #[arg(long, conflicts_with = "dry_run")]
    follow: bool,
}

/// Waits; a signal ends the program.
fn pause(length: Duration) {
    let length = Timespec {
        tv_sec: i64::try_from(length.as_secs()).unwrap_or(60),
        tv_nsec: length.subsec_nanos().into(),
    };
    let nothing: &mut [PollFd<'_>] = &mut [];
    // Whoever is woken early looks early.
    let _ = poll(nothing, Some(&length));
}

/// Returns the directory that says what was sent.
fn sent_directory() -> Result<PathBuf, Failure> {
    state_directory("hangs-export", "set HOME")
}

impl Otlp {
    pub(super) fn run(self, session: &Session) -> Result<(), Failure> {
        let url = logs_url(&self.to).map_err(|error| {
            let failure = Failure::new(format!("cannot send to {}: {error}", self.to));
            match error {
                UrlError::NoTls => failure
                    .hint("send to a Collector on this machine, which encrypts (docs/fleet.md)"),
                _ => failure,
            }
        })?;
        match self.dry_run {
            true => show(session, &url),
            false => self.send(session, &url),
        }
    }

    fn send(&self, session: &Session, url: &str) -> Result<(), Failure> {
        let stem = session.source.file_stem();
        let mut sent = SentHangs::open(&*session.disk, &sent_directory()?, &stem, url)
            .map_err(|error| Failure::of(&error))?;
        let client = OtlpClient::new(url);
        let mut pause_length = FIRST_PAUSE;
        let mut is_told = false;
        let mut outcome = TransferOutcome::default();
        loop {
            let files = session.store_files();
            // Who follows waits for what can be read.
            let stored = if self.follow { session.stored()? } else { session.stored_records()? };
            let may_end = session.may_end();
            let reading = StoreReading {
                stored: &stored,
                now_ns: session.now_ns(),
                may_end: &may_end,
                is_current: &|| session.store_files() == files,
            };
            let done = send_pending(
                &*session.disk,
                &client,
                &session.source,
                reading,
                &mut sent,
                &mut outcome,
            );
            if matches!(done, Ok(false)) {
                continue;
            }
            tell(&outcome, url, stored.damage().is_some(), self.follow || done.is_err())?;
            outcome = TransferOutcome::default();
            match done {
                Ok(_) if !self.follow => {
                    tell_unfinished(reading);
                    return Ok(());
                }
                Ok(_) => {
                    (pause_length, is_told) = (FIRST_PAUSE, false);
                    pause(INTERVAL);
                }
                Err(TransferError::Later { wait, why, .. }) if self.follow => {
                    if !is_told {
                        say(&format!("cannot send to {url} now: {why}; hangs wait in the store"));
                        is_told = true;
                    }
                    // A receiver that says 0 is not asked again and again without a pause.
                    pause(wait.unwrap_or(pause_length).clamp(FIRST_PAUSE, LONGEST_PAUSE));
                    pause_length = (pause_length * 2).min(LONGEST_PAUSE);
                }
                Err(error) => {
                    let failure = Failure::of(&error);
                    return Err(match error {
                        TransferError::Later { .. } => {
                            failure.hint("what was not taken waits in the store; run this again")
                        }
                        _ => failure,
                    });
                }
            }
        }
    }
}

/// Says what was sent; that it is nothing only at the end of a transfer.
fn tell(outcome: &TransferOutcome, url: &str, is_damaged: bool, goes_on: bool) -> io::Result<()> {
    let limit = if is_damaged { AS_FAR } else { "" };
    if outcome.sent > 0 {
        print(&format!("Sent to {url}: {}{limit}.", counted(outcome.sent, "hang")))?;
    } else if !goes_on {
        print(&format!("Nothing new for {url}{limit}."))?;
    }
    if outcome.rejected > 0 {
        say(&format!("{url} does not want {} of them: {}", outcome.rejected, outcome.reason));
    }
    Ok(())
}

/// Says how many hangs wait for their end.
fn tell_unfinished(reading: StoreReading<'_>) {
    match reading.count_unfinished() {
        0 => {}
        count => say(&format!("Not sent before its end: {}.", counted(count, "hang"))),
    }
}

/// Prints the requests in the JSON form of OTLP, one a line.
fn show(session: &Session, url: &str) -> Result<(), Failure> {
    let stored = session.stored_records()?;
    let stem = session.source.file_stem();
    let sent = read_sent(&*session.disk, &sent_directory()?, &stem, url)
        .map_err(|error| Failure::of(&error))?;
    let may_end = session.may_end();
    let reading = StoreReading {
        stored: &stored,
        now_ns: session.now_ns(),
        may_end: &may_end,
        is_current: &|| true,
    };
    let waiting = reading.pending(&session.source, |id| sent.contains(&id));
    for batch in waiting.chunks(BATCH) {
        let request = request(&session.source, batch);
        let text = serde_json::to_string_pretty(&request).map_err(io::Error::other)?;
        print_lines(&text)?;
    }
    let limit = if stored.damage().is_some() { AS_FAR } else { "" };
    let count = counted(waiting.len(), "hang");
    say(&format!("{count} would be sent to {url}{limit}; nothing was."));
    tell_unfinished(reading);
    Ok(())
}

/// Prints JSON; of control characters JSON itself escapes only those below U+0020.
#[expect(clippy::disallowed_methods, reason = "this is where the program prints")]
fn print_lines(text: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{}", json_escaped(text, Charset::Unicode))
}
