//! Values of GLib and of databases, converted.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::NonNull;

use gvdb::ByteOrder;
use gvdb::gvariant::{Type, Variant, VariantView};

use crate::glib::{self, GVariant};

/// A reference to a `GVariant`, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct GlibValue(NonNull<GVariant>);

// SAFETY: a GVariant may be used from any thread; its references are counted atomically.
unsafe impl Send for GlibValue {}

impl GlibValue {
    /// Copies a value out of a database; nothing if GLib does not know its type.
    pub(crate) fn copy_of(value: VariantView<'_>) -> Option<GlibValue> {
        let kind = CString::new(value.ty().as_str()).ok()?;
        // SAFETY: the text has a NUL.
        if unsafe { glib::g_variant_type_string_is_valid(kind.as_ptr()) } == glib::FALSE {
            return None;
        }
        let bytes = value.bytes();
        // SAFETY: the bytes are copied before this returns.
        let copied = unsafe { glib::g_bytes_new(bytes.as_ptr().cast::<c_void>(), bytes.len()) };
        // SAFETY: a valid type string is a definite or an indefinite type, and databases hold definite ones alone; the
        // bytes are not trusted, so GLib checks whatever it reads of them, and it holds a reference to them.
        let made = unsafe { glib::g_variant_new_from_bytes(kind.as_ptr(), copied, glib::FALSE) };
        // SAFETY: this is the reference of `g_bytes_new`.
        unsafe { glib::g_bytes_unref(copied) };
        // SAFETY: `made` is a new floating value.
        let made = unsafe { glib::g_variant_ref_sink(made) };
        let value_here = GlibValue(NonNull::new(made)?);
        if value.order() == ByteOrder::NATIVE {
            return Some(value_here);
        }
        // SAFETY: the value lives; the result is a new reference that is not floating.
        let swapped = unsafe { glib::g_variant_byteswap(value_here.0.as_ptr()) };
        NonNull::new(swapped).map(GlibValue)
    }

    /// Parses the text form of a value of a type; nothing if the text is none.
    pub(crate) fn parse(kind: &CStr, text: &str) -> Option<GlibValue> {
        let text = CString::new(text).ok()?;
        let nowhere = std::ptr::null_mut();
        // SAFETY: the type is one, the text has a NUL, and neither its end nor the error is asked for.
        let made = unsafe {
            glib::g_variant_parse(
                kind.as_ptr(),
                text.as_ptr(),
                std::ptr::null(),
                std::ptr::null_mut(),
                nowhere,
            )
        };
        if made.is_null() {
            return None;
        }
        // SAFETY: a floating reference becomes ours, and one that is not floating is one more, which GLib does not give here.
        let made = unsafe { glib::g_variant_ref_sink(made) };
        NonNull::new(made).map(GlibValue)
    }

    /// Returns one more reference, for the caller of a function of C.
    pub(crate) fn share(&self) -> *mut GVariant {
        // SAFETY: this reference keeps the value alive.
        unsafe { glib::g_variant_ref(self.0.as_ptr()) }
    }

    /// Passes the reference to the caller of a function of C.
    pub(crate) fn into_raw(self) -> *mut GVariant {
        let raw = self.0.as_ptr();
        std::mem::forget(self);
        raw
    }
}

impl Drop for GlibValue {
    fn drop(&mut self) {
        // SAFETY: this reference is given back once.
        unsafe { glib::g_variant_unref(self.0.as_ptr()) };
    }
}

/// Copies a value of GLib in normal form.
///
/// # Safety
///
/// `value` is a `GVariant`.
pub(crate) unsafe fn copy_from(value: *mut GVariant) -> Option<Variant> {
    // SAFETY: by the contract of this function; the text lives as long as the value.
    let kind = unsafe { glib::g_variant_get_type_string(value) };
    // SAFETY: as above.
    let kind = unsafe { text(kind) }?;
    // SAFETY: by the contract of this function.
    let size = unsafe { glib::g_variant_get_size(value) };
    // SAFETY: by the contract of this function.
    let data = unsafe { glib::g_variant_get_data(value) };
    let bytes: &[u8] = if data.is_null() || size == 0 {
        &[]
    } else {
        // SAFETY: the value has so many bytes there for as long as it lives, and it is immutable.
        unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) }
    };
    Some(VariantView::new(Type::parse(kind)?, bytes, ByteOrder::NATIVE).to_variant())
}

/// Borrows a text of C; nothing if it is NULL or not in UTF-8.
///
/// # Safety
///
/// `text` is NULL, or has a NUL and stays until the caller is done with the result.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: by the contract of this function.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}
