//! `unjank bus convert`: a record in another format.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use probe::bus::capture::{Capture, CaptureError, Encoder, Event, Format};
use probe::bus::lines;

use super::output::create;
use crate::cli::screen::{self, sayln};
use crate::error::{Error, Kind, Verdict};

/// So much is gathered before it is written.
const PIECE: usize = 1 << 20;

/// Convert a record: pcapng, pcap, and lines of JSON, each into each.
///
/// Reads what unjank, dbus-monitor, busctl and Bustle write, damaged files as far as they go.
/// Exits with 0 if all of it was read, 1 if a part could not be, 2 on an error.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank bus convert session.pcapng -o session.jsonl")]
pub(super) struct Convert {
    /// The record; - is standard input.
    #[arg(value_name = "FILE")]
    input: PathBuf,
    /// Where it goes, which must not exist; - is standard output.
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// The format; by default as the name ends (.pcapng, .pcap, .jsonl), on standard output JSON.
    #[arg(long, value_name = "FORMAT")]
    to: Option<To>,
}

/// A format that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum To {
    /// Everything that is known.
    Pcapng,
    /// The messages of one bus.
    Pcap,
    /// A line of JSON for each event, the body decoded, and the bytes, so that it can be converted back.
    Json,
}

impl Convert {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let capture = open(&self.input)?;
        let to = match self.to {
            Some(to) => to,
            None => named(&self.output)?,
        };
        let mut file = if to == To::Json && self.output == Path::new("-") {
            Box::new(BufWriter::with_capacity(PIECE, screen::json())) as Box<dyn Write>
        } else {
            Box::new(create(&self.output)?)
        };
        let mut encoder = match to {
            To::Pcapng => Some(Encoder::new(Format::Pcapng)),
            To::Pcap => Some(Encoder::new(Format::Pcap)),
            To::Json => None,
        };
        let mut out = Vec::new();
        let mut verdict = Verdict::Yes;
        if let Some(encoder) = &mut encoder {
            encoder.begin(&mut out);
        }
        for event in capture.events() {
            if let Event::Damaged(damaged) = &event {
                note(&self.input, damaged);
                verdict = Verdict::No;
            }
            match &mut encoder {
                Some(encoder) => encoder.event(&mut out, &event).map_err(|error| {
                    Error::new(Kind::User, "convert the record")
                        .because(error)
                        .hint("--to pcapng holds any number of buses")
                })?,
                None => lines::write(&mut out, &event, lines::Bytes::Included),
            }
            if out.len() >= PIECE {
                file.write_all(&out)?;
                out.clear();
            }
        }
        file.write_all(&out)?;
        file.flush()?;
        Ok(verdict)
    }
}

/// Says what cannot be read of a record.
pub(super) fn note(path: &Path, damaged: &probe::bus::capture::Damaged) {
    let text = format!("unjank: {}: {} at byte {}", path.display(), damaged.what, damaged.at);
    // Nobody is left to be told when stderr is gone.
    let _ = sayln!(screen::stderr(), "{text}");
}

fn named(path: &Path) -> Result<To, Error> {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("pcapng") => Ok(To::Pcapng),
        Some("pcap") => Ok(To::Pcap),
        Some("json" | "jsonl") => Ok(To::Json),
        _ if path == Path::new("-") => Ok(To::Json),
        _ => Err(Error::new(Kind::User, format!("tell the format of {}", path.display()))
            .hint("say --to pcapng, --to pcap or --to json")),
    }
}

/// Opens a record for a command.
pub(crate) fn open(path: &Path) -> Result<Capture, Error> {
    let path = if path == Path::new("-") { Path::new("/dev/stdin") } else { path };
    Capture::open(path).map_err(|error| {
        let hint = match &error {
            CaptureError::NotACapture { .. } => {
                Some("records are pcapng, pcap, lines of JSON, dbus-monitor --binary or --profile, and logs of Bustle")
            }
            _ => None,
        };
        let error = Error::new(Kind::User, "open the record").because(error);
        match hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    })
}
