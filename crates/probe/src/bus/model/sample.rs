//! Messages for tests, and a model that has seen them.

use super::super::wire::known::Numbers;
use super::super::wire::write::{Draft, Marshal};
use super::super::wire::{self, Endian, Kind};
use super::peers::DRIVER;
use super::{Model, Seen};

/// A message that is being written.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    kind: Kind,
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

impl Sample {
    fn new(kind: Kind, serial: u32, sender: &str) -> Sample {
        Sample {
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

    fn named(mut self, path: &str, member: &str) -> Sample {
        path.clone_into(&mut self.path);
        member.clone_into(&mut self.member);
        self
    }

    fn to(mut self, destination: &str) -> Sample {
        destination.clone_into(&mut self.destination);
        self
    }

    /// A call of `interface.member`.
    pub(crate) fn call(serial: u32, sender: &str, to: &str, member: &str) -> Sample {
        Sample::new(Kind::Call, serial, sender).named("/o", member).to(to)
    }

    /// An answer to the call with the serial `answers`.
    pub(crate) fn answer(answers: u32, sender: &str, to: &str) -> Sample {
        let mut sample = Sample::new(Kind::Return, answers + 1000, sender).to(to);
        sample.reply_serial = answers;
        sample
    }

    /// An error instead of an answer.
    pub(crate) fn error(answers: u32, sender: &str, to: &str, name: &str) -> Sample {
        let mut sample = Sample::answer(answers, sender, to);
        sample.kind = Kind::Error;
        name.clone_into(&mut sample.error_name);
        sample
    }

    /// A signal to everybody.
    pub(crate) fn signal(serial: u32, sender: &str, member: &str) -> Sample {
        Sample::new(Kind::Signal, serial, sender).named("/o", member)
    }

    /// A signal to one connection.
    pub(crate) fn directed(serial: u32, sender: &str, to: &str, member: &str) -> Sample {
        Sample::signal(serial, sender, member).to(to)
    }

    /// The bus tells that a name has another owner; empty is nobody.
    pub(crate) fn owner_changed(name: &str, old: &str, new: &str) -> Sample {
        let sample = Sample::signal(1, DRIVER, "org.freedesktop.DBus.NameOwnerChanged");
        sample.text(name).text(old).text(new)
    }

    /// With another object.
    pub(crate) fn at(mut self, path: &str) -> Sample {
        path.clone_into(&mut self.path);
        self
    }

    /// With flags: 1 wants no answer, 2 starts no service.
    pub(crate) fn flags(mut self, flags: u8) -> Sample {
        self.flags = flags;
        self
    }

    /// With one more text as argument.
    pub(crate) fn text(mut self, text: &str) -> Sample {
        self.body.text(text);
        self.signature.push('s');
        self
    }

    /// With one more object path as argument.
    pub(crate) fn path(mut self, path: &str) -> Sample {
        self.body.text(path);
        self.signature.push('o');
        self
    }

    /// With one more number as argument.
    pub(crate) fn number(mut self, number: u32) -> Sample {
        self.body.u32(number);
        self.signature.push('u');
        self
    }

    /// With one more list of texts as argument.
    pub(crate) fn texts(mut self, texts: &[&str]) -> Sample {
        self.body.array(4, |body| texts.iter().for_each(|text| body.text(text)));
        self.signature.push_str("as");
        self
    }

    /// Writes it.
    pub(crate) fn encode(&self) -> Vec<u8> {
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
pub(crate) fn seen(samples: &[(u64, Sample)]) -> Model {
    let mut model = Model::default();
    for (at_us, sample) in samples {
        push(&mut model, *at_us, sample);
    }
    model.complete();
    model
}

/// Shows the model one more message, at a time in microseconds.
pub(crate) fn push(model: &mut Model, at_us: u64, sample: &Sample) -> u32 {
    push_on(model, 0, at_us, sample)
}

/// Shows the model one more message on this bus.
pub(crate) fn push_on(model: &mut Model, bus: u16, at_us: u64, sample: &Sample) -> u32 {
    let bytes = sample.encode();
    let header = wire::message(&bytes).unwrap();
    let length = u32::try_from(bytes.len()).unwrap();
    let at_ns = 1_795_271_100_000_000_000 + at_us * 1000;
    model.push(&Seen { at_ns, bus, length, header: &header, numbers: Numbers::default() })
}
