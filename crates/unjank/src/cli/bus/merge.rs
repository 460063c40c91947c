//! `unjank bus merge`: several records as one, in the order in which things happened.

use std::io::Write;
use std::path::PathBuf;

use capture::capture::{CaptureEvent, Encoder, RecordFormat};
use capture::merge::Merged;
use clap::Args;

use super::convert::{note, open};
use super::output::create;
use crate::error::{Error, FailureCategory, Verdict};

/// So much is gathered before it is written.
const PIECE: usize = 1 << 20;

/// Merge recordings into one, for example those of the session bus and the system bus.
///
/// Exits with 0 if all of them were read, 1 if a part is unreadable, 2 on an error.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank bus merge session.pcap system.pcap -o both.pcapng")]
pub(super) struct Merge {
    /// The recordings.
    #[arg(value_name = "FILE", required = true, num_args = 2..)]
    inputs: Vec<PathBuf>,
    /// The pcapng file, which must not exist; - is standard output.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

impl Merge {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let captures = self.inputs.iter().map(|path| open(path)).collect::<Result<Vec<_>, _>>()?;
        let mut file = create(&self.output)?;
        let mut encoder = Encoder::new(RecordFormat::Pcapng);
        let mut out = Vec::new();
        let mut verdict = Verdict::Yes;
        encoder.begin(&mut out);
        for (input, event) in Merged::new(&captures) {
            if let CaptureEvent::Damaged(damaged) = &event {
                note(&self.inputs[input], damaged);
                verdict = Verdict::No;
            }
            encoder.event(&mut out, &event).map_err(|error| {
                Error::new(FailureCategory::Internal, "merge the recordings").because(error)
            })?;
            if out.len() >= PIECE {
                file.write_all(&out)?;
                out.clear();
            }
        }
        file.write_all(&out)?;
        Ok(verdict)
    }
}
