//! Traced programs: their files and their messages are read as they are, and whoever wrote them may mean ill.

use std::io::Write;
use std::time::SystemTime;

use trace::place::dbus::BusCall;
use trace::recorder::TraceRecorder;
use trace::recording::{Backend, CodeAddress, Stack, StackEnd};
use trace::stack::names::{Names, SymbolSources};
use trace::stack::{KnownRegisters, follow, module};

/// Takes `bytes` for an ELF file: follows stacks in it and names addresses of it.
pub fn elf(bytes: &[u8]) {
    // Addresses that are likely to be in it: its entry, and what stands in it.
    let words =
        bytes.chunks_exact(8).filter_map(|word| word.try_into().ok().map(u64::from_le_bytes));
    let likely = words.filter(|word| *word < 1 << 20).step_by(7).take(24);
    let addresses: Vec<u64> = likely.chain([0x1000, 0x1010, 0x1020, u64::MAX]).collect();
    let stack: Vec<u8> = addresses.iter().flat_map(|word| word.to_le_bytes()).collect();
    for ip in &addresses {
        let two = KnownRegisters::new(*ip, 0x7000);
        for registers in [two, two.bp(0x7010).kept([1, 2, 3, 4, 5])] {
            let found = follow(bytes.to_vec(), &registers, &stack);
            // Each step goes up the stack, so that it ends; signals alone may go elsewhere.
            assert!(found.len() <= 512);
        }
    }
    let Ok(mut file) = tempfile::NamedTempFile::new() else { return };
    if file.write_all(bytes).is_err() {
        return;
    }
    let Some(module) = module(file.path()) else { return };
    let mut recorder = TraceRecorder::new(Backend::Peek, Vec::new(), SystemTime::UNIX_EPOCH);
    let index = recorder.module(module);
    let frames =
        addresses.iter().map(|address| CodeAddress { module: Some(index), address: *address });
    let stack = Stack { frames: frames.collect(), end: StackEnd::Lost };
    let sources =
        SymbolSources { debug_directories: Vec::new(), compiled: None, ..SymbolSources::default() };
    let mut names = Names::new(sources);
    let first = names.frames(recorder.recording(), 1, &stack);
    assert_eq!(first, names.frames(recorder.recording(), 1, &stack));
    for frame in first {
        assert!(frame.text().len() < 8192);
    }
}

/// Takes `bytes` for what was sent over a socket.
pub fn dbus(bytes: &[u8]) {
    if let Some(request) = BusCall::parse(bytes) {
        assert!(request.text().len() <= 2 * bytes.len() + 2);
        assert!(request.text().bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()));
    }
}
