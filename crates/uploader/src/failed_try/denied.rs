//! Hints for requests that a store does not permit, in the words of that store.

use std::borrow::Cow;

use crate::service::{NO_ACCESS, Permission, Service};

/// Seconds by which clocks may differ: stores accept 15 minutes, and their answers take some time.
const SKEW: i64 = 300;

/// Hint for a store that refuses to write to the name of a locked object, which claims and records need.
const LOCKED: &str = "the object is locked, and this bucket keeps no versions beside it: enable versioning of the bucket; or remove its default retention, and lock complete backups with --retain";

const WRONG_CLOCK: &str =
    "the clock of this machine is wrong; set it (chronyc makestep, timedatectl)";

const S3: [(&str, &str); 8] = [
    ("credential_process", "run this program by hand, and read its messages"),
    ("RequestTimeTooSkewed", WRONG_CLOCK),
    ("SignatureDoesNotMatch", "check the secret key and --s3-region; one of them is wrong"),
    (
        "InvalidAccessKeyId",
        "the store does not know this access key; check the key and the endpoint",
    ),
    ("AuthorizationHeaderMalformed", "the region is wrong; give the right one with --s3-region"),
    // versitygw and MinIO, in a bucket that keeps one version of each object.
    ("object lock", LOCKED),
    ("WORM protected", LOCKED),
    (
        "AccessDenied",
        "the access key is valid, but not allowed to do this; check the policies of the bucket and of the key",
    ),
];

/// "Authorization failures" in "Status and error codes (Azure Storage)".
const AZURE: [(&str, &str); 4] = [
    (
        "AuthenticationFailed",
        "check the name and the key of the storage account; of a SAS, check also when it begins and ends",
    ),
    (
        "InvalidAuthenticationInfo",
        "check the name and the key of the storage account, or the token",
    ),
    // Also the code for a network that the account's firewall does not let in.
    (
        "AuthorizationFailure",
        "check the network rules of the storage account; the identity needs the role `Storage Blob Data Contributor` on the container, a SAS the permissions `racwdl`",
    ),
    (
        "KeyBasedAuthenticationNotPermitted",
        "the storage account does not permit account keys: use an identity",
    ),
];

/// Codes of refusals that protect an object from every change.
const PROTECTED: [(&str, &str); 3] = [
    (
        "BlobImmutableDueToPolicy",
        "an immutability policy of the container protects the blob until it ends",
    ),
    (
        "LeaseIdMissing",
        "another program holds a lease on the blob: find out which; `az storage blob lease break` ends the lease",
    ),
    (
        "SnapshotsPresent",
        "the blob has snapshots, and must be removed after them: `az storage blob delete --delete-snapshots only` removes them",
    ),
];

/// Codes of refusals that are about the credentials themselves. A proxy in front of the store does not send them.
const OF_KEYS: [&str; 7] = [
    "SignatureDoesNotMatch",
    "InvalidAccessKeyId",
    "AuthorizationHeaderMalformed",
    "AuthenticationFailed",
    "InvalidAuthenticationInfo",
    "KeyBasedAuthenticationNotPermitted",
    // The message of Azure's `AuthenticationFailed`; Azurite sends it with another code.
    "Server failed to authenticate the request",
];

/// Returns whether a refusal names the credentials as its reason: in its body, or in a header.
pub(super) fn is_about_keys(message: &str, header: &str) -> bool {
    OF_KEYS.iter().any(|code| message.contains(code) || header == *code)
}

/// Hint for a request that was not permitted. `said`: the error code and what else was answered;
/// `clock_ahead`: seconds by which this machine's clock is ahead of the store's, if they are known.
pub(super) fn denied(
    service: Service,
    said: &str,
    clock_ahead: Option<i64>,
) -> Option<Cow<'static, str>> {
    if let Some(ahead) = clock_ahead.filter(|ahead| ahead.abs() > SKEW) {
        let (seconds, direction) =
            (ahead.unsigned_abs(), if ahead > 0 { "ahead of" } else { "behind" });
        return Some(format!("the clock of this machine is {seconds} s {direction} the store's: set it (chronyc makestep, timedatectl)").into());
    }
    let of = |codes: &[(&str, &'static str)]| {
        codes.iter().find(|(code, _)| said.contains(code)).map(|(_, hint)| *hint)
    };
    let hint = match service {
        Service::S3 => of(&S3),
        Service::Azure => Some(of(&AZURE).unwrap_or(service.permit(Permission::Write))),
        Service::Google => Some(service.permit(Permission::Write)),
        Service::Folder => Some(NO_ACCESS),
    };
    hint.map(Cow::Borrowed)
}

/// Hint for an object that the store does not let anyone change.
pub(super) fn protected(said: &str) -> Option<&'static str> {
    PROTECTED.iter().find(|(code, _)| said.contains(code)).map(|(_, hint)| *hint)
}
