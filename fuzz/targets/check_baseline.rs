#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| unjank_fuzz::check::baseline(data));
