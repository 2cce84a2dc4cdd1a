//! Records beside the manifests (verification, pins), copies, retention and new key slots.

mod copy;
mod history;
mod listing;
mod prune;
mod rewrap;
mod support;
