//! What the keys do in the live view, and how traffic comes into it.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::Duration;

use bus::client::CallOutcome;
use bus::client::blocking::BlockingClient;
use capture::filter::Filter;
use capture::introspection::Introspection;
use capture::live::{LiveView, Tab};
use capture::record::{BusRecorder, NextRecord as Taken};
use crossterm::event::{KeyCode, KeyEvent};
use report::paint::Paint;

use crate::keys::{self, Letters, Pressed};
use crate::screen::ViewControl;

/// How long a service may take to say what its arguments are called.
const ASKED: Duration = Duration::from_millis(300);
/// The most batches that are taken between two pictures, so that keys are heard in a flood.
const BATCHES: usize = 64;
/// Figures are counted anew after so many pictures.
const COUNTED: u32 = 10;

/// What is on the screen, and so what keys mean.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Mode {
    /// A list.
    List,
    /// The list while its filter is typed.
    Filter,
    /// All that is known of one message.
    Details,
    /// The name of a file to save into is typed.
    Save,
}

/// The live view.
pub struct TrafficBrowser {
    pub(super) view: LiveView,
    pub(super) title: String,
    pub(super) paint: Paint,
    pub(super) mode: Mode,
    pub(super) tab: Tab,
    /// The first row that is shown, and of the details the first line.
    pub(super) top: usize,
    /// How many rows fit; drawing finds it out.
    pub(super) page: usize,
    pub(super) details: Vec<String>,
    pub(super) scroll: usize,
    /// What is typed as the name of a file.
    pub(super) file: String,
    /// What the last key has done.
    pub(super) note: String,
    pub(super) is_over: bool,
    recorder: Option<BusRecorder>,
    known: Introspection,
    addresses: Vec<String>,
    clients: Vec<Option<BlockingClient>>,
    asked: BTreeSet<String>,
    pictures: u32,
}

impl TrafficBrowser {
    /// Begins without traffic.
    pub fn new(filter: Filter, typed: &str, title: String, paint: Paint) -> TrafficBrowser {
        TrafficBrowser {
            view: LiveView::new(filter, typed),
            title,
            paint,
            mode: Mode::List,
            tab: Tab::Messages,
            top: 0,
            page: 1,
            details: Vec::new(),
            scroll: 0,
            file: String::new(),
            note: String::new(),
            is_over: false,
            recorder: None,
            known: Introspection::default(),
            addresses: Vec::new(),
            clients: Vec::new(),
            asked: BTreeSet::new(),
            pictures: 0,
        }
    }

    /// Takes traffic from a recorder, names of arguments from what is known, and asks services at these addresses.
    pub fn with(
        mut self,
        recorder: BusRecorder,
        known: Introspection,
        addresses: Vec<String>,
    ) -> TrafficBrowser {
        self.recorder = Some(recorder);
        self.known = known;
        self.clients = addresses.iter().map(|_| None).collect();
        self.addresses = addresses;
        self
    }

    fn list(&mut self, code: KeyCode) -> ViewControl {
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return ViewControl::Leave,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('p') => self.view.pause(),
            KeyCode::Char('a') => self.view.turn_answers(),
            KeyCode::Char('c') => self.view.clear(),
            KeyCode::Char('w') => {
                self.file = "bus.pcapng".to_owned();
                self.mode = Mode::Save;
            }
            KeyCode::Char('G') => self.step(isize::MAX),
            KeyCode::Char('g') => self.step(isize::MIN),
            KeyCode::Enter if self.tab == Tab::Messages => self.open(),
            code => self.walk(code),
        }
        ViewControl::Stay
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.mode = Mode::List,
            KeyCode::Esc => {
                self.view.set_filter("");
                self.mode = Mode::List;
            }
            code => match keys::typed(self.view.typed(), code) {
                Some(typed) => self.view.set_filter(&typed),
                None => self.walk(code),
            },
        }
    }

    fn type_file(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => {
                self.note = self.save();
                self.mode = Mode::List;
            }
            KeyCode::Esc => self.mode = Mode::List,
            code => {
                if let Some(file) = keys::typed(&self.file, code) {
                    self.file = file;
                }
            }
        }
    }

    fn read(&mut self, code: KeyCode) -> ViewControl {
        match code {
            KeyCode::Char('q') => return ViewControl::Leave,
            KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace => self.mode = Mode::List,
            code => {
                let by = self.distance(code).unwrap_or(0);
                self.scroll = self.scroll.saturating_add_signed(by);
            }
        }
        ViewControl::Stay
    }

    fn walk(&mut self, code: KeyCode) {
        match self.distance(code) {
            Some(by) => self.step(by),
            None => self.turn(code),
        }
    }

    fn step(&mut self, by: isize) {
        if self.tab == Tab::Messages {
            self.view.step(by);
        } else {
            self.top = self.top.saturating_add_signed(by);
        }
    }

    /// Returns by how many rows a key moves, if it is one that moves.
    fn distance(&self, code: KeyCode) -> Option<isize> {
        let letters = if self.mode == Mode::Filter { Letters::Text } else { Letters::Keys };
        keys::distance(code, self.page, letters)
    }

    fn turn(&mut self, code: KeyCode) {
        let now = Tab::ALL.iter().position(|tab| *tab == self.tab).unwrap_or(0);
        let at = keys::tab(code, now, Tab::ALL.len());
        let Some(tab) = at.and_then(|at| Tab::ALL.get(at)) else { return };
        self.tab = *tab;
        self.top = 0;
        if self.tab != Tab::Messages {
            self.view.count();
        }
    }

    /// Shows all that is known of the message under the cursor.
    fn open(&mut self) {
        let Some(number) = self.view.selected() else { return };
        self.ask(number);
        self.details = self.view.live().details(number, &self.known);
        self.scroll = 0;
        self.mode = Mode::Details;
    }

    /// Asks the service what its arguments are called, once for each interface.
    fn ask(&mut self, number: u32) {
        let model = self.view.live().model();
        let Some(row) = model.row(number) else { return };
        let named = model.named(row);
        let text = |text| model.texts.get(text).to_owned();
        let (interface, path) = (text(named.interface), text(named.path));
        let peer = match named.kind {
            wire::MessageType::Signal => named.sender,
            _ => named.receiver,
        };
        let service = model.peers.get(peer).map(|peer| text(peer.unique)).unwrap_or_default();
        let bus = row.bus;
        if service.is_empty() || self.known.knows(&interface) || !self.asked.insert(interface) {
            return;
        }
        let at = usize::from(bus);
        let Some(address) = self.addresses.get(at) else { return };
        let Some(client) = self.clients.get_mut(at) else { return };
        if client.is_none() {
            let Ok(mut fresh) = BlockingClient::connect(Some(address)) else { return };
            fresh.set_timeout(ASKED);
            self.view.live_mut().is_ours(bus, fresh.unique_name());
            *client = Some(fresh);
        }
        let Some(client) = client else { return };
        let outcome = client.run(|client| async move {
            let interface = Some("org.freedesktop.DBus.Introspectable");
            client.try_call(&service, &path, interface, "Introspect", Vec::new()).await
        });
        // Who does not say has arguments without names.
        if let Ok(CallOutcome::Reply { text: Some(xml), .. }) = outcome {
            self.known.learn(&xml);
        }
    }

    /// Saves the messages that are shown, answers included, and says so.
    fn save(&self) -> String {
        let model = self.view.live().model();
        let mut numbers: Vec<u32> = Vec::new();
        for number in self.view.rows() {
            numbers.push(*number);
            numbers.extend(model.row(*number).map(|row| row.partner));
        }
        numbers.retain(|number| model.row(*number).is_some());
        numbers.sort_unstable();
        numbers.dedup();
        let count = numbers.len();
        let bytes = match self.view.live().record(numbers.into_iter()) {
            Ok(bytes) => bytes,
            Err(error) => return format!("{error}"),
        };
        let path = PathBuf::from(&self.file);
        // It holds whole messages: its owner alone may read them.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        match file.and_then(|mut file| file.write_all(&bytes)) {
            Ok(()) => format!("{count} messages are in {}", path.display()),
            Err(error) => format!("cannot write {}: {error}", path.display()),
        }
    }
}

impl TrafficBrowser {
    /// Does what a key means.
    pub(super) fn press(&mut self, key: KeyEvent) -> ViewControl {
        let Some(pressed) = keys::pressed(key) else { return ViewControl::Stay };
        self.note.clear();
        match pressed {
            Pressed::Leave => return ViewControl::Leave,
            Pressed::Empty if self.mode == Mode::Filter => self.view.set_filter(""),
            Pressed::Empty if self.mode == Mode::Save => self.file.clear(),
            Pressed::Empty => (),
            Pressed::Key(code) => match self.mode {
                Mode::Filter => self.type_filter(code),
                Mode::Save => self.type_file(code),
                Mode::List => return self.list(code),
                Mode::Details => return self.read(code),
            },
        }
        ViewControl::Stay
    }

    /// Returns how often [`take_traffic`](Self::take_traffic) is to be called.
    pub(super) fn pace(&self) -> Option<Duration> {
        (!self.is_over).then_some(Duration::from_millis(100))
    }

    /// Takes in what was recorded since the last call.
    pub(super) fn take_traffic(&mut self) {
        let Some(recorder) = &self.recorder else { return };
        for _ in 0..BATCHES {
            match recorder.next(Duration::ZERO) {
                Taken::Batch(batch) => {
                    for event in batch.events() {
                        self.view.take(&event);
                    }
                }
                Taken::Quiet => break,
                Taken::Over => {
                    self.is_over = true;
                    break;
                }
            }
        }
        // When the bus has ended nobody waits any more.
        if !self.is_over {
            self.view.set_now(recorder.now_ns());
        }
        self.view.refresh();
        self.pictures = self.pictures.wrapping_add(1);
        if self.tab != Tab::Messages && self.pictures.is_multiple_of(COUNTED) {
            self.view.count();
        }
    }
}
