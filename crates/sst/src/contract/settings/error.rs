//! Why settings cannot be used.

/// Why the settings cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A value that the option cannot have.
    #[error("option {option}: {what}")]
    Value {
        /// The option's name in `[sst]`.
        option: String,
        /// What is wrong.
        what: String,
    },
    /// An option of the stock method that this one does not have, where ignoring it would be wrong.
    #[error("option {option} is not for wsrep_sst_method=xbrs: {instead}")]
    Refused {
        /// The option's name in `[sst]`.
        option: String,
        /// What to do instead.
        instead: String,
    },
}
