//! Random types, values, bytes and texts, all from one seed.

use unjank_gvdb::gvariant::{Type, Variant};

/// A generator that gives the same cases for the same seed.
pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(fastrand::Rng::with_seed(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0.usize(..end)
    }

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    fn basic(&mut self) -> &'static str {
        self.pick(&["b", "y", "n", "q", "i", "u", "x", "t", "d", "s", "s", "o", "g", "h"])
    }

    /// Returns a type that nests at most `depth` levels.
    pub(crate) fn ty(&mut self, depth: usize) -> String {
        if depth == 0 || self.one_in(3) {
            return if self.one_in(5) { "v" } else { self.basic() }.to_owned();
        }
        match self.below(8) {
            0 | 1 => format!("a{}", self.ty(depth - 1)),
            2 => "ay".to_owned(),
            3 => format!("m{}", self.ty(depth - 1)),
            4 => format!("a{{{}{}}}", self.basic(), self.ty(depth - 1)),
            5 => format!("{{{}{}}}", self.basic(), self.ty(depth - 1)),
            _ => {
                let members: String = (0..self.below(5)).map(|_| self.ty(depth - 1)).collect();
                format!("({members})")
            }
        }
    }

    /// Returns a string of characters of all kinds.
    pub(crate) fn string(&mut self) -> String {
        const CHARACTERS: &[char] = &[
            'a',
            'b',
            '\'',
            '"',
            '\\',
            '\n',
            '\t',
            '\u{7}',
            '\u{b}',
            '\u{1b}',
            '\u{7f}',
            'é',
            'ß',
            '€',
            '\u{ad}',
            '\u{200d}',
            '\u{2028}',
            '\u{378}',
            '\u{e000}',
            '\u{feff}',
            '\u{ffff}',
            '😀',
            '\u{e0001}',
            '\u{10ffff}',
            '日',
            ' ',
            '\u{a0}',
            '\u{301}',
        ];
        let len = if self.one_in(20) { 300 } else { 6 };
        (0..self.below(len)).map(|_| CHARACTERS[self.below(CHARACTERS.len())]).collect()
    }

    /// Returns a double of any kind.
    pub(crate) fn double(&mut self) -> f64 {
        match self.below(6) {
            0 => f64::from_bits(self.next()),
            1 => [0.0, -0.0, f64::INFINITY, f64::NAN, -f64::NAN, f64::MAX, 5e-324][self.below(7)],
            2 => f64::from(i32::from_le_bytes(self.next().to_le_bytes()[..4].try_into().unwrap())),
            3 => f64::from(u16::from_le_bytes([1, self.next().to_le_bytes()[0]])) / 1000.0,
            // Exactly between two numbers of 17 digits.
            4 => {
                2_f64.powi(50) + f64::from(u8::from_le_bytes([self.next().to_le_bytes()[0]])) / 4.0
            }
            _ => 10_f64.powi(i32::from(i8::from_le_bytes([self.next().to_le_bytes()[0]])) / 4),
        }
    }

    /// Returns a value of type `ty`.
    pub(crate) fn value(&mut self, ty: Type<'_>) -> Variant {
        let small = self.one_in(2);
        let mut bits = self.next().to_le_bytes();
        if small {
            bits[1..].fill(if self.one_in(2) { 0 } else { 0xff });
        }
        match ty.kind() {
            b'b' => Variant::from(bits[0] & 1 == 1),
            b'y' => Variant::from(bits[0]),
            b'n' => Variant::from(i16::from_le_bytes([bits[0], bits[1]])),
            b'q' => Variant::from(u16::from_le_bytes([bits[0], bits[1]])),
            b'i' => Variant::from(i32::from_le_bytes(bits[..4].try_into().unwrap())),
            b'h' => Variant::handle(i32::from_le_bytes(bits[..4].try_into().unwrap())),
            b'u' => Variant::from(u32::from_le_bytes(bits[..4].try_into().unwrap())),
            b'x' => Variant::from(i64::from_le_bytes(bits)),
            b't' => Variant::from(u64::from_le_bytes(bits)),
            b'd' => Variant::from(self.double()),
            b's' => Variant::from(self.string()),
            b'o' => Variant::object_path(self.pick(&["/", "/a", "/org/x_1/Y"])).unwrap(),
            b'g' => Variant::signature(self.pick(&["", "a{sv}", "(ii)s", "v"])).unwrap(),
            b'v' => {
                let inner = self.ty(2);
                self.value(Type::parse(&inner).unwrap()).boxed()
            }
            b'a' => {
                let element = ty.element().unwrap();
                if element.as_str() == "y" && self.one_in(2) {
                    return Variant::bytestring(self.string().as_bytes());
                }
                let count = if self.one_in(30) { 100 } else { 4 };
                let items: Vec<Variant> =
                    (0..self.below(count)).map(|_| self.value(element)).collect();
                Variant::array(element, items).unwrap()
            }
            b'm' if self.one_in(3) => Variant::nothing(ty.element().unwrap()).unwrap(),
            b'm' => Variant::just(&self.value(ty.element().unwrap())).unwrap(),
            b'{' => {
                let parts: Vec<Variant> = ty.members().map(|member| self.value(member)).collect();
                Variant::entry(&parts[0], &parts[1]).unwrap()
            }
            _ => Variant::tuple(ty.members().map(|member| self.value(member)).collect::<Vec<_>>())
                .unwrap(),
        }
    }

    /// Changes a few bytes, or all.
    pub(crate) fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..1 + self.below(3) {
            let len = bytes.len();
            match self.below(8) {
                0 => bytes.truncate(self.below(len + 1)),
                1 => bytes.insert(self.below(len + 1), self.next().to_le_bytes()[0]),
                2 if len > 0 => drop(bytes.remove(self.below(len))),
                3 if len > 0 => {
                    // Framing offsets stand at the end.
                    let at = len - 1 - self.below(len.min(4));
                    bytes[at] = u8::try_from(self.below(len.min(255) + 1)).unwrap();
                }
                4 if len > 0 => {
                    let at = self.below(len);
                    bytes[at] = 0;
                }
                5 => {
                    let (count, end) = (self.below(24), if self.one_in(2) { 8 } else { 256 });
                    *bytes = (0..count).map(|_| u8::try_from(self.below(end)).unwrap()).collect();
                }
                _ if len > 0 => {
                    let at = self.below(len);
                    bytes[at] = self.next().to_le_bytes()[0];
                }
                _ => bytes.push(0),
            }
        }
    }

    /// Changes a text here and there, by character, word or part of a word.
    pub(crate) fn edit(&mut self, text: &mut String) {
        for _ in 0..1 + self.below(3) {
            let places: Vec<usize> =
                text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let from = places[self.below(places.len())];
            match self.below(4) {
                0 => text.insert_str(from, self.pick(WORDS)),
                1 => {
                    let to = places.iter().copied().find(|&at| at > from).unwrap_or(from);
                    text.replace_range(from..to, "");
                }
                2 => {
                    let to = places.iter().copied().find(|&at| at > from).unwrap_or(from);
                    text.replace_range(from..to, self.pick(WORDS));
                }
                _ => text.truncate(from),
            }
        }
    }

    /// Returns words one after another, some of which make sense together.
    pub(crate) fn soup(&mut self) -> String {
        let count = 1 + self.below(6);
        (0..count).map(|_| self.pick(WORDS)).collect()
    }
}

/// Parts of texts.
const WORDS: &[&str] = &[
    " ",
    ",",
    ", ",
    ":",
    ": ",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "<",
    ">",
    "@",
    "%",
    "'",
    "\"",
    "\\",
    "b'",
    "b\"",
    "''",
    "'a'",
    "'/'",
    "'/a'",
    "\"it's\"",
    "'\\'",
    "'\\u",
    "'\\u00e9'",
    "'\\ud800'",
    "'\\U0001f600'",
    "'\\U00110000'",
    "'\\u0000'",
    "'\\u12'",
    "\\x",
    "\\a\\b\\f\\n\\r\\t\\v",
    "b'\\101\\0a\\777'",
    "true",
    "false",
    "just ",
    "nothing",
    "just",
    "inf",
    "nan",
    "-inf",
    "-nan",
    "infinity",
    "n",
    "j",
    "x",
    "boolean ",
    "byte ",
    "int16 ",
    "uint16 ",
    "int32 ",
    "uint32 ",
    "int64 ",
    "uint64 ",
    "handle ",
    "double ",
    "string ",
    "objectpath ",
    "signature ",
    "nope",
    "0",
    "1",
    "-1",
    "+1",
    "--1",
    "-+1",
    "+-1",
    "007",
    "08",
    "0x",
    "0x1f",
    "0X1F",
    "0xg",
    "-0x80",
    "255",
    "256",
    "-32768",
    "32768",
    "65536",
    "-2147483648",
    "2147483648",
    "4294967296",
    "-9223372036854775808",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "--18446744073709551615",
    "1.5",
    ".5",
    "5.",
    ".",
    "-",
    "1e5",
    "1e",
    "1e400",
    "1e-320",
    "1e-400",
    "0x1p4",
    "0x.8p1",
    "0x1.8p-1074",
    "0x1p-1074",
    "1_0",
    "12ab",
    "@i ",
    "@as ",
    "@ay ",
    "@mi ",
    "@mmi ",
    "@a{sv} ",
    "@(is) ",
    "@* ",
    "@r ",
    "@z",
    "@() ",
    "@v ",
    "@o ",
    "@{sv} ",
    "@a? ",
    "@a{?*} ",
    "[1, 2]",
    "[1, 2.5]",
    "['a', 'b']",
    "[]",
    "[[], [1]]",
    "[[1], ['a']]",
    "()",
    "(1,)",
    "(1, 2)",
    "(1)",
    "{}",
    "{1, 2}",
    "{'a': 1}",
    "{'a': <1>, 'b': <'x'>}",
    "{1: 2, 'a': 3}",
    "{[1]: 2}",
    "{1: 2, 3: 'a'}",
    "<1>",
    "<[]>",
    "<@as []>",
    "[just 1, nothing]",
    "[just 1, 2]",
    "[nothing, 1]",
    "[<1>, <'a'>]",
    "[(1, 'a'), (2, 'b')]",
    "[(1, []), (2, ['b'])]",
    "[{}, {'a': 1}]",
    "[objectpath '/a', '/b']",
    "é",
    "\u{b}",
    "\u{c}",
    "\t",
    "\n",
    "#",
];
