//! Checks of the backup program and of the server that it reads.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use crate::cancel::CancelToken;
use crate::check::CheckLine;
use crate::check::galera::{VARIABLES, Variables, check_galera};
use crate::child::{OnLine, ask};
use crate::server::login::{Family, ask_server, login_args};
use crate::server::watch::ServerWatch;

/// Privileges without which a backup fails, and those that include them.
const GRANTS: [(&str, &[&str]); 2] =
    [("RELOAD", &["RELOAD", "ALL PRIVILEGES"]), ("PROCESS", &["PROCESS", "ALL PRIVILEGES"])];
/// Checks a producer and its server. Only known backup programs are asked; of any other, only its
/// presence is checked.
pub async fn check_producer(argv: &[OsString], cancel: &CancelToken) -> Vec<CheckLine> {
    let Some(program) = argv.first() else { return Vec::new() };
    let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    if let Err(error) = crate::child::find(&[Path::new(program)]) {
        let fix = "install it, or give its path as the producer";
        return vec![CheckLine::failed("program", error.to_string(), fix)];
    }
    let Some(family) = Family::of_program(program) else {
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
    let client = family.client();
    if crate::child::find(&[Path::new(client)]).is_err() {
        lines.push(CheckLine::warning(
            "server",
            format!("not checked: there is no client program `{client}`"),
            format!("install the package of `{client}` to check login, grants and version"),
        ));
        return lines;
    }
    let args = login_args(argv.get(1..).unwrap_or_default());
    let defaults: Vec<OsString> =
        args.into_iter().filter(|word| word.as_bytes().starts_with(b"--defaults")).collect();
    let query = format!(
        "SELECT CONCAT('version=', VERSION()); SHOW GRANTS; \
         SHOW GLOBAL VARIABLES WHERE Variable_name IN ({VARIABLES})"
    );
    match ask_server(family, argv, &query, cancel).await {
        Ok(answer) => {
            let (judged, variables) = judge_server(&answer, &name, own.as_deref());
            lines.extend(judged);
            lines.push(check_history(argv, cancel).await);
            lines.extend(check_galera(&variables, &defaults, cancel).await);
        }
        Err(error) => lines.push(not_answered(argv, &error)),
    }
    lines
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

/// The line for a client that got no answer from the server.
fn not_answered(argv: &[OsString], error: &crate::error::BackupError) -> CheckLine {
    // A password among the producer's arguments is not repeated in another process list.
    let has_password = argv.iter().any(|word| {
        let word = word.as_bytes();
        word.starts_with(b"--password") || (word.starts_with(b"-p") && !word.starts_with(b"-port"))
    });
    match has_password {
        true => CheckLine::warning(
            "server",
            "not checked: the password is an argument of the producer",
            "put user and password in an option file with mode 0600, and give it with --defaults-extra-file",
        ),
        false => CheckLine::failed(
            "server",
            format!("the login does not work: {error}"),
            "check that the server is running, and check the producer's user, password and socket",
        ),
    }
}

/// Judges the client's answer; also returns the server's variables.
fn judge_server(answer: &str, program: &str, own: Option<&str>) -> (Vec<CheckLine>, Variables) {
    let mut variables = Variables::new();
    let mut grants = String::new();
    let mut server = None;
    for line in answer.lines() {
        if let Some(version) = line.strip_prefix("version=") {
            server = Some(version.to_owned());
        } else if line.starts_with("GRANT ") {
            grants.push_str(line);
            grants.push('\n');
        } else if let Some((name, value)) = line.split_once('\t') {
            variables.insert(name.to_owned(), value.to_owned());
        }
    }
    let mut lines = Vec::new();
    let server = server.unwrap_or_default();
    let series = |version: &str| version.split('.').take(2).collect::<Vec<_>>().join(".");
    let found = format!("the login works; the server is {server}");
    lines.push(match own {
        Some(own) if series(own) != series(&server) => CheckLine::warning(
            "server",
            format!("{found}, {program} is {own}"),
            "install the backup program of the server's series",
        ),
        _ => CheckLine::ok("server", found),
    });
    let global = grants.lines().filter(|line| line.contains(" ON *.* ")).collect::<String>();
    let missing: Vec<&str> = GRANTS
        .iter()
        .filter(|(_, any)| !any.iter().any(|grant| global.contains(grant)))
        .map(|(name, _)| *name)
        .collect();
    lines.push(match missing.is_empty() {
        true => CheckLine::ok("grants", "RELOAD and PROCESS are granted"),
        // A role may grant them.
        false => CheckLine::warning(
            "grants",
            format!("{} is not granted to the login itself", missing.join(" and ")),
            format!("GRANT {} ON *.* TO the backup's user", missing.join(", ")),
        ),
    });
    (lines, variables)
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

    const ANSWER: &str = "version=10.11.6-MariaDB-1\n\
        GRANT RELOAD, PROCESS, BINLOG MONITOR ON *.* TO `b`@`localhost`\n\
        GRANT SELECT ON `x`.* TO `b`@`localhost`\nwsrep_on\tOFF\n";

    fn states(answer: &str, own: &str) -> Vec<CheckState> {
        judge_server(answer, "mariadb-backup", Some(own)).0.iter().map(|line| line.state).collect()
    }

    #[test]
    fn a_server_is_judged_by_version_and_grants() {
        use CheckState::{Ok, Warning};
        assert_eq!(states(ANSWER, "10.11.19-MariaDB"), [Ok, Ok]);
        assert_eq!(states(ANSWER, "11.8.3-MariaDB"), [Warning, Ok]);
        assert_eq!(states(&ANSWER.replace("RELOAD, ", ""), "10.11.6"), [Ok, Warning]);
        assert_eq!(states(&ANSWER.replace("*.*", "`y`.*"), "10.11.6"), [Ok, Warning]);
        let all = "version=10.11.6\nGRANT ALL PRIVILEGES ON *.* TO x\n";
        assert_eq!(states(all, "10.11.6"), [Ok, Ok]);
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
