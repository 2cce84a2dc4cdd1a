//! Checks of certificates that TLS leaves to its callers.
//!
//! The library that verifies for TLS refuses certificates of X.509 version 1, which
//! `openssl x509 -req` before OpenSSL 3.2 makes unless it is given extensions, and with it the recipe in
//! MySQL's own manual. The programs of MySQL, MariaDB and Galera accept them. What accepts them here, for the
//! client of a server and for both sides of a state transfer, is in this crate; certificates of
//! version 3 are verified by the library.

mod fields;
mod name;
mod own;
mod signature;
mod trust;

pub use fields::Fields;
pub use name::names;
pub use own::{OwnCertificateError, with_key};
pub use signature::{verify_tls12_signature, verify_tls13_signature};
pub use trust::{Rejection, Trust, Usage};
