//! Values of any type that no careful program would send.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::fixture::SET_A_B;
use super::fixture::random::Random;
use super::host_service::wire::Bytes;

/// The most descriptors that one message carries here.
const MOST_DESCRIPTORS: usize = 12;
/// Containers within each other, of the 64 that D-Bus allows.
const DEEPEST: usize = 20;

/// The longest message: a build without optimisation takes ten times as long to read one.
const LONGEST_BYTES: usize = if cfg!(debug_assertions) { 2 << 20 } else { 24 << 20 };

/// What values are made of.
#[derive(Clone)]
pub struct Materials {
    /// Texts that mean something to somebody.
    pub texts: Vec<String>,
    /// Descriptors of every kind.
    pub descriptors: Vec<Arc<OwnedFd>>,
}

/// The body of a message.
#[derive(Default)]
pub struct Body {
    pub bytes: Bytes,
    pub descriptors: Vec<Arc<OwnedFd>>,
    /// Bytes that may still be added before values become short.
    budget: usize,
}

/// Splits a signature into its complete types.
pub fn types(signature: &str) -> Vec<&str> {
    let mut all = Vec::new();
    let mut rest = signature;
    while !rest.is_empty() {
        let (one, after) = rest.split_at(length_of_type(rest));
        all.push(one);
        rest = after;
    }
    all
}

fn length_of_type(signature: &str) -> usize {
    let bytes = signature.as_bytes();
    let mut at = 0;
    while bytes.get(at) == Some(&b'a') {
        at += 1;
    }
    let mut open = 0;
    loop {
        match bytes[at] {
            b'(' | b'{' => open += 1,
            b')' | b'}' => open -= 1,
            _ => {}
        }
        at += 1;
        if open == 0 {
            return at;
        }
    }
}

fn alignment(ty: &str) -> usize {
    match ty.as_bytes()[0] {
        b'y' | b'g' | b'v' => 1,
        b'n' | b'q' => 2,
        b'x' | b't' | b'd' | b'(' | b'{' => 8,
        _ => 4,
    }
}

/// A signature that may have little to do with any method.
pub fn signature(random: &mut Random) -> String {
    let all = [
        "",
        "s",
        "ss",
        "ay",
        "aay",
        "as",
        "v",
        "vv",
        "a{sv}",
        "h",
        "ah",
        "a{uh}",
        "a{ss}",
        "o",
        "g",
        "(s(s(s)))",
        "aaaaaaay",
        "a{s(vas)}",
        "sa{sv}",
        "d",
        "t",
        "bt",
        "av",
        "a(yyyyyyyyyyyyyyyy)",
        "uub",
        "ayaaya{uh}a{ss}u",
        "ssv",
    ];
    random.pick(&all).to_owned()
}

/// Makes the body of a message with this signature.
pub fn body(random: &mut Random, from: &Materials, signature: &str) -> Body {
    // Most are short, some long, few of the longest that are worth the time.
    let budget = match random.next(300) {
        0 => LONGEST_BYTES,
        1..4 => 2 << 20,
        4..40 => 64 << 10,
        _ => 2 << 10,
    };
    let mut body = Body { budget, ..Body::default() };
    for ty in types(signature) {
        write(random, from, ty, &mut body, 0);
    }
    body
}

/// Makes the arguments of a call that could be meant, with what is hostile in the place of the values only; `None` where any
/// arguments will do.
pub fn plausible(random: &mut Random, from: &Materials, member: &str) -> Option<Body> {
    let mut body = Body { budget: random.pick(&[100, 4 << 10, 64 << 10]), ..Body::default() };
    match member {
        "Add" => {
            let uri = format!("file:///{}", text(random, from, &mut body));
            body.bytes.text(&uri);
            let known = [
                ("mime", "s"),
                ("application", "s"),
                ("exec", "s"),
                ("groups", "as"),
                ("private", "b"),
            ];
            options(random, from, &known, &mut body);
        }
        "HostCommand" | "HostCommandWithOptions" => {
            let directory = bytes(random, from, &mut body);
            body.bytes.bytes(if random.one_in(3) { &directory } else { b"/tmp\0" });
            if random.one_in(3) {
                array(random, from, "ay", &mut body, 1);
            } else {
                body.bytes.array(4, |body| body.bytes(b"true\0"));
            }
            for element in ["{uh}", "{ss}"] {
                if random.one_in(2) {
                    array(random, from, element, &mut body, 1);
                } else {
                    body.bytes.array(8, |_| {});
                }
            }
            let flags = random.pick(&[0, 1, 2, 3]);
            body.bytes.number(flags);
            if member == "HostCommandWithOptions" {
                let known =
                    [("nice", "i"), ("idle", "b"), ("timeout-ms", "t"), ("unset-env", "as")];
                options(random, from, &known, &mut body);
            }
        }
        _ => return None,
    }
    Some(body)
}

/// Writes a dictionary with some of these options.
fn options(random: &mut Random, from: &Materials, known: &[(&str, &str)], body: &mut Body) {
    body.bytes.number(0);
    let length_at = body.bytes.0.len() - 4;
    body.bytes.align(8);
    let start = body.bytes.0.len();
    for (name, ty) in known {
        if random.one_in(3) {
            body.bytes.align(8);
            body.bytes.text(name);
            short_text(body, ty);
            write(random, from, ty, body, 1);
        }
    }
    let length = u32::try_from(body.bytes.0.len() - start).unwrap();
    body.bytes.0[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
}

fn write(random: &mut Random, from: &Materials, ty: &str, body: &mut Body, depth: usize) {
    match ty.as_bytes()[0] {
        b'y' => body.bytes.0.push(random.number().to_le_bytes()[0]),
        b'b' => body.bytes.number(u32::from(random.one_in(2))),
        b'n' | b'q' => {
            body.bytes.align(2);
            body.bytes.0.extend(random.pick(&[0_u16, 1, 0x7fff, 0x8000, 0xffff]).to_le_bytes());
        }
        b'i' | b'u' => {
            let chance = u32::try_from(random.next(0x1_0000_0000)).unwrap();
            let edges =
                [0, 1, 2, 3, 9, 64, 0x7fff_ffff, 0x8000_0000, u32::MAX - 1, u32::MAX, chance];
            body.bytes.number(random.pick(&edges));
        }
        b'x' | b't' | b'd' => {
            body.bytes.align(8);
            let edges = [0, 1, u64::MAX, i64::MAX.cast_unsigned(), 1 << 63, f64::NAN.to_bits()];
            let number = if random.one_in(3) { random.number() } else { random.pick(&edges) };
            body.bytes.0.extend(number.to_le_bytes());
        }
        b'h' => descriptor(random, from, body),
        b's' => {
            let text = text(random, from, body);
            body.bytes.text(&text);
        }
        b'o' => {
            let path = path(random);
            body.bytes.text(&path);
        }
        b'g' => {
            let signature = signature(random);
            short_text(body, &signature);
        }
        b'v' => {
            let inner = if depth >= DEEPEST {
                "y".to_owned()
            } else if random.one_in(3) {
                "v".to_owned()
            } else {
                types(&signature(random)).first().map_or("s", |ty| ty).to_owned()
            };
            short_text(body, &inner);
            write(random, from, &inner, body, depth + 1);
        }
        b'a' => array(random, from, &ty[1..], body, depth),
        _ => {
            body.bytes.align(8);
            for member in types(&ty[1..ty.len() - 1]) {
                write(random, from, member, body, depth + 1);
            }
        }
    }
}

fn short_text(body: &mut Body, text: &str) {
    body.bytes.0.push(u8::try_from(text.len()).unwrap());
    body.bytes.0.extend(text.as_bytes());
    body.bytes.0.push(0);
}

fn descriptor(random: &mut Random, from: &Materials, body: &mut Body) {
    if body.descriptors.len() < MOST_DESCRIPTORS && !random.one_in(20) {
        body.descriptors.push(random.pick(&from.descriptors));
    }
    // Now and then one that did not come along.
    let last = body.descriptors.len().saturating_sub(1);
    let handle = if random.one_in(40) { random.next(1 << 30) } else { last };
    body.bytes.number(u32::try_from(handle).unwrap());
}

fn array(random: &mut Random, from: &Materials, element: &str, body: &mut Body, depth: usize) {
    if element == "y" {
        let bytes = bytes(random, from, body);
        return body.bytes.bytes(&bytes);
    }
    let count = match random.next(8) {
        0 => 0,
        1..4 => 1,
        4..7 => 1 + random.next(6),
        // As many as there is room for.
        _ => usize::MAX,
    };
    let most = body.budget / 2;
    // In place of `Bytes::array`, whose contents have no descriptors.
    body.bytes.number(0);
    let length_at = body.bytes.0.len() - 4;
    body.bytes.align(alignment(element));
    let start = body.bytes.0.len();
    for index in 0..count {
        if body.bytes.0.len() - start > most || depth >= DEEPEST {
            break;
        }
        if count == usize::MAX {
            // Many are short: each costs its reader more than its bytes.
            let budget = std::mem::take(&mut body.budget);
            write(random, from, element, body, depth + 1);
            body.budget = budget;
        } else if index == 0 && element == "ay" {
            let word = random.pick(&["true\0", "true", "/bin/true\0", "\0", ""]);
            body.bytes.bytes(word.as_bytes());
        } else {
            write(random, from, element, body, depth + 1);
        }
    }
    let length = u32::try_from(body.bytes.0.len() - start).unwrap();
    body.bytes.0[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    body.budget = body.budget.saturating_sub(length as usize);
}

fn text(random: &mut Random, from: &Materials, body: &mut Body) -> String {
    let most = body.budget;
    let text = match random.next(12) {
        0 if most > 0 => {
            let unit =
                random.pick(&["a", "/", "\u{202e}", "%41", "\u{1f600}", "\x02", "file:///a/"]);
            let length = random.next(most / 2 + 1);
            unit.repeat(length / unit.len())
        }
        1 => format!("file:///tmp/{}", random.number()),
        2 => format!("{}{}", random.pick(&from.texts), random.pick(&from.texts)),
        _ => random.pick(&from.texts),
    };
    body.budget = most.saturating_sub(text.len());
    text
}

fn path(random: &mut Random) -> String {
    match random.next(4) {
        0 => "/".to_owned(),
        1 => "/a".repeat(1 + random.next(2000)),
        2 => format!("/{}", "x".repeat(1 + random.next(2000))),
        _ => "/ca/desrt/dconf/Writer/user".to_owned(),
    }
}

/// Byte strings: words of a command, directories, changes of settings.
fn bytes(random: &mut Random, from: &Materials, body: &mut Body) -> Vec<u8> {
    let most = body.budget;
    let bytes = match random.next(10) {
        0 => vec![random.pick(&[0, 1, b'/', 0xff]); random.next(most + 1)],
        1 => overlapping(most / 2),
        2 => {
            let length = random.next(most + 1) / 2;
            change(random, length)
        }
        3 => change(random, 10),
        4 => random.pick(&["/tmp\0", "/\0", "/proc/self/fd/3\0", "true\0"]).as_bytes().to_vec(),
        5 => {
            let mut blob = SET_A_B.repeat(1 + random.next(4));
            let at = random.next(blob.len());
            blob[at] = random.number().to_le_bytes()[0];
            blob
        }
        _ => random.pick(&from.texts).into_bytes(),
    };
    body.budget = most.saturating_sub(bytes.len());
    bytes
}

/// A change of one of a few settings to a text of this length.
fn change(random: &mut Random, length: usize) -> Vec<u8> {
    super::fixture::set(&format!("/hostile/key{}", random.next(16)), &"x".repeat(length))
}

/// A dictionary whose entries claim the same bytes again and again: reading them takes the square of their length.
pub fn overlapping(length: usize) -> Vec<u8> {
    let length = length / 8 * 8;
    let body = length / 2;
    let entries = body / 4;
    let mut blob = Vec::with_capacity(length);
    blob.extend(b"/k/");
    blob.resize(body.saturating_sub(9), b'x');
    blob.resize(body.saturating_sub(4), 0);
    blob.resize(body, 0);
    let end = u32::try_from(body).unwrap();
    for index in 0..entries {
        let offset = if index % 2 == 0 { end } else { 0 };
        // The last one says where the offsets begin.
        let offset = if index + 1 == entries { end } else { offset };
        blob.extend(offset.to_le_bytes());
    }
    blob
}
