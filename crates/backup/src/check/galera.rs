//! Checks of a Galera node: what its next state transfer needs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cancel::CancelToken;
use crate::check::CheckLine;
use crate::child::{OnLine, ask};

/// The variables of the server that these checks read.
pub(super) const VARIABLES: &str = "'wsrep_on', 'wsrep_sst_method', 'wsrep_sst_receive_address', \
     'wsrep_node_address', 'wsrep_provider_options', 'datadir', 'socket'";
const PROGRAM: &str = "wsrep_sst_xbrs-rs";
const WHAT: &str = "state transfer";
/// Galera's default, enough for minutes of a busy cluster.
const DEFAULT_GCACHE: &str = "128M";

/// Variables of a server, by name.
pub(super) type Variables = BTreeMap<String, String>;

/// Checks the node: the cache for write sets, and with `wsrep_sst_method=xbrs` the programs,
/// certificates, port and login of a transfer. Returns nothing for a server that is no node.
pub(super) async fn check_galera(
    variables: &Variables,
    defaults: &[OsString],
    cancel: &CancelToken,
) -> Vec<CheckLine> {
    let of = |name: &str| variables.get(name).map_or("", String::as_str);
    if !of("wsrep_on").eq_ignore_ascii_case("ON") {
        return Vec::new();
    }
    let mut lines = vec![gcache(of("wsrep_provider_options"))];
    let method = of("wsrep_sst_method");
    if method != "xbrs" {
        let found = format!("a Galera node with wsrep_sst_method={method}");
        lines.push(CheckLine::ok(WHAT, found));
        return lines;
    }
    for (program, source) in [("wsrep_sst_xbrs", "scripts/wsrep_sst_xbrs"), (PROGRAM, PROGRAM)] {
        if crate::child::find(&[Path::new(program)]).is_err() {
            lines.push(CheckLine::failed(
                WHAT,
                format!("{program} is not on PATH"),
                format!("install {source} into /usr/bin of every node"),
            ));
            return lines;
        }
    }
    lines.push(CheckLine::ok(WHAT, "both programs of wsrep_sst_method=xbrs are installed"));
    let heard = Arc::new(Mutex::new(Vec::new()));
    let keep: OnLine = {
        let heard = Arc::clone(&heard);
        Arc::new(move |line: &[u8]| {
            let line = String::from_utf8_lossy(line).into_owned();
            heard.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        })
    };
    let mut args = vec![
        OsString::from("check"),
        format!("--address={}", address(of("wsrep_sst_receive_address"), of("wsrep_node_address")))
            .into(),
        format!("--datadir={}", of("datadir")).into(),
        format!("--socket={}", of("socket")).into(),
    ];
    args.extend(defaults.iter().cloned());
    let outcome = ask(Path::new(PROGRAM), &args, &keep, cancel).await;
    let heard = std::mem::take(&mut *heard.lock().unwrap_or_else(PoisonError::into_inner));
    let found: Vec<CheckLine> = heard.iter().filter_map(|line| of_transfer(line)).collect();
    if let (Err(error), true) = (&outcome, found.is_empty()) {
        let fix = "run `wsrep_sst_xbrs-rs --version` by hand";
        lines.push(CheckLine::failed(WHAT, error.to_string(), fix));
    }
    lines.extend(found);
    lines
}

/// A line of `wsrep_sst_xbrs-rs check`: state, name and finding of a check.
fn of_transfer(line: &str) -> Option<CheckLine> {
    let (state, text) = line.split_once(": ")?;
    let fix = "correct the option in the group [sst] or [mysqld] of this node's option files";
    let parts = text.split_once("; ").unwrap_or((text, fix));
    match (state, text.split_once(": ")) {
        ("ok", Some(("security", found))) => Some(CheckLine::ok("certificates", found)),
        ("ok", Some(("port", found))) => Some(CheckLine::ok("port", found)),
        ("ok", Some(("login", found))) => Some(CheckLine::ok("sst login", found)),
        // Messages about the settings, not about the checks.
        ("ok", _) => None,
        ("warning", _) => Some(CheckLine::warning(WHAT, parts.0, parts.1)),
        ("FAILED", _) => Some(CheckLine::failed(WHAT, parts.0, parts.1)),
        _ => None,
    }
}

/// Address on which a joiner listens: as the server would tell it to the donor.
fn address(receive: &str, node: &str) -> String {
    if !receive.is_empty() && receive != "AUTO" {
        return receive.to_owned();
    }
    let host = match node.rsplit_once(':') {
        // An IPv6 address without a port has other colons.
        Some((host, _)) if !host.contains(':') || host.ends_with(']') => host,
        _ => node,
    };
    if host.is_empty() { "0.0.0.0".to_owned() } else { host.to_owned() }
}

fn gcache(options: &str) -> CheckLine {
    let mut pairs = options.split(';').filter_map(|option| option.split_once('='));
    let size = pairs.find(|(name, _)| name.trim() == "gcache.size").map(|(_, size)| size.trim());
    match size {
        Some(DEFAULT_GCACHE) => CheckLine::warning(
            "gcache",
            "gcache.size is 128M, the default: a node that was away for more than a few minutes needs a full transfer",
            "raise gcache.size in wsrep_provider_options to the amount that the cluster writes in a few hours",
        ),
        Some(size) => CheckLine::ok("gcache", format!("gcache.size is {size}")),
        None => CheckLine::warning(
            "gcache",
            "the server does not report gcache.size",
            "check that the node is connected: SHOW STATUS LIKE 'wsrep_ready'",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::CheckState;

    #[test]
    fn the_address_is_the_one_that_a_donor_is_told() {
        for (receive, node, expected) in [
            ("10.0.0.1:5555", "10.0.0.2:4567", "10.0.0.1:5555"),
            ("AUTO", "10.0.0.2:4567", "10.0.0.2"),
            ("", "10.0.0.2", "10.0.0.2"),
            ("AUTO", "[fd00::1]:4567", "[fd00::1]"),
            ("AUTO", "", "0.0.0.0"),
        ] {
            assert_eq!(address(receive, node), expected);
        }
    }

    #[test]
    fn a_cache_of_the_default_size_is_small() {
        let line = gcache("base_port = 4567; gcache.size = 128M; gcs.fc_limit = 16");
        assert_eq!(line.state, CheckState::Warning);
        assert_eq!(gcache("gcache.size=2G").state, CheckState::Ok);
        assert_eq!(gcache("").state, CheckState::Warning);
    }

    #[test]
    fn lines_of_the_transfer_program_become_checks() {
        let line = of_transfer("ok: port: 127.0.0.1 is free").unwrap();
        assert_eq!((line.what, line.state), ("port", CheckState::Ok));
        let line = of_transfer("FAILED: cannot listen: in use; end the program").unwrap();
        assert_eq!(
            (line.found.as_str(), line.fix.as_deref()),
            ("cannot listen: in use", Some("end the program"))
        );
        assert!(of_transfer("ok: compress=zstd:1, compress-threads=4").is_none());
        assert!(of_transfer("no such thing").is_none());
    }
}
