//! Messages of any types and values, the same for the same seed.

use wire::write::{Draft, Marshal};
use wire::{Endian, MessageType};

/// A generator that gives the same messages for the same seed.
pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(fastrand::Rng::with_seed(seed))
    }

    fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    pub(crate) fn below(&mut self, below: usize) -> usize {
        self.0.usize(..below.max(1))
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn basic(&mut self) -> String {
        char::from(self.pick(b"ybnqiuxtdsogh")).to_string()
    }

    /// One complete type.
    fn types(&mut self, depth: usize) -> String {
        match if depth == 0 { 0 } else { self.below(8) } {
            0..=3 => self.basic(),
            4 => format!("a{}", self.types(depth - 1)),
            5 => format!("a{{{}{}}}", self.basic(), self.types(depth - 1)),
            6 => {
                let members: String = (0..=self.below(3)).map(|_| self.types(depth - 1)).collect();
                format!("({members})")
            }
            _ => "v".to_owned(),
        }
    }

    fn text(&mut self) -> String {
        let letters = ["a", "Z", "9", "_", " ", "\n", "ä", "€", "\u{fffe}", "\u{10ffff}"];
        (0..self.below(12)).map(|_| self.pick(&letters)).collect()
    }

    fn path(&mut self) -> String {
        let elements: String =
            (0..self.below(4)).map(|n| format!("/e{n}_{}", self.below(9))).collect();
        if elements.is_empty() { "/".to_owned() } else { elements }
    }

    /// Writes a value whose type the text begins with, and returns what follows.
    fn value<'t>(&mut self, out: &mut Marshal, types: &'t str, depth: usize) -> &'t str {
        let rest = &types[1..];
        match types.as_bytes()[0] {
            b'y' => out.raw(&[self.next().to_le_bytes()[3]]),
            b'b' => out.u32(u32::from(self.next() & 64 != 0)),
            b'n' | b'q' => {
                out.pad(2);
                out.raw(&self.next().to_le_bytes()[2..4]);
            }
            // libdbus has none of the descriptors that a number would be the place of.
            b'i' | b'u' | b'h' => out.u32(u32::try_from(self.next() >> 32).unwrap()),
            b'x' | b't' | b'd' => out.u64(self.next()),
            b's' => out.text(&self.text()),
            b'o' => out.text(&self.path()),
            b'g' => out.signature(&self.types(2)),
            b'v' => {
                let inside = self.types(depth);
                out.signature(&inside);
                self.value(out, &inside, depth.saturating_sub(1));
            }
            b'(' | b'{' => {
                out.pad(8);
                let mut rest = rest;
                while !rest.starts_with([')', '}']) {
                    rest = self.value(out, rest, depth);
                }
                return &rest[1..];
            }
            _ => {
                let alignment = match rest.as_bytes()[0] {
                    b'y' | b'g' | b'v' => 1,
                    b'n' | b'q' => 2,
                    b'x' | b't' | b'd' | b'(' | b'{' => 8,
                    _ => 4,
                };
                let count = self.below(4);
                out.array(alignment, |out| {
                    for _ in 0..count {
                        self.value(out, rest, depth);
                    }
                });
                return self.after(types);
            }
        }
        rest
    }

    /// Returns what follows the complete type that a text begins with.
    fn after<'t>(&self, types: &'t str) -> &'t str {
        wire::signature::first(types).unwrap().1
    }

    /// A whole message.
    pub(crate) fn message(&mut self) -> Vec<u8> {
        let endian = self.pick(&[Endian::Little, Endian::Big]);
        let signature: String = (0..self.below(5)).map(|_| self.types(3)).collect();
        let signature = if signature.len() > 255 { "s".to_owned() } else { signature };
        let mut body = Marshal::new(endian);
        let mut rest = &*signature;
        while !rest.is_empty() {
            rest = self.value(&mut body, rest, 2);
        }
        let body = body.bytes();
        let path = self.path();
        let kind = self.pick(&[
            MessageType::Call,
            MessageType::Return,
            MessageType::Error,
            MessageType::Signal,
            MessageType::Other(9),
        ]);
        let answers = matches!(kind, MessageType::Return | MessageType::Error);
        let draft = Draft {
            flags: self.next().to_le_bytes()[0] & 7,
            reply_serial: if answers || self.below(9) == 0 { 7 } else { 0 },
            path: if answers { "" } else { &path },
            interface: if answers { "" } else { self.pick(&["org.a.B", "_a.b_"]) },
            member: if answers { "" } else { self.pick(&["Get", "_9"]) },
            error_name: if kind == MessageType::Error { "org.a.Error" } else { "" },
            destination: self.pick(&["", ":1.7", "org.a-b.C"]),
            sender: self.pick(&["", ":1.42", "org.freedesktop.DBus"]),
            signature: &signature,
            body: &body,
            endian,
            ..Draft::new(kind, u32::try_from(self.below(1 << 30)).unwrap() + 1)
        };
        draft.bytes()
    }

    /// The same with a byte or a few changed, or cut.
    pub(crate) fn damaged(&mut self, message: &[u8]) -> Vec<u8> {
        let mut bytes = message.to_vec();
        for _ in 0..=self.below(3) {
            if bytes.is_empty() {
                break;
            }
            let at = self.below(bytes.len());
            match self.below(12) {
                0 => bytes.truncate(at),
                1 => bytes.push(0),
                2..=5 => bytes[at] = self.pick(&[0, 1, 4, 8, b'a', b's', b'(', b'{', b'v', 0xff]),
                _ => bytes[at] ^= 1 << self.below(8),
            }
        }
        bytes
    }
}
