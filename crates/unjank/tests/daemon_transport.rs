//! The settings client's way to the bus, against the real service and ours.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use crate::fixture;

use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bus::client::BusTransport;
use fixture::{Bus, NAME, OURS, REAL, SET_A_B, USER, has, in_time, set};
use settings::client::{DatabaseSignal, SignalDelivery, Transport, TransportError};
use settings::profile;

/// What a client is told.
#[derive(Debug, PartialEq)]
enum Told {
    Answer(Result<String, TransportError>),
    Signal(DatabaseSignal),
}

/// Collects in one order what two callbacks are told.
struct Ear {
    transport: BusTransport,
    told: Arc<Mutex<mpsc::Sender<Told>>>,
    heard: Receiver<Told>,
}

impl Ear {
    fn new(bus: &Bus) -> Ear {
        let transport = BusTransport::start(Some(bus.address().to_owned()), None).unwrap();
        let (told, heard) = mpsc::channel();
        Ear { transport, told: Arc::new(Mutex::new(told)), heard }
    }

    fn watch(&self, path: &str) -> SignalDelivery {
        let told = Arc::clone(&self.told);
        let deliver = Arc::new(move |signal| {
            told.lock().unwrap().send(Told::Signal(signal)).unwrap();
        });
        self.transport.watch(profile::ProfileBus::Session, USER, path, deliver).unwrap()
    }

    fn change(&self, blob: &[u8]) {
        let told = Arc::clone(&self.told);
        let done = Box::new(move |result| {
            told.lock().unwrap().send(Told::Answer(result)).unwrap();
        });
        self.transport.change(USER, blob.to_vec(), done);
    }

    fn next(&self) -> Told {
        self.heard.recv_timeout(Duration::from_secs(30)).unwrap()
    }
}

fn notify(prefix: &str, tag: &str) -> Told {
    Told::Signal(DatabaseSignal::Notify {
        prefix: prefix.to_owned(),
        changes: vec![String::new()],
        tag: tag.to_owned(),
    })
}

fn answers_come_before_their_signals(program: &str) {
    let Some(bus) = Bus::start() else { return };
    let _service = bus.serve(program, &[]);
    let ear = Ear::new(&bus);
    let _watch = ear.watch("/");
    for (number, key) in ["/a", "/b/c", "/b/d"].into_iter().enumerate() {
        ear.change(&set(key, "x"));
        let Told::Answer(Ok(tag)) = ear.next() else { panic!("no answer to change {number}") };
        assert_eq!(ear.next(), notify(key, &tag));
    }
}

#[test]
fn from_the_real_service_answers_come_before_their_signals() {
    if has(&[REAL]) {
        in_time(|| answers_come_before_their_signals(REAL));
    }
}

#[test]
fn from_ours_answers_come_before_their_signals() {
    in_time(|| answers_come_before_their_signals(OURS));
}

#[test]
fn a_watch_hears_its_path_until_it_is_dropped() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let _service = bus.serve(OURS, &[]);
        let ear = Ear::new(&bus);
        let here = ear.watch("/here/");
        let there = ear.watch("/there/key");
        let others = bus.client();
        let mut tag = others.change(USER, &set("/here/key", "1")).unwrap();
        assert_eq!(ear.next(), notify("/here/key", &tag));
        drop(here);
        others.change(USER, &set("/here/key", "2")).unwrap();
        others.change(USER, &set("/there/other", "2")).unwrap();
        tag = others.change(USER, &set("/there/key", "2")).unwrap();
        assert_eq!(ear.next(), notify("/there/key", &tag));
        drop(there);
    });
}

#[test]
fn without_a_service_a_change_says_so() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let ear = Ear::new(&bus);
        ear.change(SET_A_B);
        let Told::Answer(Err(error)) = ear.next() else { panic!("a change without a service") };
        assert!(error.text.contains(NAME), "{error}");
        assert!(ear.transport.init(USER).is_err());
    });
}

#[test]
fn when_the_bus_dies_who_waits_is_told() {
    in_time(|| {
        let Some(mut bus) = Bus::start() else { return };
        let ear = Ear::new(&bus);
        let _watch = ear.watch("/");
        bus.kill();
        ear.change(SET_A_B);
        let Told::Answer(Err(error)) = ear.next() else { panic!("a change without a bus") };
        assert!(error.text.contains("bus"), "{error}");
    });
}
