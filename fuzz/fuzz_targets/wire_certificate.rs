//! Any bytes as a peer's certificate: no panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xb_wire::parsers::is_certificate;

fuzz_target!(|data: &[u8]| {
    let _ = is_certificate(data);
});
