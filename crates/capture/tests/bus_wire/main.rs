//! Messages of every type, in either order of bytes, whole and damaged, decode as libdbus decodes them; and the bodies
//! of the fuzz targets are replayed.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test fails by panics, and says so if it is skipped"
)]

extern crate unjank_capture as capture;

#[path = "../../../../fuzz/src/bus.rs"]
#[expect(unreachable_pub, reason = "the file belongs to another crate")]
mod bus;
mod random;

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use wire::body::{BodyValue, check, values};
use wire::{self, MessageType};

use random::Random;

/// Says that a test is skipped, which is a failure where nothing may be skipped.
fn skip(why: &str) {
    assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL: {why}");
    eprintln!("SKIPPED: {why}");
}

/// Builds a C program beside us with a library; none without a compiler or the library.
fn built(dir: &Path, name: &str, library: &str) -> Option<Command> {
    let flags = Command::new("pkg-config").args(["--cflags", "--libs", library]).output().ok()?;
    if !flags.status.success() {
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bus_wire").join(name);
    let program = dir.join("peer");
    let flags = String::from_utf8(flags.stdout).unwrap();
    let mut compiler = Command::new("gcc");
    compiler.arg("-O1").arg("-o").arg(&program).arg(source).args(flags.split_whitespace());
    assert!(compiler.status().ok()?.success(), "{name}");
    Some(Command::new(program))
}

fn hex(text: &str) -> String {
    let digits: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("\"{digits}\"")
}

/// Says what we find in a message, as the C program says it.
fn ours(bytes: &[u8]) -> String {
    // The others take the first message that they find, whatever follows it.
    let length = wire::length(bytes).map_or(bytes.len(), |length| usize::try_from(length).unwrap());
    let bytes = &bytes[..length.min(bytes.len())];
    let header = match wire::message(bytes) {
        Ok(header) if !header.is_cut() && check(&header).is_ok() => header,
        _ => return "refused".to_owned(),
    };
    let kind = match header.kind {
        MessageType::Call => 1,
        MessageType::Return => 2,
        MessageType::Error => 3,
        MessageType::Signal => 4,
        MessageType::Other(other) => other,
    };
    let bit = u8::from;
    let mut text = format!(
        "{kind} {} {} flags={}{}{}",
        header.serial,
        header.reply_serial.map_or(0, std::num::NonZeroU32::get),
        bit(header.flags.no_reply_expected()),
        bit(header.flags.no_auto_start()),
        bit(header.flags.allow_interactive_authorization()),
    );
    for (name, field) in [
        ("path", header.path),
        ("interface", header.interface),
        ("member", header.member),
        ("error", header.error_name),
        ("destination", header.destination),
        ("sender", header.sender),
        ("signature", Some(header.signature)),
    ] {
        if let Some(field) = field {
            write!(text, " {name}={}", hex(field)).unwrap();
        }
    }
    values(&header).for_each(|value| shown(&mut text, &value.unwrap()));
    text
}

fn shown(text: &mut String, value: &BodyValue<'_>) {
    match value {
        BodyValue::Byte(number) => write!(text, " y:{number}"),
        BodyValue::Boolean(truth) => write!(text, " b:{}", u8::from(*truth)),
        BodyValue::Int16(number) => write!(text, " n:{number}"),
        BodyValue::Uint16(number) => write!(text, " q:{number}"),
        BodyValue::Int32(number) => write!(text, " i:{number}"),
        BodyValue::Uint32(number) => write!(text, " u:{number}"),
        BodyValue::Int64(number) => write!(text, " x:{number}"),
        BodyValue::Uint64(number) => write!(text, " t:{number}"),
        BodyValue::Double(number) => write!(text, " d:{:016x}", number.to_bits()),
        BodyValue::Text(inside) => write!(text, " s:{}", hex(inside)),
        BodyValue::Path(inside) => write!(text, " o:{}", hex(inside)),
        BodyValue::Signature(inside) => write!(text, " g:{}", hex(inside)),
        BodyValue::Descriptor(_) => write!(text, " h"),
        BodyValue::Bytes(bytes) => {
            text.push_str(" [");
            bytes.iter().for_each(|byte| write!(text, " y:{byte}").unwrap());
            write!(text, " ]")
        }
        BodyValue::Array(array) => {
            text.push_str(" [");
            array.items().for_each(|item| shown(text, &item.unwrap()));
            write!(text, " ]")
        }
        BodyValue::Structure(members) => {
            text.push_str(" (");
            members.iter().for_each(|member| shown(text, member));
            write!(text, " )")
        }
        BodyValue::Entry(entry) => {
            text.push_str(" (");
            shown(text, &entry.0);
            shown(text, &entry.1);
            write!(text, " )")
        }
        BodyValue::Variant(types, inside) => {
            write!(text, " <{types}").unwrap();
            shown(text, inside);
            write!(text, " >")
        }
    }
    .unwrap();
}

#[test]
fn messages_decode_as_libdbus_decodes_them() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut peer) = built(dir.path(), "libdbus.c", "dbus-1") else {
        return skip("no gcc or no libdbus-1-dev");
    };
    let seed = 20_261_121;
    let mut random = Random::new(seed);
    let mut messages: Vec<Vec<u8>> = Vec::new();
    for _ in 0..1500 {
        let whole = random.message();
        for _ in 0..4 {
            messages.push(random.damaged(&whole));
        }
        messages.push(whole);
    }
    let theirs = asked(&mut peer, &messages);
    let mut accepted = 0;
    for (message, theirs) in messages.iter().zip(theirs) {
        let ours = ours(message);
        assert_eq!(ours, theirs, "seed {seed}: {}", message.escape_ascii());
        accepted += usize::from(ours != "refused");
    }
    // Both must have something to say: most of what is whole, and some of what is damaged.
    assert!((1500..messages.len()).contains(&accepted), "{accepted} accepted");
}

/// Gives messages to a program and returns its lines, one for each.
fn asked(peer: &mut Command, messages: &[Vec<u8>]) -> Vec<String> {
    let mut input = Vec::new();
    for message in messages {
        input.extend(u32::try_from(message.len()).unwrap().to_ne_bytes());
        input.extend(message);
    }
    let mut child = peer.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // What the program thinks of its input is seen in its output.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{} after {:?}", output.status, text.lines().last());
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), messages.len());
    lines
}

#[test]
fn messages_decode_as_sd_bus_decodes_them() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut peer) = built(dir.path(), "sdbus.c", "libsystemd") else {
        return skip("no gcc or no libsystemd-dev");
    };
    let mut random = Random::new(7);
    let is_for_it = |message: &Vec<u8>| {
        // It drops types that it does not know, refuses what Unicode has no character for, and has no descriptors.
        let has = |text: &[u8]| message.windows(text.len()).any(|bytes| bytes == text);
        let odd = has("\u{fffe}".as_bytes()) || has("\u{10ffff}".as_bytes());
        let ours = ours(message);
        let descriptor = ours.split(' ').any(|word| word == "h");
        // Nor does it take a call or a signal that answers something.
        let answers = ours.split(' ').nth(2) != Some("0");
        message[1] <= 4 && !odd && !descriptor && (!answers || matches!(message[1], 2 | 3))
    };
    let messages: Vec<Vec<u8>> =
        std::iter::repeat_with(|| random.message()).take(1500).filter(is_for_it).collect();
    assert!(messages.len() > 300);
    let theirs = asked(&mut peer, &messages);
    for (message, theirs) in messages.iter().zip(theirs) {
        // It says of calls alone whether an answer is wanted and whether somebody may be asked.
        let mut ours = ours(message);
        let flags = ours.find("flags=").unwrap() + "flags=".len();
        if message[1] != 1 {
            ours.replace_range(flags..=flags, "0");
            ours.replace_range(flags + 2..flags + 3, "0");
        }
        assert_eq!(ours, theirs, "{}", message.escape_ascii());
    }
}

/// The files of a target's corpus.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = std::fs::read_dir(directory).unwrap();
    let bytes: Vec<Vec<u8>> =
        files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    assert!(!bytes.is_empty());
    bytes
}

#[test]
fn any_message_is_read_or_refused() {
    let mut random = Random::new(1);
    for seed in corpus("bus_message") {
        bus::message(&seed);
        (0..200).for_each(|_| bus::message(&random.damaged(&seed)));
    }
}

#[test]
fn any_record_is_read_or_refused() {
    let mut random = Random::new(2);
    for seed in corpus("bus_record") {
        bus::record(&seed);
        (0..60).for_each(|_| bus::record(&random.damaged(&seed)));
    }
}

#[test]
fn any_text_is_a_filter_a_rule_or_a_description_or_none() {
    type Body = fn(&[u8]);
    let bodies: [(&str, Body); 3] = [
        ("bus_filter", bus::filter),
        ("bus_rules", bus::rules),
        ("bus_introspection", bus::introspection),
    ];
    let mut random = Random::new(3);
    for (target, body) in bodies {
        for seed in corpus(target) {
            body(&seed);
            (0..200).for_each(|_| body(&random.damaged(&seed)));
        }
    }
}
