//! Exit codes, on which scripts can rely.

use xb_backup::{BackupError, UntilError};
use xb_cli::Exit;
use xb_pipeline::PackError;
use xb_repo::error::RepoError;
use xb_uploader::{StoreError, StoreErrorKind};

/// Exit code after an error of the library.
pub(crate) fn exit(error: &BackupError) -> Exit {
    use BackupError as E;
    match error {
        E::Repo(error) => of_repo(error),
        E::Unlocked { source, .. } => of_store(source),
        E::MaybeRewrapped { source, .. } => exit(source),
        E::Put(PackError::Read { .. } | PackError::Stream(_)) | E::Input(_) | E::TarInput => {
            Exit::Input
        }
        E::NotStarted { .. } | E::Producer { .. } | E::Clone(_) => Exit::Input,
        E::System { .. } if error.fifo().is_some() => Exit::Input,
        E::LockStall { .. } => Exit::Unreachable,
        E::Put(PackError::Plan(_)) | E::Plan(_) | E::Login(_) | E::ClearKeys(_) => Exit::Usage,
        E::Keys(_)
        | E::FileKey { .. }
        | E::Unsealed { .. }
        | E::Unvouched { .. }
        | E::UnprovenBase(_) => Exit::NotPermitted,
        E::Damaged { .. } | E::DamagedCopy { .. } => Exit::Damaged,
        E::Until(error) if matches!(**error, UntilError::NoArchive { .. }) => Exit::NotFound,
        E::Interrupted(signal) => Exit::Interrupted(*signal),
        _ => Exit::Failed,
    }
}

fn of_repo(error: &RepoError) -> Exit {
    match error {
        RepoError::Store(error) | RepoError::InDoubt { source: error, .. } => of_store(error),
        RepoError::Name(_) => Exit::Usage,
        RepoError::NotThere { .. } => Exit::NotFound,
        RepoError::Manifest { .. } | RepoError::Unclear { .. } => Exit::Damaged,
        _ => Exit::Failed,
    }
}

fn of_store(error: &StoreError) -> Exit {
    match error.kind {
        StoreErrorKind::NotFound | StoreErrorKind::NoBucket => Exit::NotFound,
        StoreErrorKind::Denied => Exit::NotPermitted,
        StoreErrorKind::Unavailable | StoreErrorKind::NotAStore | StoreErrorKind::Altered => {
            Exit::Unreachable
        }
        StoreErrorKind::Settings => Exit::Usage,
        StoreErrorKind::Damaged => Exit::Damaged,
        _ => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use xb_uploader::Operation;

    use super::*;

    #[test]
    fn every_kind_of_a_stores_error_has_its_code() {
        let of = |kind| exit(&StoreError::new(Operation::Get, "x", kind, "why").into());
        for (kind, expected) in [
            (StoreErrorKind::NotFound, Exit::NotFound),
            (StoreErrorKind::NoBucket, Exit::NotFound),
            (StoreErrorKind::Denied, Exit::NotPermitted),
            (StoreErrorKind::Unavailable, Exit::Unreachable),
            (StoreErrorKind::NotAStore, Exit::Unreachable),
            (StoreErrorKind::Settings, Exit::Usage),
            (StoreErrorKind::Damaged, Exit::Damaged),
            (StoreErrorKind::Altered, Exit::Unreachable),
            (StoreErrorKind::Rejected, Exit::Failed),
            (StoreErrorKind::Full, Exit::Failed),
            (StoreErrorKind::AlreadyExists, Exit::Failed),
            (StoreErrorKind::Fenced, Exit::Failed),
        ] {
            assert_eq!(of(kind), expected, "{kind:?}");
        }
        assert_eq!(exit(&BackupError::Interrupted(15)), Exit::Interrupted(15));
        assert_eq!(exit(&BackupError::Keys("x".into())), Exit::NotPermitted);
        assert_eq!(exit(&BackupError::Input("x".into())), Exit::Input);
        assert_eq!(exit(&BackupError::Login("x".into())), Exit::Usage);
    }
}
