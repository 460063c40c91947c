//! The names that processes have on D-Bus buses, as the buses themselves say.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use sys::clock::SystemClock;
use sys::stream::{self, Empty};
use wire::body::{BodyValue, values};
use wire::socket::{Deadline, Descriptors, LAST_LINE, LINES, MessageBuffer, answered, connect};
use wire::write::{Draft, Marshal};
use wire::{Endian, MessageType};

/// How long one bus is waited for.
const PATIENCE: Duration = Duration::from_millis(400);
/// The longest answer that is read, in bytes.
const LONGEST: usize = 1 << 20;
/// The most names that are looked up on one bus.
const NAMES: usize = 400;
/// The most descriptors of a daemon among which its socket is looked for.
const DESCRIPTORS: usize = 64;
/// `SO_ACCEPTCON` in the flags of `/proc/net/unix`.
const LISTENS: u32 = 0x1_0000;

/// Asks the daemons among these processes for the well-known names of all processes on their buses.
pub(crate) fn of_buses(daemons: &BTreeSet<u32>) -> BTreeMap<u32, Vec<String>> {
    let mut names: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for daemon in daemons {
        let found = address(*daemon).map_or_else(Vec::new, |address| {
            // A bus that lets us not in has no names for us.
            ask(&address).unwrap_or_default()
        });
        for (process, name) in found {
            let of_process = names.entry(process).or_default();
            if !of_process.contains(&name) {
                of_process.push(name);
            }
        }
    }
    names
}

/// Returns where a process listens, as an address of D-Bus.
fn address(process: u32) -> Option<Vec<u8>> {
    let name = std::fs::read(format!("/proc/{process}/comm")).ok()?;
    if !name.starts_with(b"dbus-") {
        return None;
    }
    let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).ok()?.take(DESCRIPTORS);
    let links = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let inodes: Vec<String> = links
        .filter_map(|link| {
            Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect();
    let table = std::fs::read_to_string(format!("/proc/{process}/net/unix")).ok()?;
    let place = table.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let flags = u32::from_str_radix(words.get(3)?, 16).ok()?;
        let is_own = inodes.iter().any(|inode| words.get(6) == Some(&inode.as_str()));
        (is_own && flags & LISTENS != 0).then(|| words.get(7).map(|place| (*place).to_owned()))?
    })?;
    let escaped = |text: &str| -> String {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-/.*".contains(&byte);
        let escape = |byte: u8| {
            if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02x}") }
        };
        text.bytes().map(escape).collect()
    };
    Some(match place.strip_prefix('@') {
        Some(name) => format!("unix:abstract={}", escaped(name)).into_bytes(),
        None => format!("unix:path={}", escaped(&place)).into_bytes(),
    })
}

/// A connection to a bus.
struct BusClient<'c> {
    socket: OwnedFd,
    messages: MessageBuffer,
    serial: u32,
    deadline: Deadline<'c>,
}

/// Returns the owners of the names on a bus: processes and names.
fn ask(address: &[u8]) -> io::Result<Vec<(u32, String)>> {
    let clock = SystemClock::start();
    let deadline = Deadline::after(&clock, PATIENCE);
    let socket = connect(address, PATIENCE)?;
    stream::send(&socket, LINES, &[])?;
    let begun =
        answered(&socket, Descriptors::Welcome, Some(&deadline)).map_err(io::Error::other)?;
    stream::send(&socket, LAST_LINE, &[])?;
    let messages = MessageBuffer::new(begun, LONGEST);
    let mut client = BusClient { socket, messages, serial: 0, deadline };
    client.call("Hello", None)?;
    let (names, _) = client.call("ListNames", None)?;
    let mut owners = Vec::new();
    for name in names.into_iter().filter(|name| !name.starts_with(':')).take(NAMES) {
        if name != "org.freedesktop.DBus"
            && let Ok((_, Some(process))) = client.call("GetConnectionUnixProcessID", Some(&name))
        {
            owners.push((process, name));
        }
    }
    Ok(owners)
}

impl BusClient<'_> {
    /// Calls the bus itself; returns the texts and the number in its answer.
    fn call(&mut self, member: &str, name: Option<&str>) -> io::Result<(Vec<String>, Option<u32>)> {
        self.serial += 1;
        let mut body = Marshal::new(Endian::Little);
        if let Some(name) = name {
            body.text(name);
        }
        let body = body.bytes();
        let signature = if name.is_some() { "s" } else { "" };
        let draft = Draft { signature, body: &body, ..Draft::to_bus(self.serial, member) };
        stream::send(&self.socket, &draft.bytes(), &[])?;
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        loop {
            while let Some(bytes) = self.messages.take().map_err(|_| invalid())? {
                let message = wire::message(bytes).map_err(|_| invalid())?;
                if message.reply_serial.is_none_or(|to| to.get() != self.serial) {
                    continue;
                }
                if message.kind == MessageType::Error {
                    return Err(io::ErrorKind::NotFound.into());
                }
                let mut texts = Vec::new();
                let mut number = None;
                match values(&message).next() {
                    Some(Ok(BodyValue::Text(text))) => texts.push(text.to_owned()),
                    Some(Ok(BodyValue::Uint32(value))) => number = Some(value),
                    Some(Ok(BodyValue::Array(array))) => {
                        texts.extend(array.items().filter_map(|item| match item {
                            Ok(BodyValue::Text(text)) => Some(text.to_owned()),
                            _ => None,
                        }))
                    }
                    _ => (),
                }
                return Ok((texts, number));
            }
            let left = self.deadline.remaining()?;
            if !sys::socket::wait_readable(&self.socket, Some(left))? {
                continue;
            }
            match stream::receive(&self.socket, self.messages.room(4096), Empty::Fail) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.messages.fill(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}
