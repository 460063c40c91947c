//! What the settings commands work with: the profile, its client, the bus, and a voice for what is noticed.

use report::error::chain;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bus::client::ClientError;
use bus::client::blocking::BlockingClient;
use settings::changeset::Changeset;
use settings::client::{
    ChangeCompletion, ChangeError, SettingsClient, SettingsReader, Transport, TransportError,
};
use settings::profile::SettingsProfile;
use sys::clock::{Clock, SystemClock};

use super::environment;
use crate::cli::screen::{self, sayln};
use crate::error::{Error, FailureCategory};

/// In whose words the command speaks on stderr.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MessageStyle {
    /// Our own.
    Unjank,
    /// Those of `dconf`, for the scripts that call it; with the name we were called by.
    Dconf(String),
}

/// One run of a settings command.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) profile: SettingsProfile,
    pub(super) client: SettingsClient,
    pub(super) reader: SettingsReader,
    pub(super) voice: MessageStyle,
}

impl Session {
    /// Opens the profile of this session and says what is wrong with it.
    pub(super) fn open(voice: MessageStyle) -> Session {
        let environment = environment::read();
        let profile = SettingsProfile::choose(&environment, None);
        let transport = Arc::new(SessionBus { voice: voice.clone(), client: OnceLock::new() });
        let client = SettingsClient::open(&profile, &environment, transport);
        let reader = client.reader();
        let session = Session { profile, client, reader, voice };
        session.warn();
        session
    }

    /// Says what was noticed since the last time.
    pub(super) fn warn(&self) {
        for warning in self.client.take_warnings() {
            self.voice.warn("dconf", "WARNING", &warning);
        }
    }

    /// Changes settings and waits until that is durable; `what` is what is being done, such as `write /a/b`.
    pub(super) fn change(&self, what: &str, changes: &Changeset) -> Result<(), Error> {
        let result = self.client.change_and_wait(changes);
        self.warn();
        let cannot = || Error::new(FailureCategory::Dconf, what);
        match result {
            Ok(_) => Ok(()),
            Err(ChangeError::Refused(error)) => Err(cannot()
                .because(error)
                .hint("changes need the settings service on the session bus; reading does not")),
            Err(ChangeError::NotWritable { key }) => {
                let text = "The operation attempted to modify one or more non-writable keys";
                let hint = match key.is_empty() || !self.profile.is_writable() {
                    true => "the profile has no database that can be written".to_owned(),
                    false => format!("{key} is locked: unjank settings list-locks /"),
                };
                Err(cannot().because(text).hint(hint))
            }
            Err(error) => Err(cannot().because(error)),
        }
    }
}

impl MessageStyle {
    /// Says what does not stop the command; in the words of `dconf` it looks as GLib prints it.
    pub(super) fn warn(&self, domain: &str, level: &str, text: &str) {
        let mut stderr = screen::stderr();
        // Nobody is left to be told when stderr is gone.
        let _ = match self {
            MessageStyle::Unjank => sayln!(stderr, "unjank: warning: {text}"),
            MessageStyle::Dconf(name) => {
                let pid = std::process::id();
                let now = jiff::Timestamp::try_from(SystemClock::start().now()).unwrap_or_default();
                let now = now.to_zoned(jiff::tz::TimeZone::system()).strftime("%H:%M:%S%.3f");
                writeln!(
                    stderr,
                    "\n({name}:{pid}): {domain}-{level} **: {now}: {}",
                    screen::shown(text)
                )
            }
        };
    }

    /// Returns the text of a failed call.
    pub(super) fn bus_error(&self, error: &ClientError) -> String {
        match (self, error) {
            (MessageStyle::Unjank, _) => chain(error),
            (MessageStyle::Dconf(_), ClientError::Refused { name, message }) => {
                format!("GDBus.Error:{name}: {message}")
            }
            (MessageStyle::Dconf(_), ClientError::NoBus(cause))
                if environment::names_a_session_bus() =>
            {
                format!("Could not connect: {}", last_cause(cause))
            }
            (MessageStyle::Dconf(_), ClientError::NoBus(_)) => {
                "Cannot autolaunch D-Bus without X11 $DISPLAY".to_owned()
            }
            (MessageStyle::Dconf(_), ClientError::TimedOut { .. }) => {
                "Timeout was reached".to_owned()
            }
            (MessageStyle::Dconf(_), _) => chain(error),
        }
    }
}

/// The bus of this session, connected to when it is needed first.
struct SessionBus {
    voice: MessageStyle,
    client: OnceLock<Result<Mutex<BlockingClient>, String>>,
}

impl SessionBus {
    fn call<T>(
        &self,
        call: impl FnOnce(&BlockingClient) -> Result<T, ClientError>,
    ) -> Result<T, TransportError> {
        let client = self.client.get_or_init(|| match BlockingClient::connect(None) {
            Ok(client) => Ok(Mutex::new(client)),
            Err(error) => Err(self.voice.bus_error(&error)),
        });
        match client {
            Ok(client) => {
                let client = client.lock().unwrap_or_else(PoisonError::into_inner);
                call(&client).map_err(|error| TransportError { text: self.voice.bus_error(&error) })
            }
            Err(text) => Err(TransportError { text: text.clone() }),
        }
    }
}

impl Transport for SessionBus {
    fn change(&self, object_path: &str, body: Vec<u8>, done: ChangeCompletion) {
        done(self.call(|client| client.change(object_path, &body)));
    }

    fn init(&self, object_path: &str) -> Result<(), TransportError> {
        self.call(|client| client.init(object_path))
    }
}

impl std::fmt::Debug for SessionBus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionBus").field("voice", &self.voice).finish_non_exhaustive()
    }
}

/// Returns what the system said, without what we say before it and the number that Rust adds.
fn last_cause(error: &io::Error) -> String {
    let text = error.to_string();
    let last = text.rsplit(": ").next().unwrap_or_default();
    last.split(" (os error ").next().unwrap_or_default().to_owned()
}
