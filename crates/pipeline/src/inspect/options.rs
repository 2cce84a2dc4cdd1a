//! How a stream is inspected.

use std::sync::Arc;

use xb_encryptor::xbcrypt::Cipher;

use crate::scan::end_rule::EndRule;

/// What is looked into.
#[derive(Debug, Clone)]
pub struct InspectOptions {
    /// When the stream counts as whole.
    pub rule: EndRule,
    /// Decompress and decrypt single files, as the suffixes of their names tell.
    pub undo: bool,
    /// For encrypted files. Without it they are left as they are, and counted.
    pub cipher: Option<Arc<Cipher>>,
    /// Check the pages of tablespaces.
    pub pages: bool,
    /// Ceiling in bytes for what the decoders of open files hold.
    pub memory: u64,
}
