//! Help of a subcommand, with the options that many subcommands share folded into topics.

pub(crate) mod manual;
pub(crate) mod scripts;
pub(crate) mod version;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt as _;

use clap::Command;

use crate::subcommand::{build_named, scope_of};

/// Options that the help of a subcommand shows only on request: `put --help stores`.
#[derive(Debug, Clone, Copy)]
pub struct HelpTopic {
    /// Word after `--help`.
    pub name: &'static str,
    /// Headings of the options.
    pub headings: &'static [&'static str],
    /// Topic of the options, for the last line of the help.
    pub about: &'static str,
}

/// Returns the help that `args` ask for, if they ask for that of a subcommand. With `-h`, only the
/// common options; both forms have one line for each option. The subcommand at the front of `args` is built.
pub(crate) fn folded(
    command: &mut Command,
    args: &[OsString],
    topics: &[HelpTopic],
) -> Option<String> {
    let mut args = args.to_vec();
    // `help put` is `put --help`.
    let is_named = args.get(1).is_some_and(|word| word == "help");
    if is_named {
        args.remove(1);
        args.retain(|word| !word.as_bytes().starts_with(b"-"));
        build_named(command, args.get(1..).unwrap_or_default());
    }
    let (scope, bin) = scope_of(command, &args);
    let depth = bin.split(' ').count();
    if depth == 1 || scope.has_subcommands() {
        return None;
    }
    let mut words = args.iter().skip(depth).take_while(|word| *word != "--");
    let asked = match is_named {
        true => "--help".into(),
        false => words.find(|word| *word == "--help" || *word == "-h")?.clone(),
    };
    let topic = words.next().and_then(|word| topics.iter().find(|topic| word == topic.name));
    let in_topic = |topic: &HelpTopic, heading: Option<&str>| {
        heading.is_some_and(|heading| topic.headings.contains(&heading))
    };
    let used = |topic: &&HelpTopic| {
        let mut shown = scope.get_arguments().filter(|arg| !arg.is_hide_set());
        shown.any(|arg| in_topic(topic, arg.get_help_heading()))
    };
    let more: Vec<String> = topics
        .iter()
        .filter(used)
        .map(|topic| format!("  --help {:9} {}", topic.name, topic.about))
        .collect();
    let own = scope.get_after_help().or(scope.get_after_long_help()).map(ToString::to_string);
    let is_long = asked == "--help";
    let shown = scope.clone().bin_name(bin).mut_args(|arg| {
        let heading = arg.get_help_heading();
        let hide = match topic {
            Some(topic) => !in_topic(topic, heading),
            None => topics.iter().any(|topic| in_topic(topic, heading)),
        };
        let hide = hide || arg.is_hide_set() || arg.get_id() == "help";
        // A topic shows all of its options.
        let short = arg.is_hide_short_help_set() && !is_long && topic.is_none();
        arg.hide(hide).hide_short_help(short)
    });
    let mut after = Vec::new();
    if topic.is_none() {
        after.extend(own.filter(|text| is_long || text.lines().count() <= 10));
        if !more.is_empty() {
            after.push(format!("More options:\n{}", more.join("\n")));
        }
    }
    let mut shown = shown.after_help(after.join("\n\n"));
    let text = shown.render_help();
    Some(match std::io::stdout().is_terminal() {
        true => text.ansi().to_string(),
        false => text.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    const TOPICS: [HelpTopic; 2] = [
        HelpTopic { name: "stores", headings: &["S3"], about: "where" },
        HelpTopic { name: "none", headings: &["Nothing"], about: "never" },
    ];

    fn help(words: &[&str]) -> Option<String> {
        let put = Command::new("put")
            .arg(Arg::new("own").long("own").help("Own"))
            .arg(Arg::new("rare").long("rare").help("Rare").hide_short_help(true))
            .arg(
                Arg::new("key").long("s3-key").help("Key").help_heading("S3").hide_short_help(true),
            );
        let mut command = Command::new("x")
            .subcommand(put.clone())
            .subcommand(Command::new("deep").subcommand(put));
        let args: Vec<OsString> = words.iter().map(OsString::from).collect();
        build_named(&mut command, &args[1..]);
        folded(&mut command, &args, &TOPICS)
    }

    #[test]
    fn shared_options_are_shown_on_request() {
        let short = help(&["x", "put", "-h"]).unwrap();
        assert!(
            short.contains("--own") && !short.contains("--rare") && !short.contains("--s3-key")
        );
        assert!(short.contains("--help stores") && !short.contains("--help none"), "{short}");
        let long = help(&["x", "put", "--help"]).unwrap();
        assert!(long.contains("--rare") && !long.contains("--s3-key"), "{long}");
        for asked in [&["x", "help", "put"][..], &["x", "help", "--own=1", "put"]] {
            assert_eq!(help(asked).as_ref(), Some(&long), "{asked:?}");
        }
        for asked in [["x", "put", "--help", "stores"], ["x", "put", "-h", "stores"]] {
            let stores = help(&asked).unwrap();
            assert!(stores.contains("--s3-key") && !stores.contains("--own"), "{stores}");
        }
        assert_eq!(help(&["x", "put", "--help", "other"]).as_ref(), Some(&long));
        assert_eq!(help(&["x", "put", "--", "--help"]), None);
        assert_eq!(help(&["x", "--help"]), None);
        let deep = help(&["x", "deep", "put", "--help"]).unwrap();
        assert!(deep.contains("x deep put") && deep.contains("--own"), "{deep}");
        assert_eq!(help(&["x", "help", "deep", "put"]).as_ref(), Some(&deep));
        assert_eq!(help(&["x", "deep", "--help"]), None);
    }
}
