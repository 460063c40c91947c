//! Text logs: `dbus-monitor --profile`, and Bustle's before it wrote pcap. They have headers and no bodies.
//!
//! Fields are separated by tabs: the kind (`mc`, `mr`, `err`, `sig`), the time as `1234.567890` or as two fields, the
//! serial, for answers the serial that they answer, sender, destination, path, interface, member; signals have no
//! destination in Bustle's. Bustle also has `nameownerchanged` with the time, the name, its old and its new owner.

use super::event::{CaptureEvent, CaptureTime, CapturedBus, CapturedMessage};
use wire::write::{Draft, Marshal};
use wire::{self, Endian, MessageType};

const KINDS: [&str; 5] = ["mc", "mr", "err", "sig", "nameownerchanged"];
const DRIVER: &str = "org.freedesktop.DBus";

/// Returns whether this begins as such a log does.
pub(super) fn is_one(bytes: &[u8]) -> bool {
    let lines = bytes.split(|byte| *byte == b'\n').take(8);
    let mut lines = lines.filter(|line| !line.starts_with(b"#") && !line.is_empty());
    let first = lines.next().and_then(|line| std::str::from_utf8(line).ok());
    first.and_then(|line| line.split_once('\t')).is_some_and(|(kind, _)| KINDS.contains(&kind))
}

/// Gives each event of the log to `take`, and returns how many lines are none, or were not taken.
pub(super) fn events(bytes: &[u8], take: &mut dyn FnMut(&CaptureEvent<'_>) -> bool) -> u64 {
    let is_taken = take(&CaptureEvent::Bus(Box::new(CapturedBus::numbered(0))));
    let mut missed = u64::from(!is_taken);
    for line in bytes.split(|byte| *byte == b'\n') {
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let message = std::str::from_utf8(line).ok().and_then(message);
        // Only what would be a message on a bus is one here.
        match message.filter(|(_, bytes)| wire::message(bytes).is_ok()) {
            Some((at, bytes)) => {
                let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                let message = CapturedMessage { at, bus: 0, length, bytes: &bytes };
                missed += u64::from(!take(&CaptureEvent::Message(message)));
            }
            None => missed += 1,
        }
    }
    missed
}

/// Reads a line.
fn message(line: &str) -> Option<(CaptureTime, Vec<u8>)> {
    let mut fields = line.split('\t');
    let kind = fields.next()?;
    let at = time(&mut fields)?;
    if kind == "nameownerchanged" {
        return Some((at, owner_changed(&mut fields)?));
    }
    let mut text = || fields.next().map(|field| if field == "<none>" { "" } else { field });
    let serial: u32 = text()?.parse().ok()?;
    let draft = match kind {
        "mc" => Draft {
            sender: text()?,
            destination: text()?,
            path: text()?,
            interface: text()?,
            member: text()?,
            ..Draft::new(MessageType::Call, serial)
        },
        "mr" | "err" => {
            let is_error = kind == "err";
            Draft {
                // The log does not say which error it was.
                error_name: if is_error { "org.freedesktop.DBus.Error.Failed" } else { "" },
                ..answer(
                    if is_error { MessageType::Error } else { MessageType::Return },
                    serial,
                    &mut text,
                )?
            }
        }
        "sig" => {
            let sender = text()?;
            let rest: Vec<&str> = std::iter::from_fn(text).collect();
            let (destination, rest) = match rest[..] {
                [destination, path, interface, member] => (destination, [path, interface, member]),
                [path, interface, member] => ("", [path, interface, member]),
                _ => return None,
            };
            let [path, interface, member] = rest;
            Draft {
                sender,
                destination,
                path,
                interface,
                member,
                ..Draft::new(MessageType::Signal, serial)
            }
        }
        _ => return None,
    };
    Some((at, draft.bytes()))
}

/// Reads the rest of an answer: the newer order has the serial that is answered at the end, the older before the names.
fn answer<'l>(
    kind: MessageType,
    serial: u32,
    mut text: impl FnMut() -> Option<&'l str>,
) -> Option<Draft<'l>> {
    let [first, second, third] = [text()?, text()?, text()?];
    let (sender, destination, reply) = match first.parse::<u32>() {
        Ok(reply) => (second, third, reply),
        Err(_) => (first, second, third.parse().ok()?),
    };
    Some(Draft { sender, destination, reply_serial: reply, ..Draft::new(kind, serial) })
}

/// Reads a time: seconds and microseconds in two fields, or seconds with a fraction in one.
fn time<'l>(fields: &mut impl Iterator<Item = &'l str>) -> Option<CaptureTime> {
    let first = fields.next()?;
    let (seconds, micros) = match first.split_once('.') {
        Some((seconds, fraction)) => {
            let digits = format!("{fraction:0<6}");
            (seconds, digits.get(..6)?.parse::<u64>().ok()?)
        }
        None => (first, fields.next()?.parse::<u64>().ok()?),
    };
    let seconds: u64 = seconds.parse().ok()?;
    let nanoseconds = seconds.checked_mul(1_000_000_000)?.checked_add(micros.checked_mul(1000)?)?;
    Some(CaptureTime(nanoseconds))
}

/// Writes the signal that such a line is about; `!` is nobody.
fn owner_changed<'l>(fields: &mut impl Iterator<Item = &'l str>) -> Option<Vec<u8>> {
    let mut text = || fields.next().map(|field| if field == "!" { "" } else { field });
    let mut body = Marshal::new(Endian::Little);
    for _ in 0..3 {
        body.text(text()?);
    }
    let body = body.bytes();
    let draft = Draft {
        sender: DRIVER,
        path: "/org/freedesktop/DBus",
        interface: DRIVER,
        member: "NameOwnerChanged",
        signature: "sss",
        body: &body,
        ..Draft::new(MessageType::Signal, 1)
    };
    Some(draft.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::{Capture, RecordFormat};
    use wire::body::values;

    fn headers(log: &str) -> Vec<String> {
        let capture = Capture::of(log.as_bytes().to_vec()).unwrap();
        assert_eq!(capture.format(), RecordFormat::Log);
        let shown = capture.events().filter_map(|event| match event {
            CaptureEvent::Message(message) => {
                let header = wire::message(message.bytes).unwrap();
                Some(format!(
                    "{} {:?} {:?} {:?} {} {}",
                    message.at.0,
                    header.kind,
                    header.sender,
                    header.member,
                    header.reply_serial.map_or(0, std::num::NonZeroU32::get),
                    values(&header).count()
                ))
            }
            CaptureEvent::Damaged(damaged) => Some(damaged.what.clone()),
            _ => None,
        });
        shown.collect()
    }

    #[test]
    fn the_older_log_is_read() {
        let log = "mc\t12\t34\t5\t:1.1\torg.a\t/a\t<none>\tGet\n\
                   mr\t12\t99\t8\t5\t:1.2\t:1.1\n\
                   err\t13\t0\t9\t5\t:1.2\t:1.1\n\
                   sig\t13\t1\t10\t:1.2\t/a\torg.a\tChanged\n\
                   nameownerchanged\t14\t0\t:1.3\t!\t:1.3\n\
                   mc\tsoon\n";
        assert_eq!(
            headers(log),
            [
                "12000034000 Call Some(\":1.1\") Some(\"Get\") 0 0",
                "12000099000 Return Some(\":1.2\") None 5 0",
                "13000000000 Error Some(\":1.2\") None 5 0",
                "13000001000 Signal Some(\":1.2\") Some(\"Changed\") 0 0",
                "14000000000 Signal Some(\"org.freedesktop.DBus\") Some(\"NameOwnerChanged\") 0 3",
                "1 lines say nothing",
            ]
        );
    }

    #[test]
    fn the_newer_log_is_read() {
        let log = "#type\ttimestamp\tserial\tsender\tdestination\tpath\tinterface\tmember\n\
                   #\t\t\t\t\tin_reply_to\n\
                   sig\t1763740000.123456\t2\torg.freedesktop.DBus\t:1.1\t/org/freedesktop/DBus\torg.freedesktop.DBus\tNameAcquired\n\
                   mr\t1763740000.5\t3\t:1.2\t:1.1\t7\n";
        assert_eq!(
            headers(log),
            [
                "1763740000123456000 Signal Some(\"org.freedesktop.DBus\") Some(\"NameAcquired\") 0 0",
                "1763740000500000000 Return Some(\":1.2\") None 7 0",
            ]
        );
    }
}
