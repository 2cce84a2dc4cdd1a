//! The kind of service behind a store, and what hints call its settings and permissions.

/// Hint for a local directory that this user may not read or write.
pub(crate) const NO_ACCESS: &str =
    "give this user access to the directory, or run the command as another user";

/// Kind of service that keeps the objects of a store. An S3-compatible store counts as S3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Service {
    /// Amazon S3, and every store that speaks its language.
    S3,
    /// Google Cloud Storage.
    Google,
    /// Azure Blob Storage.
    Azure,
    /// A directory of this machine.
    Folder,
}

/// Use that a caller makes of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Read an object, or a part of it.
    Read,
    /// Write an object in one request.
    Write,
    /// Write an object in parts.
    WriteParts,
    /// Remove an object.
    Remove,
}

impl Service {
    /// Way to permit this on this service.
    #[must_use]
    pub fn permit(self, what: Permission) -> &'static str {
        match (self, what) {
            (Self::S3, Permission::Read) => "permit s3:GetObject or its equivalent",
            (Self::S3, Permission::Write) => "permit s3:PutObject or its equivalent",
            (Self::S3, Permission::WriteParts) => "permit s3:PutObject and s3:AbortMultipartUpload",
            (Self::S3, Permission::Remove) => "permit s3:DeleteObject",
            (Self::Google, _) => {
                "give the service account the role `roles/storage.objectAdmin` on the bucket"
            }
            (Self::Azure, _) => {
                "give the identity the role `Storage Blob Data Contributor` on the container, or the SAS the permissions `racwdl`"
            }
            (Self::Folder, _) => NO_ACCESS,
        }
    }

    /// Hint for a store that ignores or refuses conditional writes; `None` if no setting helps.
    #[must_use]
    pub fn without_conditions(self) -> Option<&'static str> {
        (self == Self::S3).then_some("set --s3-provider=plain")
    }

    /// Hint if there is no such bucket or container.
    pub(crate) fn no_bucket(self) -> &'static str {
        match self {
            Self::Azure => {
                "create the container, or check its name, the storage account and the endpoint"
            }
            _ => "create the bucket, or check its name and the endpoint",
        }
    }

    /// Hint if no credentials were given, and the machine's own service has none.
    pub(crate) fn no_credentials(self) -> &'static str {
        match self {
            Self::Azure => {
                "no account key and no SAS was given, and this machine has no identity that provides a token; give --azure-access-key or --azure-sas-token by option file or environment"
            }
            Self::Google => {
                "no service account was given, and this machine has none; give --google-credentials-file, or GOOGLE_APPLICATION_CREDENTIALS in the environment"
            }
            _ => {
                "no access key was given, and this machine has no role that provides one; give one by option, option file, environment or profile. In a container, the machine's service answers only if its hop limit is at least 2 (HttpPutResponseHopLimit)"
            }
        }
    }

    /// Hint if the store does not know a kind of request.
    pub(crate) fn unsupported(self) -> Option<&'static str> {
        (self == Self::S3)
            .then_some("the store does not support this request; try another --s3-provider")
    }

    /// Hint if the store has forgotten the parts of an upload.
    pub(crate) fn forgotten(self) -> &'static str {
        match self {
            Self::Azure => {
                "the store has removed a block that it had acknowledged, as it does after a week, or if something else writes a blob of this name: find what else writes here, and take a new backup"
            }
            _ => {
                "the store has removed the unfinished upload, or a part of it: let no lifecycle rule abort uploads that are younger than the longest run, and take a new backup"
            }
        }
    }
}
