//! Values from Rust: numbers, strings, and containers of values.

use std::borrow::Borrow;

use super::super::ByteOrder;
use super::normal::close_variant;
use super::types::{MAX_DEPTH, Type};
use super::view::VariantView;
use super::writer::Writer;
use super::{Variant, text_rules};

/// Why values make no container.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Nothing was built: an item of an array is not of the array's element type.
    #[error("cannot put a value of type {found} in an array of {expected}")]
    WrongElement {
        /// The element type of the array.
        expected: String,
        /// The type of the item.
        found: String,
    },
    /// Nothing was built: the key of a dict entry is a container.
    #[error("cannot use a value of type {0} as the key of a dict entry")]
    KeyNotBasic(String),
    /// Nothing was built: the type of the container would nest more than [`MAX_DEPTH`] levels.
    #[error("cannot nest containers deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

impl Variant {
    /// Makes an array; all `items` are of type `element`.
    ///
    /// # Errors
    ///
    /// See [`BuildError`]; nothing was built.
    pub fn array<V: Borrow<Variant>>(
        element: Type<'_>,
        items: impl IntoIterator<Item = V>,
    ) -> Result<Variant, BuildError> {
        let ty = format!("a{element}");
        let ty = Type::parse(&ty).ok_or(BuildError::TooDeep)?;
        let shape = element.shape();
        let mut writer = Writer::default();
        let open = writer.open();
        for item in items {
            let item = item.borrow().view();
            if item.ty() != element {
                let (expected, found) = (element.to_string(), item.ty().to_string());
                return Err(BuildError::WrongElement { expected, found });
            }
            writer.align(shape.mask);
            writer.push(item.bytes());
            if shape.fixed == 0 {
                writer.end_child(open);
            }
        }
        writer.close_array(open);
        Ok(finish(ty, &writer.into_bytes()))
    }

    /// Makes a tuple of any values.
    ///
    /// # Errors
    ///
    /// See [`BuildError`]; nothing was built.
    pub fn tuple<V: Borrow<Variant>>(
        members: impl IntoIterator<Item = V>,
    ) -> Result<Variant, BuildError> {
        let members: Vec<V> = members.into_iter().collect();
        let views: Vec<VariantView<'_>> =
            members.iter().map(|member| member.borrow().view()).collect();
        let types: String = views.iter().map(|view| view.ty().as_str()).collect();
        build_members(&format!("({types})"), &views)
    }

    /// Makes a dict entry; the key is of a basic type.
    ///
    /// # Errors
    ///
    /// See [`BuildError`]; nothing was built.
    pub fn entry(key: &Variant, value: &Variant) -> Result<Variant, BuildError> {
        let views = [key.view(), value.view()];
        let [key, value] = views.map(VariantView::ty);
        if !key.is_basic() {
            return Err(BuildError::KeyNotBasic(key.to_string()));
        }
        build_members(&format!("{{{key}{value}}}"), &views)
    }

    /// Makes a maybe that holds a value.
    ///
    /// # Errors
    ///
    /// See [`BuildError`]; nothing was built.
    pub fn just(child: &Variant) -> Result<Variant, BuildError> {
        let child = child.view();
        let ty = format!("m{}", child.ty());
        let ty = Type::parse(&ty).ok_or(BuildError::TooDeep)?;
        let mut bytes = child.bytes().to_vec();
        if child.ty().fixed_size().is_none() {
            bytes.push(0);
        }
        Ok(finish(ty, &bytes))
    }

    /// Makes a maybe of type `element` that holds nothing.
    ///
    /// # Errors
    ///
    /// See [`BuildError`]; nothing was built.
    pub fn nothing(element: Type<'_>) -> Result<Variant, BuildError> {
        let ty = format!("m{element}");
        Ok(finish(Type::parse(&ty).ok_or(BuildError::TooDeep)?, &[]))
    }

    /// Wraps a value as a `v`. Below [`MAX_DEPTH`] levels a `v` holds `()`, as it reads there.
    #[must_use]
    pub fn boxed(&self) -> Variant {
        finish(Type::VARIANT, self.as_bytes())
    }

    /// Makes an `o`; `None` if `path` is no D-Bus object path.
    #[must_use]
    pub fn object_path(path: &str) -> Option<Variant> {
        text_rules::is_object_path(path.as_bytes()).then(|| text(path, Type::OBJECT_PATH))
    }

    /// Makes a `g`; `None` if `signature` is no D-Bus signature.
    #[must_use]
    pub fn signature(signature: &str) -> Option<Variant> {
        text_rules::is_signature(signature.as_bytes()).then(|| text(signature, Type::SIGNATURE))
    }

    /// Makes an `h`, an index of a file descriptor that travels beside the value.
    #[must_use]
    pub fn handle(index: i32) -> Variant {
        Variant::of_bytes(index.to_ne_bytes().to_vec(), Type::HANDLE)
    }

    /// Makes an `ay` of `bytes` up to the first zero, and a zero.
    #[must_use]
    pub fn bytestring(bytes: &[u8]) -> Variant {
        let mut bytes: Vec<u8> = bytes.iter().copied().take_while(|&byte| byte != 0).collect();
        bytes.push(0);
        Variant::of_bytes(bytes, Type::BYTESTRING)
    }

    /// Takes the bytes of a child of type `ty` that are in normal form.
    pub(super) fn of_bytes(child: Vec<u8>, ty: Type<'_>) -> Variant {
        Variant(close_variant(child, ty).into_boxed_slice())
    }
}

/// Brings a container whose children are in normal form into normal form: values nested too deep become `()`.
fn finish(ty: Type<'_>, bytes: &[u8]) -> Variant {
    VariantView::new(ty, bytes, ByteOrder::NATIVE).to_variant()
}

fn build_members(ty: &str, members: &[VariantView<'_>]) -> Result<Variant, BuildError> {
    let ty = Type::parse(ty).ok_or(BuildError::TooDeep)?;
    let mut writer = Writer::default();
    let open = writer.open();
    for (index, member) in members.iter().enumerate() {
        let shape = member.ty().shape();
        writer.align(shape.mask);
        writer.push(member.bytes());
        if shape.fixed == 0 && index + 1 < members.len() {
            writer.end_child(open);
        }
    }
    writer.close_tuple(open, ty.shape(), members.len());
    Ok(finish(ty, &writer.into_bytes()))
}

fn text(text: &str, ty: Type<'_>) -> Variant {
    let mut bytes = text_rules::before_zero(text).as_bytes().to_vec();
    bytes.push(0);
    Variant::of_bytes(bytes, ty)
}

fn texts<S: AsRef<str>>(items: &[S]) -> Variant {
    let mut writer = Writer::default();
    let open = writer.open();
    for item in items {
        writer.string(text_rules::before_zero(item.as_ref()));
        writer.end_child(open);
    }
    writer.close_array(open);
    Variant::of_bytes(writer.into_bytes(), Type::part_of_valid("as"))
}

macro_rules! from_number {
    ($($number:ty => $ty:literal, $array:literal;)*) => {$(
        impl From<$number> for Variant {
            fn from(number: $number) -> Variant {
                Variant::of_bytes(number.to_ne_bytes().to_vec(), Type::part_of_valid($ty))
            }
        }

        impl From<&[$number]> for Variant {
            fn from(numbers: &[$number]) -> Variant {
                let bytes = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
                Variant::of_bytes(bytes, Type::part_of_valid($array))
            }
        }

        impl From<Vec<$number>> for Variant {
            fn from(numbers: Vec<$number>) -> Variant {
                Variant::from(&numbers[..])
            }
        }
    )*};
}

from_number! {
    u8 => "y", "ay";
    i16 => "n", "an";
    u16 => "q", "aq";
    i32 => "i", "ai";
    u32 => "u", "au";
    i64 => "x", "ax";
    u64 => "t", "at";
    f64 => "d", "ad";
}

impl From<bool> for Variant {
    fn from(value: bool) -> Variant {
        Variant::of_bytes(vec![u8::from(value)], Type::BOOLEAN)
    }
}

/// Makes an `s` of the text up to its first zero, for a string cannot hold one.
impl From<&str> for Variant {
    fn from(value: &str) -> Variant {
        text(value, Type::STRING)
    }
}

/// Makes an `s` of the text up to its first zero, for a string cannot hold one.
impl From<String> for Variant {
    fn from(value: String) -> Variant {
        text(&value, Type::STRING)
    }
}

/// Makes an `as`.
impl From<&[&str]> for Variant {
    fn from(items: &[&str]) -> Variant {
        texts(items)
    }
}

/// Makes an `as`.
impl From<Vec<&str>> for Variant {
    fn from(items: Vec<&str>) -> Variant {
        texts(&items)
    }
}

/// Makes an `as`.
impl From<&[String]> for Variant {
    fn from(items: &[String]) -> Variant {
        texts(items)
    }
}

/// Makes an `as`.
impl From<Vec<String>> for Variant {
    fn from(items: Vec<String>) -> Variant {
        texts(&items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        assert_eq!(Variant::from(true).view().as_bool(), Some(true));
        assert_eq!(Variant::from(7_u8).view().as_u8(), Some(7));
        assert_eq!(Variant::from(-2_i16).view().as_i16(), Some(-2));
        assert_eq!(Variant::from(-3_i32).view().as_i32(), Some(-3));
        assert_eq!(Variant::from(1_u64 << 60).view().as_u64(), Some(1 << 60));
        assert_eq!(Variant::from(0.5).view().as_f64(), Some(0.5));
        assert_eq!(Variant::from("hi").view().as_str(), Some("hi"));
        assert_eq!(Variant::from("h\0i").view().as_str(), Some("h"));
        assert_eq!(Variant::handle(3).view().as_handle(), Some(3));
        assert_eq!(Variant::bytestring(b"x").view().as_byte_array(), Some(&b"x\0"[..]));
        assert_eq!(Variant::object_path("/a/"), None);
        assert_eq!(Variant::signature("a{sv}").unwrap().view().as_str(), Some("a{sv}"));
        let list = Variant::from(vec!["a", "", "ccc"]);
        let read: Vec<_> = list.view().children().map(|child| child.as_str().unwrap()).collect();
        assert_eq!(read, ["a", "", "ccc"]);
        let list = Variant::from(vec![1_i64, -1]);
        assert_eq!(list.view().child(1).unwrap().as_i64(), Some(-1));
    }

    #[test]
    fn containers_are_built_in_normal_form() {
        let pair = Variant::tuple([Variant::from("a"), Variant::from(5_u32)]).unwrap();
        assert_eq!(pair.as_bytes(), b"a\0\0\0\x05\0\0\0\x02\0(su)");
        let entry = Variant::entry(&Variant::from("k"), &Variant::from(1_i32).boxed()).unwrap();
        let dict = Variant::array(entry.view().ty(), [&entry]).unwrap();
        assert_eq!(dict.as_bytes(), b"k\0\0\0\0\0\0\0\x01\0\0\0\0i\x02\x0f\0a{sv}");
        let unit = Variant::tuple::<Variant>([]).unwrap();
        assert_eq!(unit.as_bytes(), b"\0\0()");
        let just = Variant::just(&Variant::from("x")).unwrap();
        assert_eq!(just.as_bytes(), b"x\0\0\0ms");
        assert_eq!(Variant::nothing(Type::INT32).unwrap().as_bytes(), b"\0mi");
    }

    #[test]
    fn containers_refuse_what_does_not_fit() {
        let number = Variant::from(1_i32);
        assert!(matches!(
            Variant::array(Type::STRING, [&number]),
            Err(BuildError::WrongElement { .. })
        ));
        let list = Variant::from(vec![1_i32]);
        assert!(matches!(Variant::entry(&list, &number), Err(BuildError::KeyNotBasic(_))));
        let mut deep = number;
        for _ in 0..127 {
            deep = Variant::just(&deep).unwrap();
        }
        deep = Variant::just(&deep).unwrap();
        assert_eq!(Variant::just(&deep), Err(BuildError::TooDeep));
    }

    #[test]
    fn a_long_array_gets_wider_offsets() {
        for (count, width) in [(1, 1), (1000, 2), (40_000, 4)] {
            let list = Variant::from(vec!["a"; count]);
            assert_eq!(list.view().bytes().len(), count * (2 + width));
            assert_eq!(list.view().len(), count);
            assert_eq!(list.view().child(count - 1).unwrap().as_str(), Some("a"));
        }
    }
}
