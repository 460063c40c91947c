//! Type strings: which are valid, and the alignment and size that follow from a type.

/// The most containers that may nest, in a type string and in a value.
pub const MAX_DEPTH: usize = 128;

/// A valid type string of one complete, definite type, for example `a{sv}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Type<'a>(&'a str);

impl Type<'static> {
    /// `b`
    pub const BOOLEAN: Type<'static> = Type("b");
    /// `y`
    pub const BYTE: Type<'static> = Type("y");
    /// `n`
    pub const INT16: Type<'static> = Type("n");
    /// `q`
    pub const UINT16: Type<'static> = Type("q");
    /// `i`
    pub const INT32: Type<'static> = Type("i");
    /// `u`
    pub const UINT32: Type<'static> = Type("u");
    /// `x`
    pub const INT64: Type<'static> = Type("x");
    /// `t`
    pub const UINT64: Type<'static> = Type("t");
    /// `d`
    pub const DOUBLE: Type<'static> = Type("d");
    /// `s`
    pub const STRING: Type<'static> = Type("s");
    /// `o`
    pub const OBJECT_PATH: Type<'static> = Type("o");
    /// `g`
    pub const SIGNATURE: Type<'static> = Type("g");
    /// `h`
    pub const HANDLE: Type<'static> = Type("h");
    /// `v`
    pub const VARIANT: Type<'static> = Type("v");
    /// `()`
    pub const UNIT: Type<'static> = Type("()");
    /// `ay`
    pub const BYTESTRING: Type<'static> = Type("ay");
    /// `a{smv}`, the body of dconf's `Change`.
    pub const CHANGES: Type<'static> = Type("a{smv}");
}

impl<'a> Type<'a> {
    /// Checks that `text` is exactly one complete, definite type.
    ///
    /// It has at most [`MAX_DEPTH`] nested containers and less than 2^28 characters.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Type<'a>> {
        is_type(text.as_bytes()).then_some(Type(text))
    }

    /// Checks a type string that is still bytes, as a serialised `v` holds it.
    pub(super) fn from_bytes(bytes: &'a [u8]) -> Option<Type<'a>> {
        std::str::from_utf8(bytes).ok().filter(|_| is_type(bytes)).map(Type)
    }

    /// Returns the one-letter type `letter`.
    #[inline]
    pub(super) fn of_letter(letter: u8) -> Option<Type<'static>> {
        LETTERS.get(usize::from(letter.wrapping_sub(b'a')))?.0
    }

    /// Takes a part of a type that is known to be valid.
    pub(super) fn part_of_valid(text: &'a str) -> Type<'a> {
        debug_assert!(Type::parse(text).is_some(), "{text:?} is no type");
        Type(text)
    }

    /// Returns the type string.
    #[must_use]
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// Returns the first character: the basic type, or `a`, `m`, `(`, `{`, `v`.
    #[must_use]
    pub fn kind(self) -> u8 {
        self.0.as_bytes().first().copied().unwrap_or(b'(')
    }

    /// Says whether values of the type have no children.
    #[must_use]
    pub fn is_basic(self) -> bool {
        is_basic(self.kind())
    }

    /// Returns the element type of an array or a maybe.
    #[must_use]
    pub fn element(self) -> Option<Type<'a>> {
        match self.kind() {
            b'a' | b'm' => Some(Type(&self.0[1..])),
            _ => None,
        }
    }

    /// Returns the members of a tuple, or key and value of a dict entry; nothing for other types.
    #[must_use]
    pub fn members(self) -> MemberTypes<'a> {
        match self.kind() {
            b'(' | b'{' => MemberTypes(&self.0[1..self.0.len() - 1]),
            _ => MemberTypes(""),
        }
    }

    /// Returns the alignment in bytes: 1, 2, 4 or 8.
    #[must_use]
    pub fn alignment(self) -> usize {
        self.shape().mask + 1
    }

    /// Returns the size in bytes that all values of the type have, if they have one.
    #[must_use]
    pub fn fixed_size(self) -> Option<usize> {
        let size = self.shape().fixed;
        (size > 0).then_some(size)
    }

    /// Returns how deep values of the type nest, as GLib counts: 1 for a basic type, 0 for `()`.
    pub(super) fn depth(self) -> usize {
        depth_at(self.0.as_bytes()).1
    }

    pub(super) fn shape(self) -> Shape {
        shape_at(self.0.as_bytes()).1
    }
}

impl std::fmt::Display for Type<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

/// The member types of a tuple or dict entry, in order.
#[derive(Clone, Debug)]
pub struct MemberTypes<'a>(&'a str);

impl MemberTypes<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> Iterator for MemberTypes<'a> {
    type Item = Type<'a>;

    fn next(&mut self) -> Option<Type<'a>> {
        let end = scan(self.0.as_bytes(), MAX_DEPTH, Letters::Definite)?;
        let (first, rest) = self.0.split_at(end);
        self.0 = rest;
        Some(Type(first))
    }
}

/// Alignment and size of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// The alignment less one: 0, 1, 3 or 7.
    pub(super) mask: usize,
    /// The size of all values in bytes, or 0 if it varies.
    pub(super) fixed: usize,
}

impl Shape {
    /// Returns the shape of the one-letter type `kind`; strings and `v` vary in size.
    #[inline]
    pub(super) fn of_letter(kind: u8) -> Shape {
        const VARYING: Shape = Shape { mask: 0, fixed: 0 };
        LETTERS.get(usize::from(kind.wrapping_sub(b'a'))).map_or(VARYING, |letter| letter.1)
    }
}

/// The types of one letter and their shapes, from `a` on. Which type the next value has cannot be predicted, so that a
/// branch for each type would cost more than this load.
static LETTERS: [(Option<Type<'static>>, Shape); 26] = {
    let mut letters = [(None, Shape { mask: 0, fixed: 0 }); 26];
    let known = [
        (Type::BOOLEAN, 1),
        (Type::BYTE, 1),
        (Type::INT16, 2),
        (Type::UINT16, 2),
        (Type::INT32, 4),
        (Type::UINT32, 4),
        (Type::HANDLE, 4),
        (Type::INT64, 8),
        (Type::UINT64, 8),
        (Type::DOUBLE, 8),
        (Type::STRING, 0),
        (Type::OBJECT_PATH, 0),
        (Type::SIGNATURE, 0),
    ];
    let mut at = 0;
    while at < known.len() {
        let (ty, fixed) = known[at];
        let mask = if fixed == 0 { 0 } else { fixed - 1 };
        letters[(ty.0.as_bytes()[0] - b'a') as usize] = (Some(ty), Shape { mask, fixed });
        at += 1;
    }
    letters[(b'v' - b'a') as usize] = (Some(Type::VARIANT), Shape { mask: 7, fixed: 0 });
    letters
};

/// Adds members one after another to learn the shape of a tuple.
pub(super) struct TupleShape {
    mask: usize,
    /// The offset behind the last member while all members have a fixed size.
    offset: Option<usize>,
    empty: bool,
    /// No byte so far is padding.
    pub(super) dense: bool,
}

impl TupleShape {
    pub(super) fn new() -> TupleShape {
        TupleShape { mask: 0, offset: Some(0), empty: true, dense: true }
    }

    pub(super) fn add(&mut self, member: Shape) {
        self.empty = false;
        self.mask |= member.mask;
        self.offset = match self.offset {
            Some(offset) if member.fixed > 0 => {
                let start = align(offset, member.mask);
                self.dense &= start == offset;
                Some(start + member.fixed)
            }
            _ => None,
        };
    }

    pub(super) fn finish(&mut self) -> Shape {
        let fixed = match self.offset {
            // The empty tuple takes one byte, so that arrays of it can be counted.
            Some(_) if self.empty => {
                self.dense = false;
                1
            }
            Some(offset) => {
                let end = align(offset, self.mask);
                self.dense &= end == offset;
                end
            }
            None => {
                self.dense = false;
                0
            }
        };
        Shape { mask: self.mask, fixed }
    }
}

/// Rounds `offset` up to a multiple of `mask + 1`; wraps around as GLib's sizes do.
pub(super) fn align(offset: usize, mask: usize) -> usize {
    offset.wrapping_add(mask) & !mask
}

/// Says whether `text` is one complete, definite type.
fn is_type(text: &[u8]) -> bool {
    text.len() < MAX_LEN && scan(text, MAX_DEPTH, Letters::Definite) == Some(text.len())
}

/// Keeps the size of every type of a fixed size well within 32 bits.
const MAX_LEN: usize = 1 << 28;

/// Which one-letter types are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Letters {
    /// Those that say exactly what a value is.
    Definite,
    /// Also `r`, `*` and `?`: what a type declaration in a text may hold before it is refused.
    Any,
}

fn is_basic(letter: u8) -> bool {
    matches!(
        letter,
        b'b' | b'y' | b'n' | b'q' | b'i' | b'u' | b'x' | b't' | b'd' | b's' | b'o' | b'g' | b'h'
    )
}

/// Returns where the complete type at the start of `text` ends, with at most `depth` nested containers.
pub(super) fn scan(text: &[u8], depth: usize, letters: Letters) -> Option<usize> {
    let first = *text.first()?;
    match first {
        b'(' => {
            let depth = depth.checked_sub(1);
            let mut at = 1;
            while *text.get(at)? != b')' {
                at += scan(&text[at..], depth?, letters)?;
            }
            Some(at + 1)
        }
        b'{' => {
            let depth = depth.checked_sub(1)?;
            let key = *text.get(1)?;
            let any_key = key == b'?' && letters == Letters::Any;
            if !any_key && !is_basic(key) {
                return None;
            }
            let at = 2 + scan(text.get(2..)?, depth, letters)?;
            (*text.get(at)? == b'}').then_some(at + 1)
        }
        b'm' | b'a' => Some(1 + scan(&text[1..], depth.checked_sub(1)?, letters)?),
        b'v' => Some(1),
        b'r' | b'*' | b'?' => (letters == Letters::Any).then_some(1),
        letter => is_basic(letter).then_some(1),
    }
}

/// Returns the end and the shape of the type at the start of `text`, which is valid.
fn shape_at(text: &[u8]) -> (usize, Shape) {
    match text.first() {
        Some(b'a' | b'm') => {
            let (end, element) = shape_at(&text[1..]);
            (1 + end, Shape { mask: element.mask, fixed: 0 })
        }
        Some(b'(' | b'{') => {
            let mut tuple = TupleShape::new();
            let mut at = 1;
            while !matches!(text.get(at), None | Some(b')' | b'}')) {
                let (end, member) = shape_at(&text[at..]);
                tuple.add(member);
                at += end;
            }
            (at + 1, tuple.finish())
        }
        Some(&letter) => (1, Shape::of_letter(letter)),
        None => (0, Shape { mask: 0, fixed: 0 }),
    }
}

/// Returns the end and the depth of the type at the start of `text`.
pub(super) fn depth_at(text: &[u8]) -> (usize, usize) {
    match text.first() {
        Some(b'a' | b'm') => {
            let (end, depth) = depth_at(&text[1..]);
            (1 + end, 1 + depth)
        }
        Some(b'(' | b'{') => {
            let (mut at, mut deepest) = (1, 0);
            while !matches!(text.get(at), None | Some(b')' | b'}')) {
                let (end, depth) = depth_at(&text[at..]);
                deepest = deepest.max(1 + depth);
                at += end;
            }
            (at + 1, deepest)
        }
        Some(_) => (1, 1),
        None => (0, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_complete_definite_type_is_a_type() {
        for good in ["b", "ay", "a{sv}", "a{smv}", "()", "(ii)", "mmi", "{sv}", "a(a(ii)(a{sv}b))"]
        {
            assert_eq!(Type::parse(good).map(Type::as_str), Some(good));
        }
        for bad in
            ["", "a", "ii", "(", "(i", "i)", "{vs}", "{s}", "{sss}", "*", "r", "a?", "z", "é"]
        {
            assert_eq!(Type::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn nesting_ends_at_128_containers() {
        let deep = |levels: usize| "a".repeat(levels) + "y";
        assert!(Type::parse(&deep(128)).is_some());
        assert!(Type::parse(&deep(129)).is_none());
        assert!(Type::parse(&"(".repeat(1_000_000)).is_none());
    }

    #[test]
    fn depth_counts_as_glib_does() {
        for (text, depth) in [
            ("i", 1),
            ("ai", 2),
            ("()", 0),
            ("(())", 1),
            ("a()", 1),
            ("(aia{sv})", 4),
            ("aa(m())", 4),
        ] {
            let ty = Type::parse(text).unwrap();
            assert_eq!(ty.depth(), depth, "{text}");
        }
    }

    #[test]
    fn shapes_follow_from_the_members() {
        for (text, alignment, fixed) in [
            ("y", 1, Some(1)),
            ("(yi)", 4, Some(8)),
            ("(iy)", 4, Some(8)),
            ("(y(yx)q)", 8, Some(32)),
            ("()", 1, Some(1)),
            ("(())", 1, Some(1)),
            ("(si)", 4, None),
            ("mi", 4, None),
            ("{yv}", 8, None),
            ("a{sx}", 8, None),
        ] {
            let ty = Type::parse(text).unwrap();
            assert_eq!((ty.alignment(), ty.fixed_size()), (alignment, fixed), "{text}");
        }
    }
}
