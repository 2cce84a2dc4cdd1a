//! One ordered byte stream over several connections that may break and are taken up again.
//!
//! Knows nothing of Galera: an offer, bytes, and a receipt.
