//! Preloaded into programs: syncs of the lists of recent files return at once, or those lists cannot be written at all.
//!
//! `UNJANK_RELAX_DIR` names the data directory whose lists need no sync, `UNJANK_PRIVATE_PATHS` what must not be written, a path a line.
//! Without either every call goes to the next library as it is. docs/recents-relax.md says what is covered and what cannot be.
#![expect(unsafe_code, reason = "C programs call these functions in place of the C library's")]

mod bus;
mod guarded;
mod lists;
mod named;
mod opening;
mod syncing;
mod touching;

/// Runs before the program: what needs `getenv` or `dlsym` is done here, where that is allowed.
#[used]
#[unsafe(link_section = ".init_array")]
static PREPARE: extern "C" fn() = prepare;

extern "C" fn prepare() {
    lists::read();
    syncing::prepare();
    opening::prepare();
    named::prepare();
    touching::prepare();
    bus::prepare();
}

/// Stands for a function of glibc in what is linked into this library (`build.rs`): nothing is found.
#[unsafe(no_mangle)]
extern "C" fn unjank_finds_no_object() -> std::ffi::c_int {
    -1
}
