//! Checks of the backup program and of the server that it reads.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use xb_binlog::Fork;

use crate::cancel::CancelToken;
use crate::check::CheckLine;
use crate::check::galera::{VARIABLES, Variables, check_galera};
use crate::child::{OnLine, ask};
use crate::server::login::{LoginError, about_files, fork_of, log_in};
use crate::server::watch::ServerWatch;

/// Privileges without which a backup fails, and those that include them.
const GRANTS: [(&str, &[&str]); 2] =
    [("RELOAD", &["RELOAD", "ALL PRIVILEGES"]), ("PROCESS", &["PROCESS", "ALL PRIVILEGES"])];
/// Privileges of which one is needed for a checkpoint of MariaDB.
const CHECKPOINT: [&str; 2] = ["SUPER", "ALL PRIVILEGES"];

/// Checks a producer and its server. Only known backup programs are asked; of any other, only its
/// presence is checked. `checkpoint`: whether a backup begins with a checkpoint of the server.
pub async fn check_producer(
    argv: &[OsString],
    checkpoint: bool,
    cancel: &CancelToken,
) -> Vec<CheckLine> {
    let Some(program) = argv.first() else { return Vec::new() };
    let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    if let Err(error) = crate::child::find(&[Path::new(program)]) {
        let fix = "install it, or give its path as the producer";
        return vec![CheckLine::failed("program", error.to_string(), fix)];
    }
    let Some(fork) = fork_of(program) else {
        let found = format!("{name} is installed; this program cannot be checked further");
        return vec![CheckLine::ok("program", found)];
    };
    let mut lines = Vec::new();
    // mariadb-backup writes its version to stderr.
    let heard = Arc::new(std::sync::Mutex::new(String::new()));
    let keep: OnLine = {
        let heard = Arc::clone(&heard);
        Arc::new(move |line: &[u8]| {
            if let Ok(mut heard) = heard.lock() {
                heard.push_str(&String::from_utf8_lossy(line));
                heard.push('\n');
            }
        })
    };
    let version = ask(Path::new(program), &["--version".into()], &keep, cancel).await;
    let text = match version {
        Ok(text) => text + &heard.lock().map(|heard| heard.clone()).unwrap_or_default(),
        Err(error) => {
            let fix = "run it by hand, and install what is missing";
            lines.push(CheckLine::failed("program", error.to_string(), fix));
            return lines;
        }
    };
    let own = first_version(&text);
    let shown = own.as_deref().unwrap_or("of an unknown version");
    lines.push(CheckLine::ok("program", format!("{name} {shown}")));
    match server_facts(fork, argv, cancel).await {
        Ok(facts) => {
            lines.extend(facts.judge(&name, own.as_deref()));
            if checkpoint && fork == Fork::MariaDb {
                lines.push(facts.checkpoint());
            }
            lines.push(check_history(argv, cancel).await);
            lines.extend(check_galera(&facts.variables, &defaults_words(argv), cancel).await);
        }
        Err(error) => lines.push(CheckLine::failed(
            "server",
            format!("the login does not work: {error}"),
            "check that the server is running, and check the producer's user, password and socket",
        )),
    }
    lines
}

/// The producer's options about option files.
fn defaults_words(argv: &[OsString]) -> Vec<OsString> {
    let wanted = about_files(argv.get(1..).unwrap_or_default());
    let word = |name: &str, value: OsString| {
        let mut word = OsString::from(name);
        word.push(value);
        word
    };
    [
        wanted.only.map(|path| word("--defaults-file=", path.into())),
        wanted.extra.map(|path| word("--defaults-extra-file=", path.into())),
        wanted.group_suffix.map(|suffix| word("--defaults-group-suffix=", suffix.into())),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Facts that the server states about itself and the login.
#[derive(Default)]
struct Facts {
    version: String,
    grants: Vec<String>,
    variables: Variables,
}

async fn server_facts(
    fork: Fork,
    argv: &[OsString],
    cancel: &CancelToken,
) -> Result<Facts, LoginError> {
    let mut session = log_in(fork, argv, cancel).await?;
    let mut facts = Facts::default();
    for row in session.rows("SELECT VERSION()", cancel).await? {
        [facts.version] = row.texts()?;
    }
    for row in session.rows("SHOW GRANTS", cancel).await? {
        let [grant] = row.texts()?;
        facts.grants.push(grant);
    }
    let query = format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({VARIABLES})");
    for row in session.rows(&query, cancel).await? {
        let [name, value] = row.texts()?;
        facts.variables.insert(name, value);
    }
    Ok(facts)
}

/// Checks whether increments can prove that their base is of the same history.
async fn check_history(argv: &[OsString], cancel: &CancelToken) -> CheckLine {
    match ServerWatch::begin(argv, cancel).await.lacks() {
        None => CheckLine::ok("history", "the server's logs can be compared with those of a base"),
        Some(why) => CheckLine::warning(
            "history",
            format!("increments cannot prove that the server was not restored: {why}"),
            "let the backup's user read these directories; otherwise, increments need --accept-history or --or-full",
        ),
    }
}

impl Facts {
    /// Judges the server by its version and the grants of the login.
    fn judge(&self, program: &str, own: Option<&str>) -> [CheckLine; 2] {
        let series = |version: &str| version.split('.').take(2).collect::<Vec<_>>().join(".");
        let found = format!("the login works; the server is {}", self.version);
        let version = match own {
            Some(own) if series(own) != series(&self.version) => CheckLine::warning(
                "server",
                format!("{found}, {program} is {own}"),
                "install the backup program of the server's series",
            ),
            _ => CheckLine::ok("server", found),
        };
        let global = self.global_grants();
        let missing: Vec<&str> = GRANTS
            .iter()
            .filter(|(_, any)| !any.iter().any(|grant| global.contains(grant)))
            .map(|(name, _)| *name)
            .collect();
        let grants = match missing.is_empty() {
            true => CheckLine::ok("grants", "RELOAD and PROCESS are granted"),
            // A role may grant them.
            false => CheckLine::warning(
                "grants",
                format!("{} is not granted to the login itself", missing.join(" and ")),
                format!("GRANT {} ON *.* TO the backup's user", missing.join(", ")),
            ),
        };
        [version, grants]
    }

    /// Judges whether the login may have the server write a checkpoint.
    fn checkpoint(&self) -> CheckLine {
        let global = self.global_grants();
        match CHECKPOINT.iter().any(|grant| global.contains(grant)) {
            true => CheckLine::ok("checkpoint", "a backup begins with a checkpoint of the server"),
            false => CheckLine::warning(
                "checkpoint",
                "SUPER is not granted to the login: the increments of a quiet server carry earlier changes again",
                "GRANT SUPER ON *.* TO the backup's user, or accept that with --checkpoint=no",
            ),
        }
    }

    /// The grants that are not for one schema, as one text.
    fn global_grants(&self) -> String {
        self.grants.iter().filter(|grant| grant.contains(" ON *.* ")).cloned().collect()
    }
}

/// The first text such as `10.11.6` or `8.0.35-30`.
fn first_version(text: &str) -> Option<String> {
    let words = text.split(|c: char| c.is_whitespace() || c == ',');
    let mut versions = words.filter(|word| {
        word.starts_with(|c: char| c.is_ascii_digit()) && word.matches('.').count() >= 2
    });
    versions.next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::CheckState;

    fn states(version: &str, grants: &[&str], own: &str) -> [CheckState; 2] {
        let grants = grants.iter().map(|grant| (*grant).to_owned()).collect();
        let facts = Facts { version: version.to_owned(), grants, ..Facts::default() };
        facts.judge("mariadb-backup", Some(own)).map(|line| line.state)
    }

    #[test]
    fn a_server_is_judged_by_version_and_grants() {
        use CheckState::{Ok, Warning};
        let version = "10.11.6-MariaDB-1";
        let own = "GRANT RELOAD, PROCESS, BINLOG MONITOR ON *.* TO `b`@`localhost`";
        let grants = [own, "GRANT SELECT ON `x`.* TO `b`@`localhost`"];
        assert_eq!(states(version, &grants, "10.11.19-MariaDB"), [Ok, Ok]);
        assert_eq!(states(version, &grants, "11.8.3-MariaDB"), [Warning, Ok]);
        let grants = [&*own.replace("RELOAD, ", "")];
        assert_eq!(states(version, &grants, "10.11.6"), [Ok, Warning]);
        assert_eq!(states(version, &[&own.replace("*.*", "`y`.*")], "10.11.6"), [Ok, Warning]);
        let checkpoint = |grant: &str| {
            let facts = Facts { grants: vec![grant.to_owned()], ..Facts::default() };
            facts.checkpoint().state
        };
        assert_eq!(checkpoint(own), Warning);
        assert_eq!(checkpoint("GRANT RELOAD, PROCESS, SUPER ON *.* TO `b`@`localhost`"), Ok);
        let all = ["GRANT ALL PRIVILEGES ON *.* TO x"];
        assert_eq!(checkpoint(all[0]), Ok);
        assert_eq!(states("10.11.6", &all, "10.11.6"), [Ok, Ok]);
    }

    #[test]
    fn versions_are_found_in_what_programs_write() {
        let found = |text| first_version(text).unwrap_or_default();
        assert_eq!(
            found("mariadb-backup based on MariaDB server 10.11.19-MariaDB Linux (x86_64)"),
            "10.11.19-MariaDB"
        );
        assert_eq!(found("xtrabackup version 8.0.35-30 based on MySQL server 8.0.35"), "8.0.35-30");
        assert_eq!(first_version("no version here 1.2"), None);
    }
}
