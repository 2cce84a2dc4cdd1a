//! Benches only; nothing to use from here.
