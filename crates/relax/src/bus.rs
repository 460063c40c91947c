//! The calls by which KDE programs tell the activity service what was opened: in a private program they fail.
//!
//! Qt speaks D-Bus by libdbus, whose functions report a message that could not be queued as a lack of memory; Qt makes an error of it and goes on.

use std::ffi::{c_char, c_int, c_uint, c_void};

use preload::{NextFunction, bytes};

use crate::lists;

type Send = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, *mut c_uint) -> c_uint;
type SendWithReply =
    unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, *mut *mut c_void, c_int) -> c_uint;
type Text = unsafe extern "C-unwind" fn(*mut c_void) -> *const c_char;

/// What keeps who opened which file: KDE's statistics of activities.
const INTERFACE: &[u8] = b"org.kde.ActivityManager.Resources";

// SAFETY: the type is that of `dbus-connection.h`.
static SEND: NextFunction<Send> = unsafe { NextFunction::named(c"dbus_connection_send") };
// SAFETY: the type is that of `dbus-connection.h`.
static SEND_WITH_REPLY: NextFunction<SendWithReply> =
    unsafe { NextFunction::named(c"dbus_connection_send_with_reply") };
// SAFETY: the type is that of `dbus-message.h`.
static GET_INTERFACE: NextFunction<Text> =
    unsafe { NextFunction::named(c"dbus_message_get_interface") };

pub(crate) fn prepare() {
    // Programs without libdbus have none of them.
    SEND.prepare();
    SEND_WITH_REPLY.prepare();
    GET_INTERFACE.prepare();
}

/// Whether the message tells what was opened.
///
/// # Safety
///
/// The message is one of libdbus.
unsafe fn tells(message: *mut c_void) -> bool {
    if !lists::is_private() || message.is_null() {
        return false;
    }
    let Some(interface_of) = GET_INTERFACE.get() else { return false };
    // SAFETY: the message is libdbus's, as is the function.
    let interface: *const c_char = unsafe { interface_of(message) };
    // SAFETY: the text is null, or ends in NUL and lives as long as the message.
    let interface = unsafe { bytes(interface) };
    interface == INTERFACE
}

/// Is libdbus's function, except for what tells which files were opened.
///
/// # Safety
///
/// As of that function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dbus_connection_send(
    connection: *mut c_void,
    message: *mut c_void,
    serial: *mut c_uint,
) -> c_uint {
    // SAFETY: the caller passes a message of libdbus.
    if unsafe { tells(message) } {
        return 0;
    }
    let Some(next) = SEND.get() else { return 0 };
    // SAFETY: the caller's own arguments go to the function it called.
    unsafe { next(connection, message, serial) }
}

/// Is libdbus's function, except for what tells which files were opened.
///
/// # Safety
///
/// As of that function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dbus_connection_send_with_reply(
    connection: *mut c_void,
    message: *mut c_void,
    pending: *mut *mut c_void,
    timeout_ms: c_int,
) -> c_uint {
    // SAFETY: the caller passes a message of libdbus.
    if unsafe { tells(message) } {
        return 0;
    }
    let Some(next) = SEND_WITH_REPLY.get() else { return 0 };
    // SAFETY: the caller's own arguments go to the function it called.
    unsafe { next(connection, message, pending, timeout_ms) }
}
