//! How long the figures of a long record take, beside programs that read it.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use super::Lab;
use crate::lab::{BenchError, Measuring};
use crate::row::{FigureRow, FigureTarget};
use capture::capture::{
    CaptureEvent, CaptureTime, CapturedBus, CapturedMessage, Encoder, RecordFormat,
};
use fastrand::Rng;
use report::figure::Quantity;
use report::samples::Samples;
use sys::scratch;
use wire::write::{Draft, Marshal};
use wire::{Endian, MessageType};

/// What ours may take of a reader's time.
const PART: f64 = 1.0 / 20.0;
/// When the first message was seen.
const BEGIN_NS: u64 = 1_795_000_000_000_000_000;
/// So much is gathered before it is written.
const PIECE: usize = 1 << 20;

/// A program that reads a record, as the user named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordReader(Vec<String>);

/// Why a reader is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("give a command with {{file}} for the recording, for example 'tshark -r {{file}}'")]
pub struct NoReader;

impl RecordReader {
    /// Reads a command; it is split at spaces, no shell sees it, and `{file}` in it is the record.
    ///
    /// # Errors
    ///
    /// There is no command, or no place for the record in it.
    pub fn parse(text: &str) -> Result<RecordReader, NoReader> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        if words.iter().any(|word| word.contains("{file}")) {
            Ok(RecordReader(words))
        } else {
            Err(NoReader)
        }
    }

    /// Returns what it is called in the table.
    #[must_use]
    pub fn name(&self) -> String {
        self.0.iter().filter(|word| *word != "{file}").cloned().collect::<Vec<_>>().join(" ")
    }
}

/// Measures `unjank bus stats` on a record of so many messages, and each reader on the same one.
pub(super) fn rows(
    lab: &Lab<'_>,
    id: &'static str,
    about: &str,
    messages: u32,
) -> Result<Vec<FigureRow>, BenchError> {
    let cannot = |source: io::Error| BenchError::Peer {
        program: lab.dir.display().to_string(),
        cause: source.to_string(),
    };
    let scratch = scratch::within(&lab.dir).map_err(cannot)?;
    let file = scratch.path().join("record.pcapng");
    write(&file, messages).map_err(cannot)?;
    let ours = [
        lab.unjank.display().to_string(),
        "bus".to_owned(),
        "stats".to_owned(),
        "{file}".to_owned(),
    ];
    let mut times = Samples::default();
    let mut theirs = vec![Samples::default(); lab.readers.len()];
    // Once before it counts, so that all find the record in memory.
    time(lab, &ours, &file, scratch.path())?;
    for _ in 0..lab.effort.of(5, 1) {
        // Each time beside ours a reader's: what else goes on meets both.
        times.push(time(lab, &ours, &file, scratch.path())?);
        for (reader, samples) in lab.readers.iter().zip(&mut theirs) {
            samples.push(time(lab, &reader.0, &file, scratch.path())?);
        }
        times.push(time(lab, &ours, &file, scratch.path())?);
    }
    let row = |(reader, theirs): (&RecordReader, Samples)| {
        FigureRow {
        id,
        title: format!("{about} (peer: {})", reader.name()),
        quantity: Quantity::Time,
        ours: times.clone(),
        peer: theirs,
        target: Some(FigureTarget::AtMost(PART)),
        note: "unjank bus stats beside a program that reads the same record, which is in memory, and prints into nothing".to_owned(),
    }
    };
    Ok(lab.readers.iter().zip(theirs).map(row).collect())
}

/// Runs a program on the record with its output thrown away, and returns how long it took in nanoseconds.
fn time(lab: &Lab<'_>, words: &[String], file: &Path, home: &Path) -> Result<f64, BenchError> {
    lab.go_on()?;
    let words: Vec<String> =
        words.iter().map(|word| word.replace("{file}", &file.display().to_string())).collect();
    let cannot = |cause: String| BenchError::Peer { program: words.join(" "), cause };
    let mut command = Command::new(&words[0]);
    // What a program remembers in a home of its own is the same for everybody.
    command.args(&words[1..]).env("HOME", home).env_remove("XDG_CONFIG_HOME");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let (time, status) = lab.time(|| command.status());
    match status {
        Ok(status) if status.success() => Ok(time),
        Ok(status) => Err(cannot(status.to_string())),
        Err(error) => Err(cannot(error.to_string())),
    }
}

/// Names and texts of a desktop that was never there.
struct Desktop {
    clients: Vec<String>,
    services: Vec<Service>,
}

struct Service {
    unique: String,
    name: String,
    interface: String,
    objects: Vec<String>,
    members: Vec<String>,
}

impl Desktop {
    fn new() -> Desktop {
        let service = |at: usize| Service {
            unique: format!(":1.{}", 10 + at),
            name: format!("org.example.Service{at}"),
            interface: format!("org.example.Service{at}.Manager"),
            objects: (0..20)
                .map(|object| format!("/org/example/Service{at}/object/{object}"))
                .collect(),
            members: (0..8).map(|member| format!("Member{member}")).collect(),
        };
        Desktop {
            clients: (0..60).map(|at| format!(":1.{}", 100 + at)).collect(),
            services: (0..10).map(service).collect(),
        }
    }
}

/// Writes a record of calls, their answers and signals of several programs that speak to several services.
fn write(path: &Path, messages: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let mut encoder = Encoder::new(RecordFormat::Pcapng);
    let mut out = Vec::new();
    let mut at_ns = BEGIN_NS;
    let bus = CaptureEvent::Bus(Box::new(CapturedBus {
        name: "session".to_owned(),
        ..CapturedBus::default()
    }));
    encoder.event(&mut out, &bus).map_err(io::Error::other)?;
    let mut count = 0;
    let mut add = |draft: Draft<'_>, later_ns: u64| -> io::Result<bool> {
        at_ns += later_ns;
        let bytes = draft.bytes();
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let message = CapturedMessage { at: CaptureTime(at_ns), bus: 0, length, bytes: &bytes };
        encoder.event(&mut out, &CaptureEvent::Message(message)).map_err(io::Error::other)?;
        count += 1;
        if out.len() >= PIECE || count == messages {
            file.write_all(&out)?;
            out.clear();
        }
        Ok(count < messages)
    };
    let desktop = Desktop::new();
    let mut random = Rng::with_seed(1);
    let mut serial = 0;
    loop {
        serial += 1;
        let client = random.usize(..desktop.clients.len());
        // A program speaks to few of all services.
        let service = &desktop.services[(client + random.usize(..3)) % desktop.services.len()];
        let object = &service.objects[random.usize(..service.objects.len())];
        let member = &service.members[random.usize(..service.members.len())];
        let client = &*desktop.clients[client];
        let mut body = Marshal::new(Endian::Little);
        let texts = 1 + random.usize(..5);
        body.array(4, |all| (0..texts).for_each(|at| all.text(&format!("value {serial} {at}"))));
        let body = body.bytes();
        let common =
            Draft { signature: "as", body: &body, ..Draft::new(MessageType::Call, serial) };
        let (path, interface) = (&**object, &*service.interface);
        if random.u32(..100) < 15 {
            let signal = Draft {
                kind: MessageType::Signal,
                flags: 1,
                path,
                interface,
                member,
                sender: &service.unique,
                ..common
            };
            if add(signal, 40_000)? {
                continue;
            }
            return Ok(());
        }
        let destination = if random.u32(..100) < 70 { &service.name } else { &service.unique };
        let call = Draft { path, interface, member, sender: client, destination, ..common };
        let answer = Draft {
            kind: MessageType::Return,
            flags: 1,
            reply_serial: serial,
            sender: &service.unique,
            destination: client,
            ..common
        };
        let error = Draft {
            kind: MessageType::Error,
            error_name: "org.example.Error.Failed",
            signature: "",
            body: &[],
            ..answer
        };
        let answer = if random.u32(..100) < 3 { error } else { answer };
        // A call in a hundred is never answered.
        let goes_on = add(call, 50_000)? && (random.u32(..100) < 1 || add(answer, 30_000)?);
        if !goes_on {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture::capture::Capture;
    use capture::filter::Filter;
    use capture::model::{Ending, read};
    use capture::stats::collect;

    #[test]
    fn the_record_has_as_many_messages_as_it_was_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        write(&path, 5000).unwrap();
        let capture = Capture::open(&path).unwrap();
        let model = read(capture.events(), |_, _, _| Ending::Continue);
        let stats = collect(&model, &"".parse::<Filter>().unwrap());
        assert_eq!((stats.messages, stats.damaged), (5000, 0));
        let kinds = stats.kinds;
        assert!(
            [kinds.calls, kinds.returns, kinds.errors, kinds.signals].into_iter().all(|n| n > 50)
        );
        assert!(!stats.unanswered.is_empty());
    }

    #[test]
    fn a_reader_says_where_the_record_goes() {
        let reader = RecordReader::parse("tshark -r {file}").unwrap();
        assert_eq!(reader.name(), "tshark -r");
        assert_eq!(RecordReader::parse("tshark"), Err(NoReader));
    }
}
