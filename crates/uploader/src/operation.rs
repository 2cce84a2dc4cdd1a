//! Operations of a store.

use std::fmt;

/// Operation of a store, as errors name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Checks that a store can be used.
    Open,
    /// Reads an object, or a part of it.
    Get,
    /// Asks for an object's size, or whether a bucket exists.
    Head,
    /// Lists objects.
    List,
    /// Lists unfinished uploads.
    ListUploads,
    /// Writes an object in one request.
    Put,
    /// Writes an object unless its name is taken; or creates a bucket or folder.
    Create,
    /// Copies an object within the store.
    Copy,
    /// Begins an upload in parts.
    StartMultipart,
    /// Sends one part of an upload.
    PutPart,
    /// Makes an object of the parts of an upload.
    Complete,
    /// Removes the parts of an unfinished upload.
    Abort,
    /// Deletes objects.
    Delete,
    /// Locks an object.
    Lock,
    /// Reads or changes whether objects of a bucket can be locked.
    ObjectLock,
    /// Reads or changes the lifecycle rules of a bucket.
    LifecycleRule,
    /// Takes or keeps a claim; several requests of the caller.
    Claim,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Get => "get",
            Self::Head => "head",
            Self::List => "list",
            Self::ListUploads => "list uploads",
            Self::Put => "put",
            Self::Create => "create",
            Self::Copy => "copy",
            Self::StartMultipart => "start multipart",
            Self::PutPart => "put part",
            Self::Complete => "complete",
            Self::Abort => "abort",
            Self::Delete => "delete",
            Self::Lock => "lock",
            Self::ObjectLock => "object lock",
            Self::LifecycleRule => "lifecycle rule",
            Self::Claim => "claim",
        })
    }
}
