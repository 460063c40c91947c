//! `otlp --to URL`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hangs::store::StoredHistory;
use report::paragraph::counted;
use report::text::{Charset, json_escaped};
use rustix::event::{PollFd, Timespec, poll};
use unjank_export::otlp::client::{OtlpClient, UrlError, logs_url};
use unjank_export::otlp::events::request;
use unjank_export::otlp::sent::{SentHangs, read_sent};
use unjank_export::otlp::transfer::{
    BATCH, StoreReading, TransferError, TransferOutcome, send_pending,
};
use unjank_export::watched_store::WatchedStore;

use super::facts::FactOptions;
use super::metric_sender::MetricSender;
use super::{AS_FAR, Failure, Session, StoreFiles, print, say, state_directory};

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
    /// Also send counts of hangs, the times that programs were followed, and the pressure on the machine, as metrics.
    #[arg(long)]
    metrics: bool,
    #[command(flatten)]
    facts: FactOptions,
}

/// What is sent to, and with what.
struct Receivers {
    hangs: OtlpClient,
    sent: SentHangs,
    metrics: Option<MetricSender>,
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
        if self.dry_run {
            return self.show(session, &url);
        }
        let stem = session.source.file_stem();
        let receivers = Receivers {
            sent: SentHangs::open(&*session.disk, &sent_directory()?, &stem, &url)
                .map_err(|error| Failure::of(&error))?,
            hangs: OtlpClient::new(&url),
            metrics: self.metrics.then(|| MetricSender::new(session, &url)),
        };
        match self.follow {
            true => self.follow(session, receivers),
            false => self.send(session, receivers),
        }
    }

    /// Sends what is there.
    fn send(&self, session: &Session, mut to: Receivers) -> Result<(), Failure> {
        let mut outcome = TransferOutcome::default();
        loop {
            let files = session.store_files();
            let stored = session.stored_records()?;
            let facts = self.facts.read(session, &stored)?;
            let may_end = session.may_end();
            let reading = StoreReading {
                facts: &facts,
                stored: &stored,
                now_ns: session.now_ns(),
                may_end: &may_end,
                is_current: &|| session.store_files() == files,
            };
            let done = to.send(session, reading, &mut outcome);
            if matches!(done, Ok(false)) {
                continue;
            }
            tell(&outcome, to.hangs.url(), stored.damage().is_some(), done.is_err())?;
            done.map_err(|error| {
                let failure = Failure::of(&error);
                match error {
                    TransferError::Later { .. } => {
                        failure.hint("what was not taken waits in the store; run this again")
                    }
                    _ => failure,
                }
            })?;
            tell_unfinished(reading);
            if let Some(metrics) = &mut to.metrics {
                metrics.count(session, &stored, &files);
                metrics.send(session, &facts)?;
            }
            return Ok(());
        }
    }

    /// Sends what is there and what comes. Who follows waits for what can be read.
    fn follow(&self, session: &Session, mut to: Receivers) -> Result<(), Failure> {
        let mut watched = WatchedStore::default();
        let mut facts = FollowedFacts::default();
        let mut pause_length = FIRST_PAUSE;
        let (mut is_told, mut is_at_rest) = (false, false);
        let mut outcome = TransferOutcome::default();
        loop {
            let files = session.store_files();
            let is_new = session.refresh(&mut watched)?;
            let stored = watched.stored();
            if is_new {
                session.tell_damage(stored);
            }
            let due = to.count(session, stored, &files, is_new);
            if !is_new && is_at_rest && !due {
                pause(INTERVAL);
                continue;
            }
            facts.refresh(&self.facts, session, stored)?;
            let may_end = session.may_end();
            let reading = StoreReading {
                facts: &facts.all,
                stored,
                now_ns: session.now_ns(),
                may_end: &may_end,
                is_current: &|| session.store_files() == files,
            };
            let done = to.send(session, reading, &mut outcome);
            if matches!(done, Ok(false)) {
                is_at_rest = false;
                continue;
            }
            tell(&outcome, to.hangs.url(), stored.damage().is_some(), true)?;
            outcome = TransferOutcome::default();
            if let Some(metrics) = to.metrics.as_mut().filter(|_| due) {
                metrics.send_on(session, &facts.all)?;
            }
            // What goes on may have ended although nothing was recorded.
            is_at_rest = done.is_ok() && reading.count_unfinished() == 0;
            match done {
                Ok(_) => {
                    (pause_length, is_told) = (FIRST_PAUSE, false);
                    pause(INTERVAL);
                }
                Err(TransferError::Later { url, wait, why }) => {
                    if !is_told {
                        say(&format!("cannot send to {url} now: {why}; hangs wait in the store"));
                        is_told = true;
                    }
                    // A receiver that says 0 is not asked again and again without a pause.
                    pause(wait.unwrap_or(pause_length).clamp(FIRST_PAUSE, LONGEST_PAUSE));
                    pause_length = (pause_length * 2).min(LONGEST_PAUSE);
                }
                Err(error) => return Err(Failure::of(&error)),
            }
        }
    }

    /// Prints the requests in the JSON form of OTLP, one a line.
    fn show(&self, session: &Session, url: &str) -> Result<(), Failure> {
        let files = session.store_files();
        let stored = session.stored_records()?;
        let stem = session.source.file_stem();
        let sent = read_sent(&*session.disk, &sent_directory()?, &stem, url)
            .map_err(|error| Failure::of(&error))?;
        let facts = self.facts.read(session, &stored)?;
        let may_end = session.may_end();
        let reading = StoreReading {
            facts: &facts,
            stored: &stored,
            now_ns: session.now_ns(),
            may_end: &may_end,
            is_current: &|| true,
        };
        let waiting = reading.pending(&session.source, |id| sent.contains(&id));
        for batch in waiting.chunks(BATCH) {
            let request = request(&session.source, &facts, batch);
            let text = serde_json::to_string_pretty(&request).map_err(io::Error::other)?;
            print_lines(&text)?;
        }
        let limit = if stored.damage().is_some() { AS_FAR } else { "" };
        let count = counted(waiting.len(), "hang");
        say(&format!("{count} would be sent to {url}{limit}; nothing was."));
        tell_unfinished(reading);
        if self.metrics {
            let mut metrics = MetricSender::new(session, url);
            metrics.count(session, &stored, &files);
            metrics.show(session, &facts, print_lines)?;
        }
        Ok(())
    }
}

/// The facts of a sender that follows, which are read anew for each request.
#[derive(Default)]
struct FollowedFacts {
    all: Vec<(String, String)>,
    is_read: bool,
    said: Option<String>,
}

impl FollowedFacts {
    /// Reads them. A file that a program writes at this moment may be no whole one: what was read before stays.
    fn refresh(
        &mut self,
        options: &FactOptions,
        session: &Session,
        stored: &StoredHistory,
    ) -> Result<(), Failure> {
        match options.read(session, stored) {
            Ok(all) => (self.all, self.is_read, self.said) = (all, true, None),
            Err(failure) if !self.is_read => return Err(failure),
            Err(failure) => {
                if self.said.as_ref() != Some(&failure.text) {
                    say(&failure.text);
                }
                self.said = Some(failure.text);
            }
        }
        Ok(())
    }
}

impl Receivers {
    fn send(
        &mut self,
        session: &Session,
        reading: StoreReading<'_>,
        outcome: &mut TransferOutcome,
    ) -> Result<bool, TransferError> {
        let (disk, source) = (&*session.disk, &session.source);
        send_pending(disk, &self.hangs, source, reading, &mut self.sent, outcome)
    }

    /// Counts what was read, if metrics are sent. Returns whether they are due.
    fn count(
        &mut self,
        session: &Session,
        stored: &StoredHistory,
        files: &StoreFiles,
        is_new: bool,
    ) -> bool {
        self.metrics.as_mut().is_some_and(|metrics| {
            match is_new {
                true => metrics.count(session, stored, files),
                false => metrics.note_unchanged(session),
            }
            metrics.is_due(session)
        })
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

/// Prints JSON; of control characters JSON itself escapes only those below U+0020.
#[expect(clippy::disallowed_methods, reason = "this is where the program prints")]
fn print_lines(text: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{}", json_escaped(text, Charset::Unicode))
}
