//! Filters of system calls, seccomp(2): some hand chosen calls to a tracer, others decide them.
//!
//! Calls of another architecture than ours (32-bit code) pass every filter.

pub mod deciding;
pub mod refusing;
pub mod tracing;

use std::io;

use libc::{BPF_ABS, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter, sock_fprog};

/// `AUDIT_ARCH_*` of the architecture that we were built for (linux/audit.h); 0 where we do not know it.
const NATIVE: u32 = if cfg!(target_arch = "x86_64") {
    0xc000_003e
} else if cfg!(all(target_arch = "aarch64", target_endian = "little")) {
    0xc000_00b7
} else if cfg!(target_arch = "riscv64") {
    0xc000_00f3
} else {
    0
};

/// An instruction of classic BPF that does not jump.
fn statement(code: u32, k: u32) -> sock_filter {
    // The codes of classic BPF are below 256.
    sock_filter { code: u16::try_from(code).unwrap_or(0), jt: 0, jf: 0, k }
}

/// Loads the word at `offset` of `struct seccomp_data`.
fn load(offset: usize) -> sock_filter {
    statement(BPF_LD | BPF_W | BPF_ABS, u32::try_from(offset).unwrap_or(0))
}

/// Ends the program.
fn answer(value: u32) -> sock_filter {
    statement(BPF_RET | BPF_K, value)
}

/// Installs `program` in the calling thread, for good, and in all that it starts; returns the new listener's number with `flags` that ask for one.
///
/// A thread without `CAP_SYS_ADMIN` also gives up the privileges of set-user-id programs (`no_new_privs`), which the kernel
/// asks for. Makes system calls only.
///
/// # Errors
///
/// As seccomp(2): the kernel has no filters, or not these flags, or the program is too long.
fn install(program: &[sock_filter], flags: libc::c_ulong) -> io::Result<libc::c_long> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = sock_fprog { len, filter: program.as_ptr().cast_mut() };
    let set = || {
        // SAFETY: the kernel reads `len` instructions, which are borrowed, and keeps no pointer.
        let result = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                std::ptr::from_ref(&program),
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    };
    match set() {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            rustix::thread::set_no_new_privs(true)?;
            set()
        }
        done => done,
    }
}
