//! GVariant: the serialised form (GVariant specification), its normal form and its text form.

use super::ByteOrder;

/// A valid type string of one complete type, for example `a{sv}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Type<'a>(&'a str);

impl<'a> Type<'a> {
    /// Checks that `text` is exactly one complete, definite type.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Type<'a>> {
        let _ = text;
        todo!()
    }

    /// Returns the type string.
    #[must_use]
    pub fn as_str(self) -> &'a str {
        self.0
    }
}

/// A value of any type in serialised form, borrowed from bytes that nobody has checked.
///
/// As in GLib every byte sequence decodes: a malformed part reads as the default value of its type.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    ty: Type<'a>,
    bytes: &'a [u8],
    order: ByteOrder,
}

impl<'a> View<'a> {
    /// Reads `bytes` as a value of type `ty`.
    #[must_use]
    pub fn new(ty: Type<'a>, bytes: &'a [u8], order: ByteOrder) -> View<'a> {
        View { ty, bytes, order }
    }

    /// Reads `bytes` as a serialised `v` and returns what is inside it.
    #[must_use]
    pub fn inside(bytes: &'a [u8], order: ByteOrder) -> View<'a> {
        let _ = (bytes, order);
        todo!()
    }

    /// Returns the type of the value.
    #[must_use]
    pub fn ty(self) -> Type<'a> {
        self.ty
    }

    /// Returns the number of children of a container (0 for a basic type).
    #[must_use]
    pub fn len(self) -> usize {
        todo!()
    }

    /// Says whether a container has no children.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns child `index`: of an array, tuple, dict entry, maybe or `v`.
    #[must_use]
    pub fn child(self, index: usize) -> Option<View<'a>> {
        let _ = (index, self.bytes, self.order);
        todo!()
    }

    /// Returns the string of an `s`, `o` or `g`; `None` for other types.
    #[must_use]
    pub fn as_str(self) -> Option<&'a str> {
        todo!()
    }

    /// Copies the value in normal form and native byte order.
    #[must_use]
    pub fn to_variant(self) -> Variant {
        todo!()
    }
}

/// An owned value of any type: the bytes of a serialised `v` (child, 0, type string), in normal
/// form and native byte order. Equal bytes are equal values and the other way round.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Variant(Box<[u8]>);

impl Variant {
    /// Returns the bytes of the `v`, as a gvdb item or a `mv` of a changeset holds them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the value inside.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View::inside(&self.0, ByteOrder::NATIVE)
    }

    /// Parses the text form as `dconf write` does; `ty` is what the text must be if it is given.
    ///
    /// # Errors
    ///
    /// Says what is wrong and where, in GLib's words.
    pub fn parse(ty: Option<Type<'_>>, text: &str) -> Result<Variant, ParseError> {
        let _ = (ty, text);
        todo!()
    }

    /// Prints the text form, with type annotations as `dconf read` prints them (`g_variant_print` with TRUE).
    #[must_use]
    pub fn print(&self) -> String {
        todo!()
    }
}

impl std::fmt::Debug for Variant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.print())
    }
}

/// Why a text is no value: the text of GLib's error, with the place in front as `dconf` prints it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(pub String);
