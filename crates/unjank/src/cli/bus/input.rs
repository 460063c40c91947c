//! A capture that a command reads, and the filter by which it chooses messages.

use std::io::Read;
use std::path::{Path, PathBuf};

use capture::capture::Capture;
use capture::filter::Filter;
use capture::model::{Ending, Model, read};
use clap::Args;
use wire::Header;

use crate::error::{Error, FailureCategory};

/// The record, and which of its messages.
#[derive(Clone, Debug, Args)]
pub(super) struct Input {
    /// Select only matching messages, for example "to:org.a.B slower-than:5ms" (see docs/bus.md).
    #[arg(short, long, value_name = "EXPRESSION", value_parser = filter, default_value = "", hide_default_value = true)]
    filter: Filter,
    /// A recording of unjank, dbus-monitor or busctl; - for stdin.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Reads a filter from the command line.
pub(super) fn filter(text: &str) -> Result<Filter, String> {
    text.parse::<Filter>().map_err(|error| error.to_string())
}

impl Input {
    /// Returns the filter.
    pub(super) fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Returns the name of the file.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Reads the record; `look` sees each message while its bytes are there.
    pub(super) fn model(&self, mut look: impl FnMut(u32, &Header<'_>)) -> Result<Model, Error> {
        let capture = open(&self.file)?;
        Ok(read(capture.events(), |_, number, header| {
            look(number, header);
            Ending::Continue
        }))
    }
}

/// Opens a record; `-` is stdin.
pub(super) fn open(path: &Path) -> Result<Capture, Error> {
    let cannot = || Error::new(FailureCategory::User, format!("read {}", path.display()));
    let hint =
        "unjank bus record -o FILE makes a record; dbus-monitor --pcap and busctl capture do, too";
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).map_err(|error| cannot().because(error))?;
        return Capture::of(bytes)
            .ok_or_else(|| cannot().because("not a recording of D-Bus messages").hint(hint));
    }
    Capture::open(path).map_err(|error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        match cause {
            Some(cause) => cannot().because(cause),
            None => cannot().because("not a recording of D-Bus messages").hint(hint),
        }
    })
}
