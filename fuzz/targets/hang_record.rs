#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| unjank_fuzz::hangs::record(data));
