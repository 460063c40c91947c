//! Writes and reads a report as JSON, alone or inside its page; input is untrusted.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::account::ShortCallRow;
use super::schema::{SCHEMA, TraceReport};
use super::spelling::harmless;

/// The largest file that is read, in bytes.
pub const LARGEST: usize = 64 << 20;

/// What stands in a page before the data.
const OPENING: &str = "<script type=\"application/json\" id=\"unjank-trace\">";

/// Why bytes are not a report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// There is more than would be read.
    #[error("cannot read the report: it has {0} bytes, over the limit of {LARGEST}")]
    TooLarge(usize),
    /// It is a page without data, or no page at all.
    #[error("cannot find a report: the file is neither a page nor JSON of unjank trace")]
    NotAReport,
    /// It is a report of another version.
    #[error("cannot read a report of the schema {0:?}, only {SCHEMA:?}")]
    OtherSchema(String),
    /// The JSON is damaged.
    #[error("cannot read the report's data")]
    Damaged(#[source] serde_json::Error),
    /// An index leads nowhere.
    #[error("cannot use the report: {0} has an index out of range")]
    Inconsistent(&'static str),
}

/// Returns whether a file begins as a page or as JSON does, which no program does.
#[must_use]
pub fn is_report(path: &Path) -> bool {
    let mut first = [0_u8; 1];
    File::open(path).and_then(|mut file| file.read_exact(&mut first)).is_ok()
        && matches!(first, [b'<' | b'{'])
}

/// Writes a report as JSON, ending in a newline.
///
/// # Errors
///
/// Whatever `serde_json` reports; the types here give it no reason.
pub fn to_json(report: &TraceReport) -> serde_json::Result<String> {
    serde_json::to_string(report).map(|text| text + "\n")
}

/// Writes a report as an element that a page can hold: no text in it can end it.
///
/// # Errors
///
/// Whatever `serde_json` reports; the types here give it no reason.
pub fn element(report: &TraceReport) -> serde_json::Result<String> {
    let json = serde_json::to_string(report)?;
    let mut text = String::with_capacity(json.len() + 128);
    text.push_str(OPENING);
    for letter in json.chars() {
        match letter {
            // These letters only stand inside strings, where their escape means the same.
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                text.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            letter => text.push(letter),
        }
    }
    text.push_str("</script>\n");
    Ok(text)
}

#[derive(serde::Deserialize)]
struct SchemaHeader {
    schema: String,
}

/// Reads a report from its JSON or from its page.
///
/// # Errors
///
/// An error in the bytes; no part of the report is used.
pub fn read(bytes: &[u8]) -> Result<TraceReport, ReadError> {
    if bytes.len() > LARGEST {
        return Err(ReadError::TooLarge(bytes.len()));
    }
    let start = bytes.iter().position(|byte| !byte.is_ascii_whitespace());
    let json = match start.map(|at| bytes[at]) {
        Some(b'{') => bytes,
        Some(b'<') => inside(bytes).ok_or(ReadError::NotAReport)?,
        _ => return Err(ReadError::NotAReport),
    };
    let head: SchemaHeader = serde_json::from_slice(json).map_err(|error| {
        if error.is_data() { ReadError::NotAReport } else { ReadError::Damaged(error) }
    })?;
    if head.schema != SCHEMA {
        return Err(ReadError::OtherSchema(head.schema));
    }
    let mut value: serde_json::Value = serde_json::from_slice(json).map_err(ReadError::Damaged)?;
    disarm(&mut value);
    let report: TraceReport = serde_json::from_value(value).map_err(ReadError::Damaged)?;
    consistent(&report)?;
    Ok(report)
}

/// Spells what would disturb a screen: we write no such text, but others may.
fn disarm(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) => {
            if let Some(safe) = harmless(text) {
                *text = safe;
            }
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(disarm),
        serde_json::Value::Object(fields) => fields.values_mut().for_each(disarm),
        _ => (),
    }
}

/// Returns the data inside a page.
fn inside(page: &[u8]) -> Option<&[u8]> {
    let find = |bytes: &[u8], text: &str| {
        bytes.windows(text.len()).position(|window| window == text.as_bytes())
    };
    let data = &page[find(page, OPENING)? + OPENING.len()..];
    Some(&data[..find(data, "</script>")?])
}

/// Checks that every index is in range, so that other code need not.
fn consistent(report: &TraceReport) -> Result<(), ReadError> {
    let inside = |at: u32, len: usize| usize::try_from(at).is_ok_and(|at| at < len);
    let maybe = |at: Option<u32>, len: usize| at.is_none_or(|at| inside(at, len));
    let all = |name: &'static str, holds: bool| {
        if holds { Ok(()) } else { Err(ReadError::Inconsistent(name)) }
    };
    let (calls, targets) = (report.calls.len(), report.targets.len());
    let (stacks, frames) = (report.stacks.len(), report.frames.len());
    all("main_thread", maybe(report.main_thread, report.threads.len()))?;
    all(
        "targets",
        report.targets.iter().all(|target| {
            maybe(target.mount, report.mounts.len())
                && maybe(target.owner_stack, stacks)
                && target.calls.iter().all(|call| inside(call.call, calls))
        }),
    )?;
    all(
        "paths",
        report.paths.iter().all(|path| {
            inside(path.call, calls)
                && maybe(path.frame, frames)
                && path.targets.iter().all(|share| inside(share.index, targets))
                && path.stacks.iter().all(|share| inside(share.index, stacks))
        }),
    )?;
    all(
        "stacks",
        report.stacks.iter().all(|stack| {
            stack.frames.iter().all(|frame| inside(*frame, frames))
                && maybe(stack.blamed, stack.frames.len())
        }),
    )?;
    all("frames", report.frames.iter().all(|frame| maybe(frame.object, report.modules.len())))?;
    all(
        "slow",
        report.slow.iter().all(|slow| {
            inside(slow.call, calls)
                && inside(slow.thread, report.threads.len())
                && maybe(slow.target, targets)
                && maybe(slow.stack, stacks)
                && maybe(slow.operation, report.operations.len())
        }),
    )?;
    all(
        "account",
        report.threads.iter().filter_map(|thread| thread.account.as_ref()).all(|account| {
            let short = |row: &ShortCallRow| {
                inside(row.call, calls) && maybe(row.target, targets) && maybe(row.frame, frames)
            };
            let of_blocks = account.blocks.iter().flat_map(|block| &block.short_calls);
            account.blocks.iter().all(|block| maybe(block.frame, frames))
                && account.short_calls.iter().chain(of_blocks).all(short)
                && account.functions.iter().all(|share| inside(share.frame, frames))
                && account.pages.iter().all(|share| maybe(share.frame, frames))
                && account.memory.iter().all(|row| maybe(row.frame, frames))
        }),
    )?;
    all(
        "operations",
        report.operations.iter().all(|row| maybe(row.target, targets))
            && report.operation_sums.iter().all(|sum| maybe(sum.target, targets)),
    )?;
    all("frame_ns", report.frame_ns > 0)
}
