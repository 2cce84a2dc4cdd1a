//! The end of a `run` whose options cannot be parsed, reported by its hooks, heartbeat, result and metrics.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use crate::job::{
    FirstCause, RunResult, StageStatus, beside_run, metrics, run_hook, send_heartbeat,
};
use jiff::Timestamp;
use xb_cli::{Exit, Failure, Log, Personality, host_name};

use crate::commands::context::TOOL;
use crate::commands::metrics_file::replace;
use crate::commands::reporting::masked;
use crate::commands::unattended::run::commands;
use crate::commands::whole_files::{is_collected, write};

/// Time limit of a hook; that of the options is not known.
const HOOK_TIMEOUT: Duration = Duration::from_secs(600);

/// Reports the failure to parse `words`, which begin with the program's name, if they are those of `run`
/// and name a means for it. What fails here is a warning: the command line is the first cause.
pub(crate) fn report(words: &[OsString], failure: &Failure, log: &Log) {
    let is_run = words.iter().skip(1).find(|word| !word.as_bytes().starts_with(b"-"));
    if failure.exit() != Exit::Usage || is_run.is_none_or(|word| word != "run") {
        return;
    }
    let last = |name: &str| values(words, name).pop();
    let repository = last("repository").or_else(|| last("root")).unwrap_or_default();
    let host = host_name().unwrap_or_default();
    let repository = masked(&repository.to_string_lossy());
    let mut result = RunResult::begin(TOOL, &repository, &host, Timestamp::now());
    let server = last("server").map(|server| server.to_string_lossy().into_owned());
    result.server = server.or_else(host_name);
    result.stage("backup", StageStatus::Skipped, 0.0, serde_json::json!({}));
    let hint = failure.hint_text().map(str::to_owned);
    let error = FirstCause { stage: "settings".to_owned(), message: failure.line(), hint };
    result.end(Timestamp::now(), failure.exit().code(Personality::Ours), Some(error));
    let warn = |result: &mut RunResult, text: String| {
        log.warn(&text);
        result.warnings.push(text);
    };
    for hook in values(words, "on-failure") {
        let log = log.clone();
        let ran = commands("--on-failure", &[hook.to_string_lossy().into_owned()])
            .map_err(|failure| failure.line())
            .and_then(|argv| {
                let argv = argv.into_iter().next().unwrap_or_default();
                let pass_on = move |line: &str| log.pass_on(line);
                run_hook(&argv, &result.to_json(), HOOK_TIMEOUT, pass_on, || None)
                    .map_err(|error| format!("hook --on-failure: {error}"))
            });
        if let Err(why) = ran {
            warn(&mut result, why);
        }
    }
    let url = last("heartbeat-failure-url").and_then(|url| url.into_string().ok());
    if let Some(why) = url.and_then(|url| unsent(&url, &result)) {
        warn(&mut result, format!("heartbeat not sent: {why}"));
    }
    if let Some(path) = last("metrics-file").filter(|path| is_collected(Path::new(path))) {
        let text = |old: Option<&str>| beside_run(old) + &metrics(&result, old);
        if let Err(failure) = replace(Path::new(&path), text) {
            warn(&mut result, failure.line());
        }
    }
    if let Some(path) = last("result")
        && let Err(failure) = write(Path::new(&path), &result.to_json())
    {
        log.warn(failure.line());
    }
}

/// Posts the result; returns why that failed.
fn unsent(url: &str, result: &RunResult) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let sent = match &runtime {
        Ok(runtime) => runtime.block_on(send_heartbeat(url, &result.to_json())),
        Err(error) => return Some(error.to_string()),
    };
    sent.err().map(|error| error.to_string())
}

/// The values of an option, as `--NAME=VALUE` or `--NAME VALUE`, before `--`.
fn values(words: &[OsString], name: &str) -> Vec<OsString> {
    let words: Vec<&OsString> = words.iter().take_while(|word| *word != "--").collect();
    let option = format!("--{name}");
    let at = |(n, word): (usize, &&OsString)| {
        let rest = word.as_bytes().strip_prefix(option.as_bytes())?;
        match rest.split_first() {
            Some((b'=', value)) => Some(OsStr::from_bytes(value).to_owned()),
            None => words.get(n + 1).map(|next| (*next).clone()),
            Some(_) => None,
        }
    };
    words.iter().enumerate().filter_map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_in_both_forms() {
        let words = ["p", "run", "--result=a", "--result", "b", "--results=c", "--", "--result=d"];
        let words: Vec<OsString> = words.map(OsString::from).into();
        assert_eq!(values(&words, "result"), ["a", "b"]);
        assert!(values(&words[..4], "result").len() == 1);
    }
}
