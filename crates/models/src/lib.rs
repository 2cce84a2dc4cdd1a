//! Models of commands that meet in one store; each is a test of its own in `tests/`.
//!
//! They follow the rules of `crates/repo` and use nothing of it. They are a crate of their own because
//! they go through millions of states: they are optimised in tests, which would take `xb-repo` half a
//! minute of compiling.
