//! Turns a restored backup into a node of a Galera cluster: its position, and whether a donor still
//! has the write sets after it.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use xb_repo::manifest::source_info::GaleraPosition;
use xb_repo::names::BackupName;

use crate::cancel::CancelToken;
use crate::error::BackupError;
use crate::restore::choose::ChosenBackup;
use crate::restore::prepare::PrepareTool;
use crate::restore::request::AfterRestore;
use crate::server::address::place;
use crate::server::login::usual_access;
use crate::server::session::{Session, SessionError};
use crate::small_file::read_small;

/// Time limit of each step of the login to a donor.
const LOGIN_LIMIT: Duration = Duration::from_secs(10);
/// Query to a donor.
const QUESTION: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_cluster_state_uuid', 'wsrep_local_cached_downto', 'wsrep_last_committed')";
/// Names of the file with the position; newer versions of mariadb-backup use the second one.
const FILES: [&str; 2] = ["xtrabackup_galera_info", "mariadb_backup_galera_info"];

/// Reads the position from a restored directory.
pub(crate) fn read_position(dir: &Path) -> Option<GaleraPosition> {
    FILES.iter().find_map(|name| GaleraPosition::parse(&read_small(&dir.join(name))?))
}

/// Contents of `grastate.dat`, the file in which a server finds its position.
fn state_file(position: &GaleraPosition) -> String {
    let GaleraPosition { uuid, seqno } = position;
    format!(
        "# GALERA saved state\nversion: 2.1\nuuid:    {uuid}\nseqno:   {seqno}\nsafe_to_bootstrap: 0\n"
    )
}

/// Writes `grastate.dat` into a data directory, and replaces an existing one.
///
/// # Errors
/// [`BackupError::Restore`].
pub(crate) fn write_position(dir: &Path, position: &GaleraPosition) -> Result<(), BackupError> {
    let write = || -> std::io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        file.write_all(state_file(position).as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(dir.join("grastate.dat"))?;
        std::fs::File::open(dir)?.sync_all()
    };
    write().map_err(|error| BackupError::Restore {
        target: dir.display().to_string(),
        what: format!("grastate.dat: {error}"),
    })
}

/// The position of the node that a restore makes, and whether its donor still has the write sets after it.
pub(crate) struct NodePosition<'a> {
    ready: &'a AfterRestore,
    /// Name of the backup.
    name: &'a BackupName,
    cancel: &'a CancelToken,
    /// The position, once it is known.
    pub(crate) position: Option<GaleraPosition>,
    /// Number of write sets that the donor has to send, once it was asked.
    pub(crate) behind: Option<u64>,
}

impl<'a> NodePosition<'a> {
    /// Takes the position that the manifest states, before a restore that may take hours.
    ///
    /// # Errors
    /// [`BackupError::NoPosition`] if one is needed and there will be none; [`BackupError::Selection`] if there never is one;
    /// [`BackupError::Donor`] if the donor cannot provide the write sets after it.
    pub(crate) async fn stated(
        ready: &'a AfterRestore,
        name: &'a BackupName,
        links: &[ChosenBackup],
        cancel: &'a CancelToken,
    ) -> Result<Self, BackupError> {
        let mut node = Self { ready, name, cancel, position: None, behind: None };
        if node.is_needed() && links.iter().any(ChosenBackup::is_clone) {
            return Err(BackupError::Selection(format!(
                "{name} is a clone of MySQL, which is no node of a Galera cluster: restore it without --galera and without a donor"
            )));
        }
        node.position = stated_position(ready, links)?;
        node.ask_donor().await?;
        Ok(node)
    }

    /// Takes the position of the fetched files, in the directories of the chain. `merged` is the directory in which an
    /// earlier run has begun to merge them.
    ///
    /// # Errors
    /// As [`NodePosition::stated`].
    pub(crate) async fn take_fetched(
        &mut self,
        folders: &[PathBuf],
        merged: Option<&Path>,
    ) -> Result<(), BackupError> {
        if !self.is_needed() {
            return Ok(());
        }
        // The last directory's position is where the chain ends.
        let last = folders.last().and_then(|folder| read_position(folder));
        match last.or_else(|| read_position(merged?)) {
            Some(found) => {
                self.position = Some(found);
                if self.behind.is_none() {
                    self.ask_donor().await?;
                }
            }
            None if writes_position(self.ready, folders) => {
                (self.position, self.behind) = (None, None);
            }
            None => return Err(self.is_missing()),
        }
        Ok(())
    }

    /// Takes the position that preparing has written, if there was none before.
    ///
    /// # Errors
    /// As [`NodePosition::stated`].
    pub(crate) async fn take_prepared(&mut self, target: &Path) -> Result<(), BackupError> {
        if !self.is_needed() || self.position.is_some() {
            return Ok(());
        }
        self.position = Some(read_position(target).ok_or_else(|| self.is_missing())?);
        self.ask_donor().await
    }

    /// Returns a remark if the prepared data itself has an earlier position than the backup.
    pub(crate) fn remark_of_prepared(&self, target: &Path) -> Option<String> {
        let position = self.position.as_ref().filter(|_| self.ready.galera)?;
        let recorded = read_position(target).filter(|recorded| is_before(recorded, position))?;
        Some(format!(
            "the backup is at {position}, but the server's position in its data is {recorded}: the node will ask for what lies between once more; if that is a CREATE TABLE ... SELECT, it stops replicating (Inconsistent): restore another backup, or start the node with an empty data directory"
        ))
    }

    fn is_needed(&self) -> bool {
        self.ready.galera || self.ready.donor.is_some()
    }

    fn is_missing(&self) -> BackupError {
        BackupError::NoPosition { name: self.name.to_string() }
    }

    /// Asks the donor, if there is one, whether it still has what follows the position, if that is known.
    async fn ask_donor(&mut self) -> Result<(), BackupError> {
        if let (Some(address), Some(position)) = (&self.ready.donor, &self.position) {
            self.behind = Some(catches_up(address, position, self.cancel).await?);
        }
        Ok(())
    }
}

/// Returns whether the position that a server has recorded in its data is before the position of the backup. A server does
/// not record every write set.
fn is_before(recorded: &GaleraPosition, position: &GaleraPosition) -> bool {
    recorded.uuid.eq_ignore_ascii_case(&position.uuid)
        && (0..position.seqno).contains(&recorded.seqno)
}

/// Returns whether preparing will write the position: xtrabackup does so for a backup that it took with
/// backup locks.
fn writes_position(ready: &AfterRestore, folders: &[PathBuf]) -> bool {
    let tool = folders.first().and_then(|folder| PrepareTool::of_folder(folder));
    ready.prepare().is_some() && tool == Some(PrepareTool::XtraBackup)
}

/// Position from the manifest. A backup without a position is refused before it is fetched.
fn stated_position(
    ready: &AfterRestore,
    links: &[ChosenBackup],
) -> Result<Option<GaleraPosition>, BackupError> {
    if !ready.galera && ready.donor.is_none() {
        return Ok(None);
    }
    let Some(last) = links.last() else { return Ok(None) };
    let Some(facts) = last.manifest().map(|manifest| &manifest.source) else {
        return Ok(None);
    };
    match &facts.galera {
        Some(text) => Ok(GaleraPosition::parse(text)),
        // The small files of this backup were not compressed, and none of them contained a
        // position.
        None if facts.tool_name.as_deref().is_some_and(|tool| {
            PrepareTool::of_name(tool) != Some(PrepareTool::XtraBackup) || ready.prepare().is_none()
        }) =>
        {
            Err(BackupError::NoPosition { name: last.name.to_string() })
        }
        None => Ok(None),
    }
}

/// Number of write sets that a node at `position` gets from the donor; an error if the donor cannot
/// provide them.
async fn catches_up(
    address: &str,
    position: &GaleraPosition,
    cancel: &CancelToken,
) -> Result<u64, BackupError> {
    let donor = Donor::ask(address, cancel).await?;
    let refused = |what: String| Err(BackupError::Donor { address: address.to_owned(), what });
    match donor.ist(position) {
        Ist::Possible { behind } => Ok(behind),
        Ist::TooOld { gap } => refused(format!(
            "the backup is at {position}, but the donor's gcache starts at {}: {gap} write sets are missing, so the node would need a full state transfer",
            donor.cached_downto
        )),
        Ist::OtherCluster => refused(format!(
            "the backup is at {position}, but the donor belongs to another cluster, {}",
            donor.uuid
        )),
        Ist::Ahead => refused(format!(
            "the backup is at {position}, but the donor only at {}: their histories differ",
            donor.last_committed
        )),
    }
}

/// State that a donor reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Donor {
    /// `wsrep_cluster_state_uuid`.
    pub uuid: String,
    /// `wsrep_local_cached_downto`: the oldest write set in the donor's gcache.
    pub cached_downto: u64,
    /// `wsrep_last_committed`.
    pub last_committed: u64,
}

/// Whether a node at a position can catch up from a donor without a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ist {
    /// Yes: the donor has the missing write sets.
    Possible {
        /// Number of missing write sets.
        behind: u64,
    },
    /// No: the donor no longer has the first missing write sets.
    TooOld {
        /// Number of missing write sets that the donor no longer has.
        gap: u64,
    },
    /// No: the donor belongs to another cluster, or to another history of this one.
    OtherCluster,
    /// No: the donor is behind the backup.
    Ahead,
}

impl Donor {
    /// Returns whether a node at `position` can catch up from this donor.
    #[must_use]
    pub fn ist(&self, position: &GaleraPosition) -> Ist {
        let Ok(seqno) = u64::try_from(position.seqno) else { return Ist::OtherCluster };
        if !self.uuid.eq_ignore_ascii_case(&position.uuid) {
            return Ist::OtherCluster;
        }
        match self.last_committed.checked_sub(seqno) {
            None => Ist::Ahead,
            // Nothing is missing, whatever the gcache holds.
            Some(0) => Ist::Possible { behind: 0 },
            Some(behind) => match self.cached_downto.checked_sub(seqno.saturating_add(1)) {
                // An empty gcache is reported as the largest number.
                Some(gap @ 1..) => Ist::TooOld { gap: gap.min(behind) },
                _ => Ist::Possible { behind },
            },
        }
    }

    /// Asks the server at `address`, a socket path or `HOST[:PORT]`. The account is that of the stock
    /// clients, from their option files.
    ///
    /// # Errors
    /// [`BackupError::NoDonor`]; [`BackupError::Donor`] if the server is not a node of a cluster.
    pub async fn ask(address: &str, cancel: &CancelToken) -> Result<Self, BackupError> {
        let (failed, refused) = (
            |what| BackupError::NoDonor { address: address.to_owned(), what },
            |what: &str| BackupError::Donor { address: address.to_owned(), what: what.to_owned() },
        );
        let access = usual_access(|options| {
            for (name, value) in place(address) {
                options.take(name, Some(OsStr::new(&value)));
            }
        });
        let access = access.map_err(|error| failed(error.to_string()))?;
        let rows = async {
            let mut session = Session::open(&access, LOGIN_LIMIT, cancel).await?;
            session.rows(QUESTION, cancel).await
        };
        let rows = match rows.await {
            Ok(rows) => rows,
            Err(SessionError::Own(error)) => return Err(error),
            Err(SessionError::Server(error)) => return Err(failed(error.to_string())),
        };
        Self::of(&rows.iter().filter_map(|row| row.texts().ok()).collect::<Vec<_>>()).ok_or_else(
            || refused("the server is not a cluster node, or does not report its gcache"),
        )
    }

    /// Reads the answer to [`QUESTION`].
    fn of(status: &[[String; 2]]) -> Option<Self> {
        let value = |name: &str| {
            let mut rows = status.iter();
            rows.find_map(|[key, value]| key.eq_ignore_ascii_case(name).then_some(value))
        };
        Some(Self {
            uuid: value("wsrep_cluster_state_uuid").filter(|uuid| uuid.len() == 36)?.to_owned(),
            cached_downto: value("wsrep_local_cached_downto")?.parse().ok()?,
            last_committed: value("wsrep_last_committed")?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "9c9a4c3b-2b3c-11f0-8d3f-7b1b1f0f0a11";

    fn position(seqno: i64) -> GaleraPosition {
        GaleraPosition { uuid: UUID.to_owned(), seqno }
    }

    #[test]
    fn both_names_and_forms_of_the_position_are_read_and_written_as_a_server_wants_it() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_position(dir.path()), None);
        for (name, text) in [
            ("xtrabackup_galera_info", format!("{UUID}:42\n")),
            ("mariadb_backup_galera_info", format!("{UUID}:42 0-1-7")),
        ] {
            std::fs::write(dir.path().join(name), text).unwrap();
            assert_eq!(read_position(dir.path()), Some(position(42)), "{name}");
            std::fs::remove_file(dir.path().join(name)).unwrap();
        }
        assert!(is_before(&position(41), &position(42)));
        for recorded in [position(42), position(43), position(-1)] {
            assert!(!is_before(&recorded, &position(42)), "{recorded}");
        }
        let other = UUID.replace("9c9a", "9c9b");
        assert!(!is_before(&GaleraPosition { uuid: other, seqno: 41 }, &position(42)));
        std::fs::write(dir.path().join("grastate.dat"), "old").unwrap();
        write_position(dir.path(), &position(42)).unwrap();
        let state = std::fs::read_to_string(dir.path().join("grastate.dat")).unwrap();
        assert!(
            state.contains(&format!("uuid:    {UUID}\nseqno:   42\nsafe_to_bootstrap: 0\n")),
            "{state}"
        );
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        for bad in [
            "",
            ":",
            "x:1",
            "00000000-0000-0000-0000-000000000000:-1",
            &format!("{UUID}:-1"),
            &format!("{UUID}:many"),
        ] {
            assert_eq!(GaleraPosition::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_donor_helps_when_it_has_the_next_write_set() {
        let donor = |cached_downto, last_committed| Donor {
            uuid: UUID.to_uppercase(),
            cached_downto,
            last_committed,
        };
        assert_eq!(donor(43, 50).ist(&position(42)), Ist::Possible { behind: 8 });
        assert_eq!(donor(1, 50).ist(&position(42)), Ist::Possible { behind: 8 });
        assert_eq!(donor(44, 50).ist(&position(42)), Ist::TooOld { gap: 1 });
        assert_eq!(donor(u64::MAX, 50).ist(&position(42)), Ist::TooOld { gap: 8 });
        assert_eq!(donor(u64::MAX, 42).ist(&position(42)), Ist::Possible { behind: 0 });
        assert_eq!(donor(1, 41).ist(&position(42)), Ist::Ahead);
        let other = Donor { uuid: "x".into(), ..donor(1, 50) };
        assert_eq!(other.ist(&position(42)), Ist::OtherCluster);
    }

    #[test]
    fn a_donors_answer_is_understood() {
        let of = |pairs: &[(&str, &str)]| {
            let rows = pairs.iter().map(|(name, value)| [(*name).to_owned(), (*value).to_owned()]);
            Donor::of(&rows.collect::<Vec<_>>())
        };
        let (cached, last) = (("wsrep_local_cached_downto", "17"), ("wsrep_last_committed", "20"));
        let donor = of(&[cached, last, ("WSREP_CLUSTER_STATE_UUID", UUID)]).unwrap();
        assert_eq!((donor.cached_downto, donor.last_committed), (17, 20));
        for bad in [&[][..], &[last], &[cached, last, ("wsrep_cluster_state_uuid", "")]] {
            assert_eq!(of(bad), None);
        }
    }

    #[test]
    fn addresses_are_sockets_or_hosts() {
        let of = |address| {
            let words = place(address).into_iter().map(|(name, value)| format!("{name}={value}"));
            words.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("/run/s"), "socket=/run/s protocol=socket");
        assert_eq!(of("db1"), "host=db1 protocol=tcp");
        assert_eq!(of("db1:3307"), "host=db1 protocol=tcp port=3307");
        assert_eq!(of("[::1]:3307"), "host=::1 protocol=tcp port=3307");
        assert_eq!(of("::1"), "host=::1 protocol=tcp");
    }
}
