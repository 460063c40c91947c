//! Settings: `unjank_settings_*`.

use std::ffi::{CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gvdb::ByteOrder;
use gvdb::gvariant::{Variant, VariantView};
use settings::changeset::Changeset;
use settings::client::{ChangeError, Key, SettingsClient, SettingsReader, ValueChoice};
use settings::path;
use settings::profile::SettingsProfile;

use crate::abi::{self, LentTexts, LentValue};
use crate::bus::{PATIENCE, SettingsService};
use crate::environment;
use crate::error::{CallError, enter};
use crate::handle::{Registry, close, lock};
use crate::watched::{WatchedFiles, WatchedKeys};

/// Settings by their handles.
static SETTINGS: Registry<Mutex<OpenSettings>> = Registry::new();

/// A handle, which points nowhere.
#[derive(Debug)]
pub(crate) enum SettingsHandle {}

/// What a handle stands for.
#[derive(Debug)]
struct OpenSettings {
    client: SettingsClient,
    reader: SettingsReader,
    service: Arc<SettingsService>,
    files: WatchedFiles,
    keys: WatchedKeys,
    /// The files that the values are in, and the flags that say that there are new ones.
    sources: Vec<std::path::PathBuf>,
    text: CString,
    texts: LentTexts,
}

/// One change, as `unjank_change`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedChange {
    path: *const c_char,
    text: *const c_char,
}

/// A path of settings may have so many bytes.
const LONGEST_PATH: usize = 1 << 16;
/// A value may have so many bytes in its text form.
const LONGEST_TEXT: usize = 64 << 20;
/// A name of a profile may have so many bytes.
const LONGEST_PROFILE: usize = 4095;

/// Returns a key of the caller.
///
/// # Safety
///
/// As `abi::text`.
unsafe fn key_of<'a>(key: *const c_char) -> Result<&'a str, CallError> {
    // SAFETY: by the contract of this function.
    let key = unsafe { abi::utf8(key, LONGEST_PATH) }?;
    key.filter(|key| path::is_key(key)).ok_or_else(|| {
        CallError::invalid("not the path of a key: it begins with / and does not end so")
    })
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_settings_open(
    profile: *const c_char,
    settings: *mut *mut SettingsHandle,
) -> c_int {
    enter(|| {
        // SAFETY: by the contract of this function.
        let name = unsafe { abi::text(profile, LONGEST_PROFILE) }?;
        if settings.is_null() {
            return Err(CallError::invalid("there is no place for the handle"));
        }
        let environment = environment::settings();
        let name = name.map(|name| Path::new(OsStr::from_bytes(name)));
        let profile = SettingsProfile::choose(&environment, name);
        let service = SettingsService::new();
        let client = SettingsClient::open(&profile, &environment, service.clone());
        let mut sources: Vec<_> =
            profile.databases.iter().map(|one| one.file(&environment)).collect();
        // A flag goes when there is a new file, after the file has come.
        sources.push(environment.runtime_dir.join("dconf/user"));
        let opened = OpenSettings {
            reader: client.reader(),
            client,
            service,
            files: WatchedFiles::new()?,
            keys: WatchedKeys::default(),
            sources,
            text: CString::default(),
            texts: LentTexts::default(),
        };
        // SAFETY: by the contract of this function.
        unsafe { abi::put(settings, SETTINGS.add(Arc::new(Mutex::new(opened)))) }?;
        Ok(0)
    })
}

/// See unjank.h.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn unjank_settings_close(settings: *mut SettingsHandle) -> c_int {
    enter(|| {
        close(&SETTINGS, settings)?;
        Ok(0)
    })
}

/// Calls `body` with the value of a key.
fn with_value<T>(
    reader: &mut SettingsReader,
    key: &str,
    which: c_int,
    body: impl FnOnce(VariantView<'_>) -> Result<T, CallError>,
) -> Result<T, CallError> {
    let which = match which {
        0 => ValueChoice::InForce,
        1 => ValueChoice::User,
        2 => ValueChoice::Default,
        _ => return Err(CallError::invalid("there is no such choice of values")),
    };
    let value = reader.read(&Key::new(key), which);
    body(value.ok_or_else(|| CallError::new(libc::ENOENT, format!("{key} is not set")))?)
}

/// The value has another type than the caller takes.
fn other_type(value: VariantView<'_>) -> CallError {
    CallError::new(libc::EPROTOTYPE, format!("the value has the type {}", value.ty().as_str()))
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_settings_get(
    settings: *mut SettingsHandle,
    key: *const c_char,
    which: c_int,
    value: *mut LentValue,
) -> c_int {
    enter(|| {
        let opened = SETTINGS.get(settings)?;
        // SAFETY: by the contract of this function.
        let key = unsafe { key_of(key) }?;
        let mut opened = lock(&opened)?;
        let OpenSettings { reader, text, .. } = &mut *opened;
        abi::check_size(value)?;
        let lent = with_value(reader, key, which, |found| {
            *text = abi::text_of(found.ty().as_str().as_bytes().to_vec());
            Ok(LentValue {
                r#type: text.as_ptr(),
                data: found.bytes().as_ptr().cast::<c_void>(),
                length: found.bytes().len(),
                swapped: u32::from(found.order() != ByteOrder::NATIVE),
                ..LentValue::default()
            })
        })?;
        // SAFETY: by the contract of this function.
        unsafe { abi::write(value, lent) }?;
        Ok(0)
    })
}

/// Gives a value in force, converted by `convert`.
///
/// # Safety
///
/// As unjank.h demands of the callers of these functions.
unsafe fn give<T>(
    settings: *mut SettingsHandle,
    key: *const c_char,
    value: *mut T,
    convert: impl FnOnce(VariantView<'_>) -> Result<T, CallError>,
) -> Result<c_int, CallError> {
    let opened = SETTINGS.get(settings)?;
    // SAFETY: by the contract of this function.
    let key = unsafe { key_of(key) }?;
    let found = with_value(&mut lock(&opened)?.reader, key, 0, convert)?;
    // SAFETY: by the contract of this function.
    unsafe { abi::put(value, found) }?;
    Ok(0)
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_settings_get_boolean(
    settings: *mut SettingsHandle,
    key: *const c_char,
    value: *mut c_int,
) -> c_int {
    enter(|| {
        let convert = |found: VariantView<'_>| {
            found.as_bool().map(c_int::from).ok_or_else(|| other_type(found))
        };
        // SAFETY: by the contract of this function.
        unsafe { give(settings, key, value, convert) }
    })
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_settings_get_integer(
    settings: *mut SettingsHandle,
    key: *const c_char,
    value: *mut i64,
) -> c_int {
    enter(|| {
        // SAFETY: by the contract of this function.
        unsafe { give(settings, key, value, integer) }
    })
}

fn integer(found: VariantView<'_>) -> Result<i64, CallError> {
    let number = match found.ty().kind() {
        b'y' => found.as_u8().map(i64::from),
        b'n' => found.as_i16().map(i64::from),
        b'q' => found.as_u16().map(i64::from),
        b'i' => found.as_i32().map(i64::from),
        b'u' => found.as_u32().map(i64::from),
        b'x' => found.as_i64(),
        b't' => match found.as_u64().map(i64::try_from) {
            Some(Err(_)) => {
                return Err(CallError::new(libc::ERANGE, "the number is above INT64_MAX"));
            }
            number => number.and_then(Result::ok),
        },
        _ => None,
    };
    number.ok_or_else(|| other_type(found))
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_settings_get_double(
    settings: *mut SettingsHandle,
    key: *const c_char,
    value: *mut f64,
) -> c_int {
    enter(|| {
        let convert = |found: VariantView<'_>| found.as_f64().ok_or_else(|| other_type(found));
        // SAFETY: by the contract of this function.
        unsafe { give(settings, key, value, convert) }
    })
}

/// Lends a text that is made of a value.
///
/// # Safety
///
/// As unjank.h demands of the callers of these functions.
unsafe fn lend_text(
    settings: *mut SettingsHandle,
    key: *const c_char,
    which: c_int,
    text: *mut *const c_char,
    convert: impl FnOnce(VariantView<'_>) -> Result<String, CallError>,
) -> Result<c_int, CallError> {
    let opened = SETTINGS.get(settings)?;
    // SAFETY: by the contract of this function.
    let key = unsafe { key_of(key) }?;
    let mut opened = lock(&opened)?;
    let found = with_value(&mut opened.reader, key, which, convert)?;
    if text.is_null() {
        return Err(CallError::invalid("a place for a result is NULL"));
    }
    opened.text = abi::text_of(found.into_bytes());
    // SAFETY: by the contract of this function.
    unsafe { abi::put(text, opened.text.as_ptr()) }?;
    Ok(0)
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_settings_get_text(
    settings: *mut SettingsHandle,
    key: *const c_char,
    which: c_int,
    text: *mut *const c_char,
) -> c_int {
    enter(|| {
        let convert = |found: VariantView<'_>| Ok(found.to_variant().print());
        // SAFETY: by the contract of this function.
        unsafe { lend_text(settings, key, which, text, convert) }
    })
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_settings_get_string(
    settings: *mut SettingsHandle,
    key: *const c_char,
    text: *mut *const c_char,
) -> c_int {
    enter(|| {
        let convert = |found: VariantView<'_>| {
            found.as_str().map(str::to_owned).ok_or_else(|| other_type(found))
        };
        // SAFETY: by the contract of this function.
        unsafe { lend_text(settings, key, 0, text, convert) }
    })
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_settings_list(
    settings: *mut SettingsHandle,
    directory: *const c_char,
    names: *mut *const *const c_char,
    count: *mut usize,
) -> c_int {
    enter(|| {
        let opened = SETTINGS.get(settings)?;
        // SAFETY: by the contract of this function.
        let directory = unsafe { abi::utf8(directory, LONGEST_PATH) }?;
        let directory = directory.filter(|path| path::is_dir(path));
        let directory = directory
            .ok_or_else(|| CallError::invalid("not a directory: it begins and ends with /"))?;
        let mut opened = lock(&opened)?;
        let found = opened.reader.list(directory);
        opened.texts = LentTexts::new(found.into_iter().map(String::into_bytes));
        // SAFETY: by the contract of this function.
        unsafe { opened.texts.lend(names, count) }?;
        Ok(0)
    })
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_settings_is_writable(
    settings: *mut SettingsHandle,
    key: *const c_char,
) -> c_int {
    enter(|| {
        let opened = SETTINGS.get(settings)?;
        // SAFETY: by the contract of this function.
        let key = unsafe { key_of(key) }?;
        Ok(c_int::from(lock(&opened)?.reader.is_writable(key)))
    })
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_settings_write(
    settings: *mut SettingsHandle,
    changes: *const AskedChange,
    count: usize,
    timeout_ms: c_int,
) -> c_int {
    enter(|| {
        let opened = SETTINGS.get(settings)?;
        // SAFETY: by the contract of this function.
        let asked = unsafe { abi::array(changes, count) }?;
        let mut set = Changeset::default();
        for change in asked {
            // SAFETY: by the contract of this function.
            let path = unsafe { abi::utf8(change.path, LONGEST_PATH) }?;
            // SAFETY: by the contract of this function.
            let text = unsafe { abi::utf8(change.text, LONGEST_TEXT) }?;
            let path = path.ok_or_else(|| CallError::invalid("a change has no path"))?;
            let value = text.map(|text| Variant::parse(None, text)).transpose();
            let value = value
                .map_err(|error| CallError::invalid(format!("no value for {path}: {error}")))?;
            set.change(path, value);
        }
        let opened = lock(&opened)?;
        let patience = u64::try_from(timeout_ms).map_or(PATIENCE, Duration::from_millis);
        opened.service.set_patience(patience);
        match opened.client.change_and_wait(&set) {
            Ok(_) => Ok(0),
            Err(ChangeError::Refused(error)) => Err(opened
                .service
                .take_failure()
                .unwrap_or_else(|| CallError::new(libc::EREMOTEIO, error.text))),
            Err(error @ ChangeError::NotWritable { .. }) => {
                Err(CallError::new(libc::EACCES, error.to_string()))
            }
            Err(error) => Err(CallError::invalid(error.to_string())),
        }
    })
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_settings_watch(
    settings: *mut SettingsHandle,
    path: *const c_char,
) -> c_int {
    enter(|| {
        let opened = SETTINGS.get(settings)?;
        // SAFETY: by the contract of this function.
        let path = unsafe { abi::utf8(path, LONGEST_PATH) }?.filter(|path| path::is_path(path));
        let path =
            path.ok_or_else(|| CallError::invalid("not the path of a key or a directory"))?;
        let mut opened = lock(&opened)?;
        let OpenSettings { reader, files, keys, sources, .. } = &mut *opened;
        // Watched first, so that nothing that changes after it was read is missed.
        files.add(sources.iter().cloned())?;
        reader.refresh();
        keys.add(reader, path);
        Ok(0)
    })
}

/// See unjank.h.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn unjank_settings_fd(settings: *mut SettingsHandle) -> c_int {
    enter(|| Ok(lock(&*SETTINGS.get(settings)?)?.files.descriptor()))
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_settings_changed(
    settings: *mut SettingsHandle,
    keys: *mut *const *const c_char,
    count: *mut usize,
) -> c_int {
    enter(|| {
        let opened = SETTINGS.get(settings)?;
        let mut opened = lock(&opened)?;
        let OpenSettings { reader, files, keys: watched, texts, .. } = &mut *opened;
        if keys.is_null() || count.is_null() {
            return Err(CallError::invalid("a place for a result is NULL"));
        }
        files.take()?;
        reader.refresh();
        let changed = watched.changed(reader);
        *texts = LentTexts::new(changed.into_iter().map(String::into_bytes));
        // SAFETY: by the contract of this function.
        unsafe { texts.lend(keys, count) }?;
        Ok(0)
    })
}
