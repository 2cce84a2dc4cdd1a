//! Records beside the manifests (verification, pins), copies, retention and new key slots.

mod copy;
mod listing;
mod prune;
mod rewrap;
mod support;
