//! The file of a baseline: JSON Lines, one wait a line, sorted, so that a change is a line in a diff.
//!
//! The first line is the header, then comes a line for each phase, then one for each wait. The file is input like any other:
//! it is read within limits, and what is not understood is an error with its line.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use report::text::{Charset, json_escaped};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::BaselineRules;
use super::waits::WaitKey;

/// The name and version of the format.
pub const SCHEMA: &str = "unjank.trace.baseline/1";

/// The largest file that is read, in bytes.
pub const LARGEST_BASELINE: usize = 1 << 20;

/// The most lines of a file.
const LINES: usize = 5000;

/// Why bytes are not a baseline.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum BaselineError {
    /// There is more than would be read.
    #[error("the file has {0} bytes, over the limit of {LARGEST_BASELINE}")]
    TooLarge(usize),
    /// There are more lines than would be read.
    #[error("the file has more than {LINES} lines")]
    TooLong,
    /// It is not text.
    #[error("the file is not UTF-8")]
    NotText,
    /// It does not begin with a header of this version.
    #[error("line 1 is not a header with the schema {SCHEMA:?}: {0}")]
    Header(String),
    /// A line is damaged.
    #[error("line {line}: {why}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
}

/// What a baseline was made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BaselineHeader {
    /// [`SCHEMA`].
    pub schema: String,
    /// The name of the main thread's program.
    pub program: String,
    /// How many runs it was made of.
    pub runs: u64,
    /// Which calls were watched.
    pub calls: String,
    /// Calls at least this long were kept.
    #[serde(with = "time_text")]
    pub threshold: u64,
    /// Waits of one kind count from this sum on.
    #[serde(with = "time_text")]
    pub floor: u64,
    /// An event loop that waits so long is idle.
    #[serde(with = "time_text")]
    pub quiet: u64,
    /// A time may be so many times the longest that was seen.
    pub factor: u64,
    /// And so much longer.
    #[serde(with = "time_text")]
    pub plus: u64,
    /// The most time of the main thread that was not explained, or in calls too short to be recorded.
    #[serde(with = "time_text")]
    pub unexplained: u64,
}

/// A phase, and what short waits in it may take together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseBudget {
    /// Its name.
    pub phase: String,
    /// The most time in waits that are too short to have a line.
    #[serde(with = "time_text")]
    pub short: u64,
    /// In how many runs it came.
    pub runs: u64,
}

/// A wait that is allowed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllowedWait {
    /// The phase.
    pub phase: String,
    /// The call.
    pub call: String,
    /// A shell pattern of the path or of what else it works on; empty if that is not known.
    pub path: String,
    /// The function to blame, or a shell pattern of it; empty if that is not known.
    pub function: String,
    /// The most that were seen in a run.
    pub count: u64,
    /// The fewest that were seen in a run.
    pub least: u64,
    /// The most time that was blocked in a run.
    #[serde(with = "time_text")]
    pub time: u64,
    /// Why it is allowed; a person's words, which updates keep.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Its line in the file that it was read from, from 1; 0 if it is new.
    #[serde(skip)]
    pub line: usize,
}

/// What tells the lines of waits from those of phases.
#[derive(Deserialize)]
struct LineKind {
    call: Option<IgnoredAny>,
}

impl AllowedWait {
    /// Returns what its waits have in common.
    #[must_use]
    pub fn key(&self) -> WaitKey {
        WaitKey {
            phase: self.phase.clone(),
            call: self.call.clone(),
            path: self.path.clone(),
            function: self.function.clone(),
        }
    }
}

/// A baseline: the allowed waits of a program's main thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// What it was made of.
    pub header: BaselineHeader,
    /// The phases, in the order in which they come.
    pub phases: Vec<PhaseBudget>,
    /// The waits, sorted by phase, call, path and function.
    pub waits: Vec<AllowedWait>,
}

impl Baseline {
    /// Reads the file at `path`; none if there is no such file.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is no baseline: then the source is a [`BaselineError`].
    pub fn open(path: &Path) -> io::Result<Option<Baseline>> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut bytes = Vec::new();
        let limit = u64::try_from(LARGEST_BASELINE).unwrap_or(u64::MAX).saturating_add(1);
        file.take(limit).read_to_end(&mut bytes)?;
        let damaged = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        Baseline::read(&bytes).map(Some).map_err(damaged)
    }

    /// Reads the bytes of a file.
    ///
    /// # Errors
    ///
    /// A [`BaselineError`] that says which line is wrong.
    pub fn read(bytes: &[u8]) -> Result<Baseline, BaselineError> {
        if bytes.len() > LARGEST_BASELINE {
            return Err(BaselineError::TooLarge(bytes.len()));
        }
        let text = str::from_utf8(bytes).map_err(|_| BaselineError::NotText)?;
        let mut lines = (1_usize..).zip(text.lines());
        let first = lines.next().map_or("", |(_, line)| line);
        let header: BaselineHeader = serde_json::from_str(first)
            .map_err(|error| BaselineError::Header(error.to_string()))?;
        if header.schema != SCHEMA {
            return Err(BaselineError::Header(format!("it has {:?}", header.schema)));
        }
        let (mut phases, mut waits) = (Vec::<PhaseBudget>::new(), Vec::<AllowedWait>::new());
        let mut known: BTreeMap<WaitKey, usize> = BTreeMap::new();
        for (line, text) in lines.filter(|(_, text)| !text.trim().is_empty()) {
            let wrong = |why: String| BaselineError::Line { line, why };
            if line > LINES {
                return Err(BaselineError::TooLong);
            }
            // A phase has no call, a wait has one.
            let kind: LineKind =
                serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
            if kind.call.is_some() {
                let mut wait: AllowedWait =
                    serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
                wait.line = line;
                if let Some(first) = known.insert(wait.key(), line) {
                    return Err(wrong(format!("it allows the same wait as line {first}")));
                }
                waits.push(wait);
            } else {
                let phase: PhaseBudget =
                    serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
                if phases.iter().any(|known| known.phase == phase.phase) {
                    return Err(wrong(format!("there is a phase {:?} already", phase.phase)));
                }
                phases.push(phase);
            }
        }
        let mut baseline = Baseline { header, phases, waits };
        baseline.sort();
        Ok(baseline)
    }

    /// Writes the file.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = String::new();
        let mut push = |line: serde_json::Result<String>| {
            let line = line.expect("texts and numbers are JSON");
            // The file is reviewed in a diff: names in it must not hide or reverse what stands there.
            text.push_str(&json_escaped(&line, Charset::Unicode));
            text.push('\n');
        };
        push(serde_json::to_string(&self.header));
        self.phases.iter().for_each(|phase| push(serde_json::to_string(phase)));
        self.waits.iter().for_each(|wait| push(serde_json::to_string(wait)));
        text
    }

    /// Returns what waits are told from noise by.
    #[must_use]
    pub fn rules(&self) -> BaselineRules {
        BaselineRules {
            floor_ns: self.header.floor,
            quiet_ns: self.header.quiet,
            factor: self.header.factor,
            plus_ns: self.header.plus,
        }
    }

    /// Sorts the waits: by phase as the program comes to them, then by call, path and function.
    pub(super) fn sort(&mut self) {
        let place = |name: &str| self.phases.iter().position(|phase| phase.phase == name);
        let place = |name: &str| place(name).unwrap_or(usize::MAX);
        self.waits.sort_by_cached_key(|wait| (place(&wait.phase), wait.key()));
    }
}

/// Times as text: `12.3ms`.
mod time_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    pub(super) fn serialize<S: Serializer>(ns: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        // Tenths of a millisecond, rounded up: what was seen is allowed.
        let tenths = ns.div_ceil(100_000);
        let text = match tenths % 10 {
            0 => format!("{}ms", tenths / 10),
            part => format!("{}.{part}ms", tenths / 10),
        };
        serializer.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        let time = report::duration::parse(&text).map_err(D::Error::custom)?;
        u64::try_from(time.as_nanos()).map_err(|_| D::Error::custom("the time is too long"))
    }
}
