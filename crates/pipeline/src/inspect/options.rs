//! Options of an inspection.

use std::sync::Arc;

use xb_encryptor::xbcrypt::Cipher;

use crate::scan::end_rule::EndRule;

/// Options of an inspection.
#[derive(Debug, Clone)]
pub struct InspectOptions {
    /// Rule by which the stream counts as complete.
    pub rule: EndRule,
    /// Decompress and decrypt single files, as indicated by the suffixes of their names.
    pub decoding: bool,
    /// Cipher for encrypted files. Without it they are left alone and counted.
    pub cipher: Option<Arc<Cipher>>,
    /// Check the pages of tablespaces.
    pub pages: bool,
    /// Limit in bytes on the memory of the decoders of open files, and of the bad pages of a clone that patches may replace.
    pub memory: u64,
}
