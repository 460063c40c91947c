//! GVariant: the serialised form (GVariant specification), its normal form and its text form.
//!
//! Bytes and texts read as GLib 2.74 reads them, defaults and error texts included; `tests/glib` compares.
//! What differs is told there and here.
//! Bytes that no serialiser writes: a tuple with framing offsets in zero bytes is not taken for normal form, a `v` that
//! holds a type of depth 129 reads as `()`, and a value whose defaults would take far more room than its bytes reads as
//! the default of its type.
//! Texts: an escape that is no character is an error with a text, where GLib fails without one; the place of the error
//! about deep nesting is right, where GLib's is not; characters that are newer than GLib's tables print as themselves.

mod build;
mod changes;
mod double;
mod frame;
mod layout;
mod normal;
mod parse;
mod print;
mod text_rules;
mod types;
mod value;
mod view;
mod writer;

pub use build::BuildError;
pub use changes::{decode_changes, encode_changes};
pub use types::{MAX_DEPTH, MemberTypes, Type};
pub use view::{Children, VariantView};

use super::ByteOrder;

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
    pub fn view(&self) -> VariantView<'_> {
        VariantView::inside(&self.0, ByteOrder::NATIVE)
    }

    /// Parses the text form as `dconf write` does; `ty` is what the text must be if it is given.
    ///
    /// # Errors
    ///
    /// Says what is wrong and where, in GLib's words.
    pub fn parse(ty: Option<Type<'_>>, text: &str) -> Result<Variant, ParseError> {
        parse::parse(ty, text)
    }

    /// Prints the text form, with type annotations as `dconf read` prints them (`g_variant_print` with TRUE).
    #[must_use]
    pub fn print(&self) -> String {
        print::print(self.view(), print::Annotations::Shown)
    }

    /// Prints the text form without type annotations, except inside a `v`.
    #[must_use]
    pub fn print_without_types(&self) -> String {
        print::print(self.view(), print::Annotations::Hidden)
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
