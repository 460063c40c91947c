//! The structures of unjank.h, and how they cross: each begins with its size, so that a later version may have more members.

use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::MaybeUninit;
use std::{ptr, slice};

use crate::error::CallError;

/// A structure of the header. The layout is that of C, every bit pattern is a value, and the first member is the size.
///
/// # Safety
///
/// The type is `repr(C)`, begins with `size: usize`, and may have any bytes.
pub(crate) unsafe trait Structure: Copy {}

macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident { $($member:ident: $type:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug)]
            pub(crate) struct $name {
                /// The size that the caller has for it.
                pub size: usize,
                $(
                    #[doc = "See unjank.h."]
                    pub(crate) $member: $type,
                )*
            }

            // SAFETY: it is `repr(C)`, its first member is the size, and its members are numbers and pointers.
            unsafe impl Structure for $name {}

            impl Default for $name {
                fn default() -> $name {
                    // SAFETY: numbers and pointers may be 0.
                    unsafe { MaybeUninit::zeroed().assume_init() }
                }
            }
        )*

        /// The members of all structures with their places, to be compared with those of the header.
        #[cfg(test)]
        pub(crate) fn layouts() -> Vec<(&'static str, usize, Vec<(&'static str, usize)>)> {
            vec![$((
                stringify!($name),
                size_of::<$name>(),
                vec![$((stringify!($member), std::mem::offset_of!($name, $member))),*],
            )),*]
        }
    };
}

/// A time.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TimeOfFile {
    /// See unjank.h.
    pub(crate) seconds: i64,
    /// See unjank.h.
    pub(crate) nanoseconds: u32,
    /// See unjank.h.
    pub(crate) known: u32,
}

structures! {
    /// `unjank_listing_options`.
    ListingOptions {
        fields: u32,
        flags: u32,
        threads: u32,
        most: u32,
        worker: *const c_char,
        daemon: *const c_char,
    }
    /// `unjank_event`.
    ListingEvent {
        r#type: u32,
        first: u32,
        count: u32,
        step: u32,
        error: i32,
        reserved: u32,
        ids: *const u32,
    }
    /// `unjank_names`.
    LentNames {
        first: u32,
        count: u32,
        types: *const u8,
        ends: *const u32,
        text: *const c_char,
    }
    /// `unjank_attributes`.
    LentAttributes {
        fields: u32,
        first: u32,
        count: u32,
        failures: u32,
        ids: *const u32,
        bytes: *const u64,
        mode: *const u16,
        owner: *const u64,
        modified: *const u64,
        accessed: *const u64,
        changed: *const u64,
        born: *const u64,
        inode: *const u64,
        links: *const u32,
        blocks: *const u64,
        device: *const u64,
        file_system: *const u64,
        target: *const u64,
        mime_type: *const u32,
        failed: *const u64,
    }
    /// `unjank_entry`.
    EntryFacts {
        name: *const c_char,
        name_length: usize,
        fields: u32,
        r#type: u32,
        removed: u32,
        error: i32,
        bytes: u64,
        inode: u64,
        blocks: u64,
        mode: u32,
        user: u32,
        group: u32,
        links: u32,
        device_major: u32,
        device_minor: u32,
        file_system_major: u32,
        file_system_minor: u32,
        target: u32,
        target_mode: u32,
        mime_type: u32,
        reserved: u32,
        modified: TimeOfFile,
        accessed: TimeOfFile,
        changed: TimeOfFile,
        born: TimeOfFile,
    }
    /// `unjank_value`.
    LentValue {
        r#type: *const c_char,
        data: *const c_void,
        length: usize,
        swapped: u32,
        reserved: u32,
    }
    /// `unjank_addition`.
    AskedAddition {
        document: *const c_char,
        mime_type: *const c_char,
        application: *const c_char,
        command: *const c_char,
        group: *const c_char,
        is_private: u32,
        reserved: u32,
    }
    /// `unjank_recents_query`.
    AskedQuery {
        application: *const c_char,
        mime_type: *const c_char,
        group: *const c_char,
        below: *const c_char,
        most: usize,
    }
    /// `unjank_recent`.
    LentRecent {
        uri: *const c_char,
        path: *const c_char,
        mime_type: *const c_char,
        application: *const c_char,
        command: *const c_char,
        used: i64,
        added: i64,
        count: u32,
        is_private: u32,
    }
    /// `unjank_model_options`.
    ModelOptions {
        by: u32,
        flags: u32,
        locale: *const c_char,
        filter: *const c_char,
    }
}

/// Reads a structure that the caller may have left out, or may know less or more members of.
///
/// # Safety
///
/// `from` is null or points to as many bytes as its first member says.
pub(crate) unsafe fn read<T: Structure + Default>(from: *const T) -> Result<T, CallError> {
    let mut value = T::default();
    if from.is_null() {
        return Ok(value);
    }
    let size = check_size(from)?.min(size_of::<T>());
    // SAFETY: so many bytes are there, by the contract of the caller, and in `value`; any bytes are a value.
    unsafe { ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut value).cast::<u8>(), size) };
    Ok(value)
}

/// Writes a structure as far as the caller knows it; its size stays as the caller set it.
///
/// # Safety
///
/// `to` is null or points to as many bytes as its first member says.
pub(crate) unsafe fn write<T: Structure>(to: *mut T, value: T) -> Result<(), CallError> {
    let size = check_size(to)?.min(size_of::<T>());
    let (head, from) = (size_of::<usize>(), (&raw const value).cast::<u8>());
    let (from, to) = (from.wrapping_add(head), to.cast::<u8>().wrapping_add(head));
    // SAFETY: so many bytes are there on both sides, behind the first member.
    unsafe { ptr::copy_nonoverlapping(from, to, size - head) };
    Ok(())
}

/// Makes sure that [`write`] will work.
pub(crate) fn check_size<T: Structure>(at: *const T) -> Result<usize, CallError> {
    if at.is_null() {
        return Err(CallError::invalid("a structure is NULL"));
    }
    if !at.is_aligned() {
        return Err(CallError::invalid("a structure is not aligned"));
    }
    // SAFETY: it is not null, and by the contract of the callers its first member is there.
    let size = unsafe { at.cast::<usize>().read() };
    // Two members at least; one that forgot to set the size has any number there.
    if !(16..=4096).contains(&size) {
        return Err(CallError::invalid(format!(
            "a structure has the size {size}: set its member size"
        )));
    }
    Ok(size)
}

/// Returns a text of the caller that is UTF-8.
///
/// # Safety
///
/// As [`text`].
pub(crate) unsafe fn utf8<'a>(
    from: *const c_char,
    most: usize,
) -> Result<Option<&'a str>, CallError> {
    // SAFETY: by the contract of this function.
    let bytes = unsafe { text(from, most) }?;
    let text = bytes.map(str::from_utf8).transpose();
    text.map_err(|_| CallError::invalid("a text is not UTF-8"))
}

/// Writes a value where the caller has a place for it.
///
/// # Safety
///
/// `to` is null or may be written to.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Result<(), CallError> {
    if to.is_null() || !to.is_aligned() {
        return Err(CallError::invalid("a place for a result is NULL"));
    }
    // SAFETY: by the contract of the caller.
    unsafe { to.write(value) };
    Ok(())
}

/// Returns the bytes of a text of C, `None` for NULL; no more than `most` are looked at.
///
/// # Safety
///
/// `text` is null or ends with a NUL, and stays as long as the result.
pub(crate) unsafe fn text<'a>(
    text: *const c_char,
    most: usize,
) -> Result<Option<&'a [u8]>, CallError> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: by the contract of the caller; `strnlen` does not look further than the NUL.
    let length = unsafe { libc::strnlen(text, most + 1) };
    if length > most {
        return Err(CallError::new(
            libc::ENAMETOOLONG,
            format!("a text has more than {most} bytes"),
        ));
    }
    // SAFETY: so many bytes are there before the NUL.
    Ok(Some(unsafe { slice::from_raw_parts(text.cast(), length) }))
}

/// Returns the values of an array of C.
///
/// # Safety
///
/// `values` has `count` values, or may be null where there are none, and stays as long as the result.
pub(crate) unsafe fn array<'a, T>(values: *const T, count: usize) -> Result<&'a [T], CallError> {
    if count == 0 {
        return Ok(&[]);
    }
    let too_many = isize::try_from(count.saturating_mul(size_of::<T>().max(1))).is_err();
    if values.is_null() || !values.is_aligned() || too_many {
        return Err(CallError::invalid("an array is NULL, not aligned, or too large"));
    }
    // SAFETY: by the contract of the caller.
    Ok(unsafe { slice::from_raw_parts(values, count) })
}

/// Returns the places of an array of C that is to be filled.
///
/// # Safety
///
/// As [`array`], and nobody else reads or writes the values.
pub(crate) unsafe fn array_mut<'a, T>(
    values: *mut T,
    count: usize,
) -> Result<&'a mut [T], CallError> {
    // SAFETY: by the contract of this function.
    unsafe { array(values.cast_const(), count) }?;
    if count == 0 {
        return Ok(&mut []);
    }
    // SAFETY: by the contract of the caller; it was just checked that they are there and aligned.
    Ok(unsafe { slice::from_raw_parts_mut(values, count) })
}

/// Returns a text with a NUL that the library owns, as C has it.
pub(crate) fn lent(text: &CStr) -> *const c_char {
    text.as_ptr()
}

/// Texts that are lent as an array of C.
#[derive(Debug, Default)]
pub(crate) struct LentTexts {
    texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

// SAFETY: the pointers are to the texts beside them, which move with them and do not change.
unsafe impl Send for LentTexts {}

impl LentTexts {
    /// Takes texts; those with a NUL in them are cut there.
    pub(crate) fn new(texts: impl IntoIterator<Item = Vec<u8>>) -> LentTexts {
        let whole = texts.into_iter().map(text_of);
        let texts: Vec<CString> = whole.collect();
        let pointers = texts.iter().map(|text| text.as_ptr()).collect();
        LentTexts { texts, pointers }
    }

    /// Writes the array and its length where the caller has places for them.
    ///
    /// # Safety
    ///
    /// The places are null or may be written to.
    pub(crate) unsafe fn lend(
        &self,
        array: *mut *const *const c_char,
        count: *mut usize,
    ) -> Result<(), CallError> {
        if array.is_null() || count.is_null() {
            return Err(CallError::invalid("a place for a result is NULL"));
        }
        // SAFETY: by the contract of this function.
        unsafe { put(array, self.pointers.as_ptr()) }?;
        // SAFETY: by the contract of this function.
        unsafe { put(count, self.texts.len()) }
    }
}

/// Makes a text of C; one with a NUL in it is cut there.
pub(crate) fn text_of(mut bytes: Vec<u8>) -> CString {
    bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()));
    CString::new(bytes).unwrap_or_default()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make files that need not last")]
mod tests {
    use super::*;
    use std::fmt::Write as _;
    use std::process::Command;

    /// The names of the structures in the header.
    const NAMES: [(&str, &str); 10] = [
        ("ListingOptions", "unjank_listing_options"),
        ("ListingEvent", "unjank_event"),
        ("LentNames", "unjank_names"),
        ("LentAttributes", "unjank_attributes"),
        ("EntryFacts", "unjank_entry"),
        ("LentValue", "unjank_value"),
        ("AskedAddition", "unjank_addition"),
        ("AskedQuery", "unjank_recents_query"),
        ("LentRecent", "unjank_recent"),
        ("ModelOptions", "unjank_model_options"),
    ];

    #[test]
    fn the_structures_are_those_of_the_header() {
        let mut source = String::from(
            "#include \"unjank.h\"\n#define AT(s, m, o) _Static_assert(offsetof(s, m) == o, #s \".\" #m)\n",
        );
        for (name, size, members) in layouts() {
            let (_, c_name) = NAMES.iter().find(|(rust, _)| *rust == name).expect("a name in C");
            writeln!(source, "_Static_assert(sizeof({c_name}) == {size}, \"{c_name}\");").unwrap();
            for (member, offset) in members {
                let member = member.trim_start_matches("r#");
                writeln!(source, "AT({c_name}, {member}, {offset});").unwrap();
            }
        }
        writeln!(
            source,
            "_Static_assert(sizeof(unjank_time) == {}, \"\");",
            size_of::<TimeOfFile>()
        )
        .unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("layout.c");
        std::fs::write(&path, source).unwrap();
        let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include");
        let gcc = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", include];
        let output = Command::new("gcc").args(gcc).arg(&path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn a_structure_of_another_version_is_read_and_written_as_far_as_both_know_it() {
        #[repr(C)]
        struct Short {
            size: usize,
            by: u32,
            flags: u32,
            behind: u64,
        }
        let mut short = Short { size: 16, by: 3, flags: 5, behind: 7 };
        // SAFETY: so many bytes are there.
        let known = unsafe { read((&raw const short).cast::<ModelOptions>()) }.unwrap();
        assert_eq!((known.by, known.flags, known.locale), (3, 5, ptr::null()));
        let value = ModelOptions { by: 1, flags: 2, locale: c"x".as_ptr(), ..known };
        // SAFETY: so many bytes are there.
        unsafe { write((&raw mut short).cast::<ModelOptions>(), value) }.unwrap();
        assert_eq!((short.size, short.by, short.flags, short.behind), (16, 1, 2, 7));
        for wrong in [0, 8, 15, 5000, usize::MAX] {
            short.size = wrong;
            assert!(check_size((&raw const short).cast::<ModelOptions>()).is_err());
        }
    }
}
