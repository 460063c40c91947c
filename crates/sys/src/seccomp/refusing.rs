//! System calls that a program gives up at its start, because it never makes them: whoever takes it over cannot, either.

use std::io;
use std::mem::offset_of;

use libc::{BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, c_long, seccomp_data, sock_filter};

use super::{NATIVE, answer, install, load, statement};

/// Calls of the x32 convention have this bit.
const X32_BIT: u32 = 0x4000_0000;
const JUMP_EQUAL: u32 = BPF_JMP | BPF_JEQ | BPF_K;
const JUMP_AT_LEAST: u32 = BPF_JMP | BPF_JGE | BPF_K;
const RET_ALLOW: u32 = libc::SECCOMP_RET_ALLOW;

/// What a program gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenUp {
    /// What changes the machine, looks into other processes, or makes namespaces; sockets of networks; 32-bit calls.
    Privileged,
    /// The same, and to start programs.
    Programs,
}

/// To start programs.
const STARTS: [c_long; 2] = [libc::SYS_execve, libc::SYS_execveat];

/// What no service of a user's session makes.
const PRIVILEGED: &[c_long] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    // Parts of the kernel in which most ways to its privileges were found.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_personality,
    // The machine.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    // Another user.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_capset,
];

/// Has the calling thread, and all that it starts, give calls up for good: they fail with `EPERM`, sockets of networks with
/// `EAFNOSUPPORT`. No program that it starts gets more privileges than it has (`no_new_privs`).
///
/// A program calls it before it starts threads.
///
/// # Errors
///
/// As seccomp(2): the kernel has no filters. Nothing was given up then but privileges.
pub fn give_up(what: GivenUp) -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    if NATIVE == 0 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    install(&program(what), 0).map(drop)
}

/// Returns the filter.
fn program(what: GivenUp) -> Vec<sock_filter> {
    let refused = |error: i32| answer(libc::SECCOMP_RET_ERRNO | error.unsigned_abs());
    let number = |call: c_long| u32::try_from(call).unwrap_or(u32::MAX);
    // Each condition goes over the answer behind it where it does not hold.
    let unless = |condition: u32, value: u32| sock_filter { jf: 1, ..statement(condition, value) };
    let mut program = vec![
        load(offset_of!(seccomp_data, arch)),
        sock_filter { jt: 1, ..statement(JUMP_EQUAL, NATIVE) },
        refused(libc::EPERM),
        load(offset_of!(seccomp_data, nr)),
    ];
    if cfg!(target_arch = "x86_64") {
        program.extend([unless(JUMP_AT_LEAST, X32_BIT), refused(libc::EPERM)]);
    }
    let starts: &[c_long] = if what == GivenUp::Programs { &STARTS } else { &[] };
    for call in PRIVILEGED.iter().chain(starts) {
        program.extend([unless(JUMP_EQUAL, number(*call)), refused(libc::EPERM)]);
    }
    // The family is the low word of the first argument.
    let low = if cfg!(target_endian = "big") { 4 } else { 0 };
    program.extend([
        sock_filter { jt: 0, jf: 3, ..statement(JUMP_EQUAL, number(libc::SYS_socket)) },
        load(offset_of!(seccomp_data, args) + low),
        sock_filter { jt: 1, ..statement(JUMP_EQUAL, libc::AF_UNIX.unsigned_abs()) },
        refused(libc::EAFNOSUPPORT),
        answer(RET_ALLOW),
    ]);
    program
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "a test may panic without a thread")]

    use std::process::Command;

    use rustix::net::{AddressFamily, SocketType, socket};

    use super::*;

    /// Runs a body in a thread that has given something up.
    fn after<T: Send + 'static>(what: GivenUp, body: impl FnOnce() -> T + Send + 'static) -> T {
        let thread = std::thread::spawn(move || {
            give_up(what).unwrap();
            body()
        });
        thread.join().unwrap()
    }

    #[test]
    fn what_is_given_up_fails_and_everything_else_goes_on() {
        after(GivenUp::Programs, || {
            let network = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap_err();
            assert_eq!(network, rustix::io::Errno::AFNOSUPPORT);
            socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
            let error = Command::new("/bin/true").status().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}");
            let mounted = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            assert!(mounted.contains("NoNewPrivs:\t1") && mounted.contains("Seccomp:\t2"));
            std::thread::spawn(|| ()).join().unwrap();
            // What was given up stays so for threads that are started later.
            let later = std::thread::spawn(|| Command::new("/bin/true").status().is_err());
            assert!(later.join().unwrap());
        });
        // Another thread of the same program is as it was.
        assert!(Command::new("/bin/true").status().unwrap().success());
    }

    #[test]
    fn programs_that_may_be_started_have_given_up_the_same() {
        let said = after(GivenUp::Privileged, || {
            let script = "grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status; unshare --user true || echo refused";
            Command::new("sh").args(["-c", script]).output().unwrap()
        });
        let said = String::from_utf8_lossy(&said.stdout).replace('\t', "");
        assert_eq!(said, "NoNewPrivs:1\nSeccomp:2\nrefused\n");
    }
}
