#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| xb_fuzzing::run("certificates", data));
