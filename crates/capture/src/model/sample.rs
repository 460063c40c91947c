//! Messages written by hand, and a model that has seen them: for tests of what reads a model.

use super::peers::DRIVER;
use super::{Model, ObservedMessage};
use wire::known::Numbers;
use wire::write::{Draft, Marshal};
use wire::{self, Endian, MessageType};

/// A message that is being written.
#[derive(Clone, Debug)]
pub struct SampleMessage {
    kind: MessageType,
    flags: u8,
    serial: u32,
    reply_serial: u32,
    sender: String,
    destination: String,
    path: String,
    /// The interface and the member.
    member: String,
    error_name: String,
    signature: String,
    body: Marshal,
}

impl SampleMessage {
    fn new(kind: MessageType, serial: u32, sender: &str) -> SampleMessage {
        SampleMessage {
            kind,
            flags: 0,
            serial,
            reply_serial: 0,
            sender: sender.to_owned(),
            destination: String::new(),
            path: String::new(),
            member: String::new(),
            error_name: String::new(),
            signature: String::new(),
            body: Marshal::new(Endian::Little),
        }
    }

    fn named(mut self, path: &str, member: &str) -> SampleMessage {
        path.clone_into(&mut self.path);
        member.clone_into(&mut self.member);
        self
    }

    fn to(mut self, destination: &str) -> SampleMessage {
        destination.clone_into(&mut self.destination);
        self
    }

    /// A call of `interface.member`.
    pub fn call(serial: u32, sender: &str, to: &str, member: &str) -> SampleMessage {
        SampleMessage::new(MessageType::Call, serial, sender).named("/o", member).to(to)
    }

    /// An answer to the call with the serial `answers`.
    pub fn answer(answers: u32, sender: &str, to: &str) -> SampleMessage {
        let mut sample = SampleMessage::new(MessageType::Return, answers + 1000, sender).to(to);
        sample.reply_serial = answers;
        sample
    }

    /// An error instead of an answer.
    pub fn error(answers: u32, sender: &str, to: &str, name: &str) -> SampleMessage {
        let mut sample = SampleMessage::answer(answers, sender, to);
        sample.kind = MessageType::Error;
        name.clone_into(&mut sample.error_name);
        sample
    }

    /// A signal to everybody.
    pub fn signal(serial: u32, sender: &str, member: &str) -> SampleMessage {
        SampleMessage::new(MessageType::Signal, serial, sender).named("/o", member)
    }

    /// A signal to one connection.
    pub fn directed(serial: u32, sender: &str, to: &str, member: &str) -> SampleMessage {
        SampleMessage::signal(serial, sender, member).to(to)
    }

    /// The bus tells that a name has another owner; empty is nobody.
    pub fn owner_changed(name: &str, old: &str, new: &str) -> SampleMessage {
        let sample = SampleMessage::signal(1, DRIVER, "org.freedesktop.DBus.NameOwnerChanged");
        sample.text(name).text(old).text(new)
    }

    /// With another object.
    pub fn at(mut self, path: &str) -> SampleMessage {
        path.clone_into(&mut self.path);
        self
    }

    /// With flags: 1 wants no answer, 2 starts no service.
    pub fn flags(mut self, flags: u8) -> SampleMessage {
        self.flags = flags;
        self
    }

    /// With one more text as argument.
    pub fn text(mut self, text: &str) -> SampleMessage {
        self.body.text(text);
        self.signature.push('s');
        self
    }

    /// With one more object path as argument.
    pub fn path(mut self, path: &str) -> SampleMessage {
        self.body.text(path);
        self.signature.push('o');
        self
    }

    /// With one more number as argument.
    pub fn number(mut self, number: u32) -> SampleMessage {
        self.body.u32(number);
        self.signature.push('u');
        self
    }

    /// With one more list of texts as argument.
    pub fn texts(mut self, texts: &[&str]) -> SampleMessage {
        self.body.array(4, |body| texts.iter().for_each(|text| body.text(text)));
        self.signature.push_str("as");
        self
    }

    /// Writes it.
    pub fn encode(&self) -> Vec<u8> {
        let body = self.body.clone().bytes();
        let (interface, member) = self.member.rsplit_once('.').unwrap_or_default();
        let draft = Draft {
            flags: self.flags,
            reply_serial: self.reply_serial,
            path: &self.path,
            interface,
            member,
            error_name: &self.error_name,
            destination: &self.destination,
            sender: &self.sender,
            signature: &self.signature,
            body: &body,
            ..Draft::new(self.kind, self.serial)
        };
        draft.bytes()
    }
}

/// A complete record of messages in the order in which they were seen, each at a time in microseconds.
pub fn seen(samples: &[(u64, SampleMessage)]) -> Model {
    let mut model = Model::default();
    for (at_us, sample) in samples {
        push(&mut model, *at_us, sample);
    }
    model.complete();
    model
}

/// Shows the model one more message, at a time in microseconds.
pub fn push(model: &mut Model, at_us: u64, sample: &SampleMessage) -> u32 {
    push_on(model, 0, at_us, sample)
}

/// Shows the model one more message on this bus.
pub fn push_on(model: &mut Model, bus: u16, at_us: u64, sample: &SampleMessage) -> u32 {
    let bytes = sample.encode();
    let header = wire::message(&bytes).expect("what was written can be read");
    let length = u32::try_from(bytes.len()).expect("a sample is short");
    let at_ns = 1_795_271_100_000_000_000 + at_us * 1000;
    model.push(&ObservedMessage {
        at_ns,
        bus,
        length,
        header: &header,
        numbers: Numbers::default(),
    })
}
