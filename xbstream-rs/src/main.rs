//! xbstream-rs
fn main() {}
