//! Names of users and groups, as the C library finds them: in files, in LDAP, or made by systemd.

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::ptr;

/// The longest line of an account that is asked for; the C library starts with 1 KiB.
const LONGEST: usize = 1 << 20;

/// Returns the name of the user with this number. It may take long: the answer may come from another machine.
#[must_use]
pub fn user_name(number: u32) -> Option<Vec<u8>> {
    name(|buffer| {
        let mut account = MaybeUninit::<libc::passwd>::uninit();
        let mut found: *mut libc::passwd = ptr::null_mut();
        // SAFETY: all pointers are to memory of ours that lives until the call is over, and the length is that of
        // the buffer. The call writes into these alone.
        let error = unsafe {
            libc::getpwuid_r(
                number,
                account.as_mut_ptr(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                &raw mut found,
            )
        };
        if found.is_null() {
            return (error, ptr::null());
        }
        // SAFETY: the call succeeded, so `found` points to `account`, which it filled.
        (error, unsafe { (*found).pw_name })
    })
}

/// Returns the name of the group with this number. It may take long: the answer may come from another machine.
#[must_use]
pub fn group_name(number: u32) -> Option<Vec<u8>> {
    name(|buffer| {
        let mut account = MaybeUninit::<libc::group>::uninit();
        let mut found: *mut libc::group = ptr::null_mut();
        // SAFETY: as in `user_name`.
        let error = unsafe {
            libc::getgrgid_r(
                number,
                account.as_mut_ptr(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                &raw mut found,
            )
        };
        if found.is_null() {
            return (error, ptr::null());
        }
        // SAFETY: as in `user_name`.
        (error, unsafe { (*found).gr_name })
    })
}

/// Asks with a buffer that grows until the answer fits. `ask` returns an error number and a pointer into the buffer,
/// or null.
fn name(ask: impl Fn(&mut [u8]) -> (i32, *const c_char)) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 1024];
    loop {
        let (error, name) = ask(&mut buffer);
        if error == libc::ERANGE && buffer.len() < LONGEST {
            buffer.resize(buffer.len() * 2, 0);
            continue;
        }
        if error != 0 || name.is_null() {
            return None;
        }
        // SAFETY: the C library left a string that ends with NUL in the buffer, which was not touched since.
        let name = unsafe { CStr::from_ptr(name) };
        return Some(name.to_bytes().to_vec());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_has_a_name_and_a_number_out_of_use_has_none() {
        assert_eq!(user_name(0).as_deref(), Some(&b"root"[..]));
        assert_eq!(group_name(0).as_deref(), Some(&b"root"[..]));
        assert_eq!((user_name(4_000_123_456), group_name(4_000_123_456)), (None, None));
    }
}
