//! Live traffic, kept in bounded memory: the newest messages with their bytes, and the connections.

mod view;

use std::collections::{BTreeMap, VecDeque};

use super::capture::{
    CaptureEvent, CaptureTime, CapturedBus, CapturedMessage, Dropped, EncodeError, Encoder,
    PeerRecord, RecordFormat,
};
use super::introspection::Introspection;
use super::model::Model;
use super::model::peers::PeerId;
use super::readable;
use super::stats::{size, time};
use wire::{self, Header, MessageType};

pub use view::{Answers, Flow, LiveView, Tab};

/// So many messages are kept, and so many bytes of them; the oldest go first.
const MESSAGES: usize = 200_000;
const BYTES: usize = 256 << 20;
/// The most characters of a body in the details.
const BODY: usize = 64 << 10;

/// The newest messages.
#[derive(Debug, Default)]
pub struct Live {
    model: Model,
    bytes: VecDeque<Box<[u8]>>,
    held: usize,
    buses: Vec<CapturedBus>,
    peers: BTreeMap<(u16, String), PeerRecord>,
    /// Dropped messages, and their position.
    losses: VecDeque<(u32, Dropped)>,
}

impl Live {
    /// Returns what is known of them.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Notes what time it is, in nanoseconds since the epoch.
    pub fn set_now(&mut self, now_ns: u64) {
        self.model.set_now(now_ns);
    }

    /// Adds an event; returns the number of the message if it is one.
    pub fn take(&mut self, event: &CaptureEvent<'_>) -> Option<u32> {
        match event {
            CaptureEvent::Bus(bus) => self.buses.push((**bus).clone()),
            CaptureEvent::Peer(peer) => {
                let key = (peer.bus, peer.unique.clone());
                if peer.gone {
                    self.peers.remove(&key);
                } else {
                    self.peers.insert(key, (**peer).clone());
                }
            }
            CaptureEvent::Dropped(dropped) => self.losses.push_back((self.model.end(), *dropped)),
            _ => (),
        }
        let (number, _) = self.model.take(event)?;
        if let CaptureEvent::Message(message) = event {
            self.held += message.bytes.len();
            self.bytes.push_back(message.bytes.into());
        }
        // A tenth at once, so that it is not done for each message.
        if self.bytes.len() > MESSAGES || self.held > BYTES {
            self.forget(self.bytes.len() - self.bytes.len() / 10);
        }
        Some(number)
    }

    fn forget(&mut self, keep: usize) {
        self.model.forget(keep);
        let gone = self.bytes.len().saturating_sub(keep);
        let first = self.model.first();
        self.losses.retain(|(before, _)| *before > first);
        self.held -= self.bytes.drain(..gone).map(|bytes| bytes.len()).sum::<usize>();
    }

    /// Returns a message that is kept.
    #[must_use]
    pub fn header(&self, number: u32) -> Option<Header<'_>> {
        let at = number.checked_sub(self.model.first())?;
        wire::message(self.bytes.get(usize::try_from(at).ok()?)?).ok()
    }

    /// Records that a connection is our own: what it sends is not what was to be watched.
    pub fn is_ours(&mut self, bus: u16, unique: &str) {
        let unique = self.model.texts.keep(unique);
        let peer = self.model.peers.connection(bus, unique);
        self.model.peers.is_recorder(peer);
    }

    /// Returns what is known of a message, a line each: its head, and its body with the arguments' names.
    #[must_use]
    pub fn details(&self, number: u32, known: &Introspection) -> Vec<String> {
        let Some(row) = self.model.row(number) else { return Vec::new() };
        let texts = &self.model.texts;
        let named = self.model.named(row);
        let (interface, member) = (texts.get(named.interface), texts.get(named.member));
        let kind = match row.kind {
            MessageType::Call => "call",
            MessageType::Return => "return",
            MessageType::Error => "error",
            MessageType::Signal => "signal",
            MessageType::Other(_) => "message",
        };
        let mut lines = vec![format!("{kind} {interface}.{member}")];
        let peer = |peer: PeerId| match self.model.peers.get(peer) {
            None => "everybody".to_owned(),
            Some(about) => {
                let mut text = self.model.peers.label(peer, texts);
                let unique = texts.get(about.unique);
                if !text.contains(unique) {
                    text.push_str(&format!(" {unique}"));
                }
                if let Some(pid) = about.pid {
                    text.push_str(&format!(" process {pid} {}", texts.get(about.executable)));
                }
                text
            }
        };
        lines.push(format!("from    {}", peer(row.sender)));
        lines.push(format!("to      {}", peer(row.receiver)));
        let hearers = self.model.hearers(row);
        if !hearers.is_empty() {
            let labels: Vec<String> =
                hearers.iter().take(8).map(|peer| self.model.peers.label(*peer, texts)).collect();
            let more = hearers.len().saturating_sub(8);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            lines.push(format!("heard   {}{more}", labels.join(", ")));
        }
        lines.push(format!("object  {}", texts.get(named.path)));
        if row.error.is_some() {
            lines.push(format!("error   {}", texts.get(row.error)));
        }
        if let Some(took) = self.model.latency_ns(row) {
            lines.push(format!("answer  after {}", time(took)));
        } else if let Some(waited) = self.model.waited_ns(row) {
            lines.push(format!("answer  none in {}", time(waited)));
        }
        let types = texts.get(row.signature);
        let types = if types.is_empty() { "" } else { &format!(", types {types}") };
        lines.push(format!("serial  {}, {}{types}", row.serial, size(row.length.into())));
        let mut body = |title: &str, number: u32| {
            let Some(header) = self.header(number).filter(|header| !header.signature.is_empty())
            else {
                return;
            };
            lines.push(String::new());
            lines.push(title.to_owned());
            let names = known.arguments(header.kind, interface, member);
            let text = readable::body(&header, names, BODY);
            lines.extend(text.lines().map(|line| format!("  {line}")));
        };
        body("body", number);
        if row.kind == MessageType::Call && self.model.partner(row).is_some() {
            body("answer", row.partner);
        }
        lines
    }

    /// Returns a record of these messages, in this order, and of what is missing before and behind them, as pcapng.
    ///
    /// # Errors
    ///
    /// Whatever the format has no place for; pcapng has one for everything here.
    pub fn record(&self, numbers: impl Iterator<Item = u32>) -> Result<Vec<u8>, EncodeError> {
        let mut encoder = Encoder::new(RecordFormat::Pcapng);
        let mut out = Vec::new();
        encoder.begin(&mut out);
        let mut numbers = numbers.peekable();
        // A record has a place for messages of buses that it names; one that was never told has a number alone.
        let unnamed = numbers.peek().and_then(|number| self.model.row(*number)).map(|row| row.bus);
        let unnamed = unnamed.filter(|bus| self.buses.iter().all(|known| known.bus != *bus));
        let unnamed = unnamed.map(|bus| CapturedBus { bus, ..CapturedBus::default() });
        for bus in self.buses.iter().chain(&unnamed) {
            encoder.event(&mut out, &CaptureEvent::Bus(Box::new(bus.clone())))?;
        }
        for peer in self.peers.values() {
            encoder.event(&mut out, &CaptureEvent::Peer(Box::new(peer.clone())))?;
        }
        let mut losses = self.losses.iter().peekable();
        for number in numbers {
            while let Some((_, dropped)) = losses.next_if(|(before, _)| *before <= number) {
                encoder.event(&mut out, &CaptureEvent::Dropped(*dropped))?;
            }
            let at = number.checked_sub(self.model.first()).and_then(|at| usize::try_from(at).ok());
            let bytes = at.and_then(|at| self.bytes.get(at));
            let Some((row, bytes)) = self.model.row(number).zip(bytes) else { continue };
            let message = CapturedMessage {
                at: CaptureTime(row.at_ns),
                bus: row.bus,
                length: row.length,
                bytes,
            };
            encoder.event(&mut out, &CaptureEvent::Message(message))?;
        }
        for (_, dropped) in losses {
            encoder.event(&mut out, &CaptureEvent::Dropped(*dropped))?;
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::super::capture::Capture;
    use super::super::model::sample::SampleMessage;
    use super::*;

    pub(super) fn take(live: &mut Live, at: u64, sample: &SampleMessage) -> u32 {
        let bytes = sample.encode();
        let length = u32::try_from(bytes.len()).unwrap();
        let message = CapturedMessage { at: CaptureTime(at * 1000), bus: 0, length, bytes: &bytes };
        live.take(&CaptureEvent::Message(message)).unwrap()
    }

    #[test]
    fn details_have_the_body_with_names_and_the_answer() {
        let mut live = Live::default();
        let say =
            SampleMessage::call(1, ":1.1", "org.example.Echo", "org.example.I.Say").text("hello");
        take(&mut live, 0, &say);
        take(&mut live, 1500, &SampleMessage::answer(1, ":1.2", ":1.1").number(5));
        let mut known = Introspection::default();
        known.learn("<node><interface name='org.example.I'><method name='Say'><arg name='words' direction='in'/><arg name='count' direction='out'/></method></interface></node>");
        let text = live.details(0, &known).join("\n");
        insta::assert_snapshot!(text, @r#"
        call org.example.I.Say
        from    :1.1
        to      org.example.Echo :1.2
        object  /o
        answer  after 1.50 ms
        serial  1, 138 B, types s

        body
          words: "hello"

        answer
          count: 5
        "#);
        assert!(live.details(99, &known).is_empty());
    }

    #[test]
    fn what_is_saved_can_be_opened() {
        let mut live = Live::default();
        live.take(&CaptureEvent::Bus(Box::new(CapturedBus {
            name: "session".to_owned(),
            ..CapturedBus::default()
        })));
        let peer = PeerRecord { unique: ":1.1".to_owned(), pid: Some(7), ..PeerRecord::default() };
        live.take(&CaptureEvent::Peer(Box::new(peer)));
        let dropped = |count| CaptureEvent::Dropped(Dropped { count, ..Dropped::default() });
        for serial in 1..=5 {
            if serial == 3 {
                live.take(&dropped(30));
            }
            take(&mut live, 10, &SampleMessage::signal(serial, ":1.1", "org.example.I.Tick"));
        }
        live.take(&dropped(50));
        let bytes = live.record([1, 3, 77].into_iter()).unwrap();
        let capture = Capture::of(bytes).unwrap();
        let mut again = Live::default();
        for event in capture.events() {
            again.take(&event);
        }
        assert_eq!(again.model().len(), 2);
        let losses = again.model().losses.iter().map(|loss| (loss.before, loss.count));
        assert_eq!(losses.collect::<Vec<_>>(), [(1, 30), (2, 50)]);
        assert_eq!(again.model().row(1).unwrap().serial, 4);
        assert_eq!(again.model().peers.all()[0].pid, Some(7));
    }

    #[test]
    fn the_oldest_go_when_there_is_no_room() {
        let mut live = Live::default();
        let sample = SampleMessage::signal(1, ":1.1", "org.example.I.Tick");
        for _ in 0..MESSAGES + 5 {
            take(&mut live, 10, &sample);
        }
        assert!(live.model().len() <= MESSAGES && live.model().len() > MESSAGES / 2);
        assert_eq!(live.bytes.len(), live.model().len());
        assert!(live.header(live.model().end() - 1).is_some() && live.header(0).is_none());
    }
}
