//! The data of the page, as columns of numbers after a JSON text, compressed (deflate) and encoded as base64.
//!
//! Two 32-bit numbers: the bytes of the JSON and the messages; the JSON; then, each from a multiple of 8 bytes on and
//! with the least byte first: the times (64-bit floats, nanoseconds after the first), and of 32 bits each what,
//! from, to, partner, serial, bytes, body and heard. docs/bus.md has the fields.

use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde::Serialize;

use super::{Bodies, Diagram};
use crate::model::NONE;
use crate::model::peers::PeerId;
use crate::model::texts::Text;
use report::figure::nanoseconds;
use wire::MessageType;

/// So many bytes of decoded bodies are on a page; those after them are left out, and the page says so.
pub(crate) const LARGEST_BODIES: usize = 24 << 20;

#[derive(Serialize)]
struct Head<'a> {
    start_ms: u64,
    frame_ns: f64,
    texts: Vec<&'a str>,
    whats: Vec<(u8, u32, u32, u32, u32, u32, u8)>,
    peers: Vec<Column>,
    fans: Vec<Vec<usize>>,
    bodies: Vec<&'a str>,
    bodies_left_out: u64,
    buses: Vec<String>,
    losses: Vec<Loss>,
    /// Calls without an answer: their place, how long was waited in nanoseconds, and the place of the last message by then.
    waits: Vec<(u32, f64, u32)>,
}

#[derive(Serialize)]
struct Column {
    title: (String, String),
    name: String,
    bus: String,
    first: u32,
    last: u32,
}

#[derive(Serialize)]
struct Loss {
    before: u32,
    count: u64,
}

/// Numbers small texts in the order in which they are met.
struct Numbers<'a> {
    all: Vec<&'a str>,
    of: HashMap<Text, u32>,
}

/// Returns the data of a page: base64.
///
/// # Errors
///
/// An error of `serde_json` or the compressor; the data written here cannot cause one.
pub(super) fn data(
    diagram: &Diagram<'_>,
    bodies: &Bodies,
    frame: Duration,
) -> std::io::Result<String> {
    let model = diagram.model;
    let mut texts = Numbers { all: vec![""], of: HashMap::from([(Text::NONE, 0)]) };
    let mut whats = Vec::new();
    let mut what_of = HashMap::new();
    let mut fans: Vec<Vec<usize>> = vec![Vec::new()];
    let mut fan_of: HashMap<Vec<usize>, u32> = HashMap::from([(Vec::new(), 0)]);
    let place: HashMap<u32, u32> =
        (0..).zip(&diagram.numbers).map(|(at, number)| (*number, at)).collect();
    let start_ns = diagram.rows().next().map_or(0, |(_, row)| row.at_ns);
    let mut seen = vec![(u32::MAX, 0_u32); diagram.columns.len()];
    let mut times: Vec<u8> = Vec::with_capacity(diagram.len() * 8);
    let mut columns: [Vec<u8>; 8] = Default::default();
    let mut waits = Vec::new();
    for (at, (number, row)) in (0_u32..).zip(diagram.rows()) {
        let named = model.named(row);
        let mut text = |text: Text| {
            let next = u32::try_from(texts.all.len()).unwrap_or(0);
            *texts.of.entry(text).or_insert_with(|| {
                texts.all.push(model.texts.get(text));
                next
            })
        };
        let kind = match row.kind {
            MessageType::Call => 0,
            MessageType::Return => 1,
            MessageType::Error => 2,
            MessageType::Signal => 3,
            MessageType::Other(_) => 4,
        };
        let what = (
            kind,
            text(named.interface),
            text(named.member),
            text(named.path),
            text(row.error),
            text(row.signature),
            row.flags.0 & 1,
        );
        let next = u32::try_from(whats.len()).unwrap_or(0);
        let what = *what_of.entry(what).or_insert_with(|| {
            whats.push(what);
            next
        });
        if let Some(waited_ns) = model.waited_ns(row) {
            let until_ns = row.at_ns.saturating_add(waited_ns);
            let is_by_then =
                |number: &u32| model.row(*number).is_some_and(|it| it.at_ns <= until_ns);
            let end = diagram.numbers.partition_point(is_by_then).saturating_sub(1);
            let end = u32::try_from(end).unwrap_or(at).max(at);
            waits.push((at, nanoseconds(Duration::from_nanos(waited_ns)), end));
        }
        let from = diagram.column(row.sender);
        let to = Some(row.receiver).filter(|peer| *peer != PeerId::NONE);
        let to = to.and_then(|peer| diagram.column(peer));
        for column in [from, to].into_iter().flatten() {
            seen[column] = (seen[column].0.min(at), at);
        }
        let index = |column: Option<usize>| {
            column.and_then(|column| u32::try_from(column).ok()).unwrap_or(NONE)
        };
        // Who heard it and is not drawn otherwise has no column.
        let heard: Vec<usize> =
            model.hearers(row).iter().filter_map(|peer| diagram.column(*peer)).collect();
        let next = u32::try_from(fans.len()).unwrap_or(0);
        let fan = *fan_of.entry(heard).or_insert_with_key(|heard| {
            fans.push(heard.clone());
            next
        });
        #[expect(clippy::cast_precision_loss, reason = "a capture is shorter than 104 days")]
        let time = row.at_ns.saturating_sub(start_ns) as f64;
        times.extend(time.to_le_bytes());
        let body = bodies.of.get(number as usize).copied().unwrap_or(Text::NONE);
        let body = u32::try_from(body.index()).unwrap_or(0);
        let partner = place.get(&row.partner).copied().unwrap_or(NONE);
        let values = [what, index(from), index(to), partner, row.serial, row.length, body, fan];
        for (column, value) in columns.iter_mut().zip(values) {
            column.extend(value.to_le_bytes());
        }
    }
    let head = Head {
        start_ms: start_ns / 1_000_000,
        frame_ns: nanoseconds(frame),
        texts: texts.all,
        whats,
        peers: (0..diagram.columns.len())
            .map(|at| Column {
                title: diagram.title(at),
                name: diagram.about(at),
                bus: model
                    .peers
                    .get(diagram.columns[at])
                    .map_or(String::new(), |peer| model.bus_label(peer.bus)),
                first: seen[at].0,
                last: seen[at].1,
            })
            .collect(),
        fans,
        bodies: bodies.texts.iter().collect(),
        bodies_left_out: bodies.left_out,
        waits,
        buses: model.buses.iter().map(|(_, label)| label.clone()).collect(),
        losses: model
            .losses
            .iter()
            .map(|loss| {
                let before = diagram.numbers.partition_point(|number| *number < loss.before);
                Loss { before: u32::try_from(before).unwrap_or(NONE), count: loss.count }
            })
            .collect(),
    };
    let json = serde_json::to_vec(&head)?;
    let mut packer = ZlibEncoder::new(Vec::new(), Compression::fast());
    let number = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    packer.write_all(&number(json.len()))?;
    packer.write_all(&number(diagram.len()))?;
    packer.write_all(&json)?;
    let align = |packer: &mut ZlibEncoder<Vec<u8>>, length: usize| {
        packer.write_all(&[0; 8][..length.next_multiple_of(8) - length])
    };
    align(&mut packer, 8 + json.len())?;
    packer.write_all(&times)?;
    for column in &columns {
        packer.write_all(column)?;
        align(&mut packer, column.len())?;
    }
    Ok(base64(&packer.finish()?))
}

/// Writes bytes as RFC 4648 does, section 4.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let byte = |at: usize| part.get(at).copied().map_or(0, u32::from);
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let letter = LETTERS[(group >> (18 - 6 * at) & 63) as usize];
            text.push(if at > part.len() { '=' } else { char::from(letter) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_is_that_of_the_specification() {
        let vectors = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (bytes, text) in vectors {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
