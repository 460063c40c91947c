//! While the disk is slow, everything that does not need it is answered.
#![expect(clippy::disallowed_methods, reason = "a test may panic without a thread")]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use crate::fixture;

use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bus::server::{CallRecording, Takeover};
use daemon::{self, Config, Notifier, SettingsRole};
use fixture::{Bus, NAME, SET_A_B, USER, in_time, set};
use settings::engine::{DatabaseDirectories, EngineOptions};
use store::disk::Disk;
use sys::clock::SystemClock;

/// A disk that does not rename before it is told to.
#[derive(Debug)]
struct Gate {
    disk: Arc<dyn Disk>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    open: bool,
    waiting: bool,
}

impl Gate {
    fn new() -> Gate {
        Gate { disk: store::disk::real(), state: Mutex::default(), changed: Condvar::new() }
    }

    /// Waits until the daemon's disk thread stands at the gate.
    fn reached(&self) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| !state.waiting).unwrap());
    }

    fn open(&self) {
        self.state.lock().unwrap().open = true;
        self.changed.notify_all();
    }
}

impl Disk for Gate {
    store::pass_on!(this, path => this.disk;
        read stat read_link list create_dir create open open_log remove remove_abandoned try_lock token sync_dir);

    fn copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.copy(from, to)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        state.waiting = true;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.open).unwrap());
        self.disk.rename(from, to)
    }
}

#[test]
fn ping_and_introspection_are_answered_while_a_batch_waits_for_the_disk() {
    in_time(|| {
        let Some(mut bus) = Bus::start() else { return };
        let gate = Arc::new(Gate::new());
        let places = DatabaseDirectories {
            config: bus.dir().join("config/dconf"),
            flags: bus.dir().join("run/dconf"),
            volatile: bus.dir().join("run/dconf-service"),
            state: bus.dir().join("state/unjank/settings"),
        };
        let config = Config {
            settings: SettingsRole::Served,
            listings: None,
            host: None,
            recents: None,
            index: None,
            address: Some(bus.address().to_owned()),
            places,
            options: EngineOptions::default(),
            disk: gate.clone(),
            clock: Arc::new(SystemClock::start()),
            lock_dir: bus.dir().join("run/unjank"),
            takeover: Takeover::Never,
            idle_exit: None,
            blame: CallRecording::Off,
            notifier: Notifier::default(),
        };
        let daemon = std::thread::spawn(move || daemon::run(config));
        let mut client = bus.client();
        client.wait_for_owner(NAME).unwrap();
        client.set_timeout(Duration::from_secs(10));

        let address = bus.address().to_owned();
        let writer = std::thread::spawn(move || {
            let client = bus::client::blocking::BlockingClient::connect(Some(&address)).unwrap();
            client.change(USER, SET_A_B)
        });
        gate.reached();
        client.ping().unwrap();
        let introspect = client.run(async |client| {
            client
                .try_call(
                    NAME,
                    USER,
                    Some("org.freedesktop.DBus.Introspectable"),
                    "Introspect",
                    vec![],
                )
                .await
        });
        introspect.unwrap();
        assert!(!writer.is_finished(), "a change was answered before it was on disk");
        // The planted fault: what needs the disk is not answered, or nothing was held back at all.
        client.set_timeout(Duration::from_millis(100));
        client.change(USER, &set("/a/c", "x")).unwrap_err();

        gate.open();
        writer.join().unwrap().unwrap();
        bus.kill();
        daemon.join().unwrap().unwrap();
    });
}
