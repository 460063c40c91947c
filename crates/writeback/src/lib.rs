//! Preloaded by `unjank run`: what a program writes goes to the disk in the program's own I/O class.
//!
//! Written pages usually wait for the kernel's flusher, which writes them in the usual class whoever made them. Whoever starts write-back gives it its class, so it is started here:
//! every few MiB of a big file by the writer itself, and when a file is closed by the keeper of the job, to which it is handed over (`UNJANK_WRITEBACK` is the path of its socket), or by the writer
//! where there is none; who asks for everything to be written waits until that is so. No lock and no descriptor of the program is changed, and no result or `errno` but where the disk has failed (`handover::FailedWriteback`); docs/run.md says what is covered.
//!
//! The functions may be left in the middle: a thread that is cancelled in `write` is unwound through ours, so they are `C-unwind` and hold nothing while the next function runs.
#![expect(unsafe_code, reason = "C programs call these functions in place of the C library's")]

mod closing;
mod handover;
mod mailbox;
mod sandbox;
mod syncing;
mod writing;

/// Runs before the program: what needs `getenv` or `dlsym` is done here, where that is allowed.
#[used]
#[unsafe(link_section = ".init_array")]
static PREPARE: extern "C" fn() = prepare;

extern "C" fn prepare() {
    mailbox::read();
    closing::prepare();
    writing::prepare();
    sandbox::prepare();
    syncing::prepare();
}

/// Stands for a function of glibc in what is linked into this library (`build.rs`): nothing is found.
#[unsafe(no_mangle)]
extern "C" fn unjank_finds_no_object() -> std::ffi::c_int {
    -1
}
