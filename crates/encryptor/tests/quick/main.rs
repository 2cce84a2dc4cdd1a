//! Keys and ciphers: worked examples, other implementations, damage.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

mod age;
mod common;
mod golden;
mod keys_object;
mod tink;
mod xbcrypt;
