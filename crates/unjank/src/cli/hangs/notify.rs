//! Long hangs as notifications on the desktop.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use ::hangs::model::Hang;
use ::hangs::text::HangTextStyle;
use bus::client::blocking::BlockingClient;
use bus::client::{ClientError, Notification};
use report::figure;

use crate::cli::{screen, screen::sayln};
use crate::error::{Error, FailureCategory};

/// A hang is shown from this length on, in nanoseconds.
const SHOWN_NS: u64 = 2_000_000_000;
/// How long the server of notifications may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most programs whose notification takes the place of their last one.
const MOST_PROGRAMS: usize = 256;

/// Shows hangs. A notification takes the place of the last one about the same program; that of a hang which has ended takes the place of
/// the one that was shown while it went on.
#[derive(Debug)]
pub(super) struct HangNotifier {
    /// The number of each program's last notification.
    shown: BTreeMap<String, u32>,
    /// The numbers of the hangs that are shown as going on, with those of their notifications.
    going_on: BTreeMap<u64, u32>,
    /// What the last one failed with, which is told once.
    failed: Option<String>,
}

impl HangNotifier {
    /// Looks whether there is a session bus.
    ///
    /// # Errors
    ///
    /// There is none.
    pub(super) fn begin() -> Result<HangNotifier, Error> {
        connect().map_err(|error| {
            Error::new(FailureCategory::Config, "show notifications")
                .because(error)
                .hint("start it in a desktop session; without --notify hangs are printed")
        })?;
        Ok(HangNotifier { shown: BTreeMap::new(), going_on: BTreeMap::new(), failed: None })
    }

    /// Shows a long hang, once while it goes on and once when it has ended; what cannot be shown is told on stderr, once for each reason.
    ///
    /// # Errors
    ///
    /// stderr cannot be written to.
    pub(super) fn show(&mut self, hang: &Hang, style: &HangTextStyle<'_>) -> io::Result<()> {
        let earlier = self.going_on.get(&hang.number).copied();
        if hang.length_ns < SHOWN_NS || hang.goes_on && earlier.is_some() {
            return Ok(());
        }
        let (summary, body) = texts(hang, style);
        let of_program = self.shown.get(&hang.program).copied();
        let replaces = earlier.or(of_program).unwrap_or(0);
        let notification =
            Notification { program: "unjank", summary: &summary, body: &body, replaces };
        // Connected anew: the bus may have been started again since the last one.
        match connect().and_then(|bus| bus.notify(&notification)) {
            Ok(number) => {
                self.failed = None;
                if self.shown.len() >= MOST_PROGRAMS {
                    self.shown.clear();
                }
                self.shown.insert(hang.program.clone(), number);
                self.going_on.remove(&hang.number);
                if hang.goes_on {
                    if self.going_on.len() >= MOST_PROGRAMS {
                        // One of a recorder that was killed never ends.
                        self.going_on.pop_first();
                    }
                    self.going_on.insert(hang.number, number);
                }
            }
            Err(error) => {
                let text = report::error::chain(&error);
                if self.failed.as_ref() != Some(&text) {
                    sayln!(screen::stderr(), "cannot show hang {}: {text}", hang.number)?;
                    self.failed = Some(text);
                }
            }
        }
        Ok(())
    }
}

fn connect() -> Result<BlockingClient, ClientError> {
    let mut bus = BlockingClient::connect(None)?;
    bus.set_timeout(PATIENCE);
    Ok(bus)
}

/// Returns the line and the text of a notification.
fn texts(hang: &Hang, style: &HangTextStyle<'_>) -> (String, String) {
    let length = figure::duration(Duration::from_nanos(hang.length_ns));
    let program = style.others(&hang.program);
    let summary = match hang.goes_on {
        true => format!("{program} has not answered for {length}"),
        false => format!("{program} froze {length}"),
    };
    let mut body = style.reason(hang);
    if let Some(command) = style.command(hang) {
        body.push_str("\nTo mend it: ");
        body.push_str(&command);
    }
    body.push_str(&format!("\nunjank hangs show {}", hang.number));
    (summary, body)
}
