//! Errors in the settings.

/// Settings that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A value that is invalid for the option.
    #[error("option {option}: {what}")]
    Value {
        /// The option's name in `[sst]`.
        option: String,
        /// Its defect.
        what: String,
    },
    /// An option of the stock method that is not supported here and must not be ignored.
    #[error("option {option} does not work with wsrep_sst_method=xbrs: {instead}")]
    Refused {
        /// The option's name in `[sst]`.
        option: String,
        /// The alternative.
        instead: String,
    },
}
