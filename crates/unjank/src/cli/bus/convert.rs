//! `unjank bus convert`: a record in another format.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use capture::capture::{Capture, CaptureError, CaptureEvent, Encoder, RecordFormat};
use capture::lines;
use clap::{Args, ValueEnum};

use super::output::create;
use crate::cli::screen::{self, sayln};
use crate::error::{Error, FailureCategory, Verdict};

/// So much is gathered before it is written.
const PIECE: usize = 1 << 20;

/// Convert a recording between pcapng, pcap and JSON lines.
///
/// Reads recordings of unjank, dbus-monitor, busctl and Bustle, damaged files as far as
/// possible. Exits with 0 if all of it was read, 1 if a part is unreadable, 2 on an error.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank bus convert session.pcapng -o session.jsonl")]
pub(super) struct Convert {
    /// The recording; - is standard input.
    #[arg(value_name = "FILE")]
    input: PathBuf,
    /// The output, which must not exist; - is standard output.
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// The format; by default from the file's suffix (.pcapng, .pcap, .jsonl), on standard output JSON.
    #[arg(long, value_name = "FORMAT")]
    to: Option<To>,
}

/// A format that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum To {
    /// Contains all information.
    Pcapng,
    /// Contains the messages of one bus.
    Pcap,
    /// One JSON object for each event, with the decoded body and the bytes, so that it can be converted back.
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
            To::Pcapng => Some(Encoder::new(RecordFormat::Pcapng)),
            To::Pcap => Some(Encoder::new(RecordFormat::Pcap)),
            To::Json => None,
        };
        let mut out = Vec::new();
        let mut verdict = Verdict::Yes;
        if let Some(encoder) = &mut encoder {
            encoder.begin(&mut out);
        }
        for event in capture.events() {
            if let CaptureEvent::Damaged(damaged) = &event {
                note(&self.input, damaged);
                verdict = Verdict::No;
            }
            match &mut encoder {
                Some(encoder) => encoder.event(&mut out, &event).map_err(|error| {
                    Error::new(FailureCategory::User, "convert the recording")
                        .because(error)
                        .hint("use --to pcapng, which holds any number of buses")
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
pub(super) fn note(path: &Path, damaged: &capture::capture::DamagedSection) {
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
        _ => Err(Error::new(
            FailureCategory::User,
            format!("determine the format of {}", path.display()),
        )
        .hint("use --to pcapng, --to pcap or --to json")),
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
        let error = Error::new(FailureCategory::User, "open the recording").because(error);
        match hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    })
}
