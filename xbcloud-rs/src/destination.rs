//! The place that a copy goes to: each store option once more, with `to-` before its name.

use std::any::TypeId;
use std::ffi::OsString;

use clap::error::Error;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use xb_cli::Secret;

use crate::args::StoreOptions;

/// Options that say one thing together: who names one of them means none of the source's others.
const TOGETHER: [&[&str]; 4] = [
    &["s3-access-key", "s3-secret-key", "s3-session-token", "aws-profile"],
    &["google-access-key", "google-secret-key", "google-session-token", "google-credentials-file"],
    &["azure-access-key", "azure-sas-token"],
    &["s3-sse", "s3-sse-customer-key-file"],
];

/// The store options of the destination: its own where they are given, else those of the source.
///
/// As a field it stands before the source's, which are taken out of the matches when they are read.
#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) store: Box<StoreOptions>,
    /// Any of its own is given.
    pub(crate) differs: bool,
}

/// Of the source, as clap knows them.
fn store_options() -> Vec<Arg> {
    let command = StoreOptions::augment_args(Command::new("store"));
    command.get_arguments().filter(|arg| arg.get_long().is_some()).cloned().collect()
}

fn own_id(arg: &Arg) -> String {
    format!("to_{}", arg.get_id())
}

/// Whether one of `own` stands in the place of the source's `long`.
fn replaced(long: &str, own: &[&str]) -> bool {
    let mut sets = TOGETHER.iter().filter(|set| set.contains(&long));
    sets.any(|set| set.iter().any(|other| own.contains(other)))
}

impl Args for Destination {
    fn augment_args(command: Command) -> Command {
        let own = store_options().into_iter().map(|arg| {
            Arg::new(own_id(&arg))
                .long(format!("to-{}", arg.get_long().unwrap_or_default()))
                .action(arg.get_action().clone())
                .value_parser(arg.get_value_parser().clone())
                .ignore_case(arg.is_ignore_case_set())
                .hide(true)
        });
        command.args(own)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Destination {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let options = store_options();
        let own: Vec<&str> = options
            .iter()
            .filter(|arg| given(&own_id(arg)))
            .filter_map(|arg| arg.get_long())
            .collect();
        let mut words: Vec<OsString> = Vec::new();
        for arg in &options {
            let long = arg.get_long().unwrap_or_default();
            let id = match (own.contains(&long), replaced(long, &own)) {
                (true, _) => own_id(arg),
                (false, true) => {
                    // An empty secret keeps that of the environment away.
                    if arg.get_value_parser().type_id() == TypeId::of::<Secret>() {
                        words.push(format!("--{long}=").into());
                    }
                    continue;
                }
                (false, false) if given(arg.get_id().as_str()) => arg.get_id().to_string(),
                (false, false) => continue,
            };
            match arg.get_action() {
                ArgAction::SetTrue if matches.get_flag(&id) => {
                    words.push(format!("--{long}").into())
                }
                ArgAction::SetTrue => {}
                _ => words.extend(matches.get_raw(&id).into_iter().flatten().map(|value| {
                    let mut word = OsString::from(format!("--{long}="));
                    word.push(value);
                    word
                })),
            }
        }
        let command = Command::new("copy").no_binary_name(true);
        let matches = StoreOptions::augment_args(command).try_get_matches_from(words)?;
        let store = Box::new(StoreOptions::from_arg_matches(&matches)?);
        Ok(Self { store, differs: !own.is_empty() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        to: Destination,
        #[command(flatten)]
        from: StoreOptions,
    }

    fn parse(words: &[&str]) -> Line {
        let words = [&["x"], words].concat();
        Line::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"))
    }

    fn secret(of: &Option<Secret>) -> Option<&str> {
        of.as_ref().map(Secret::expose)
    }

    #[test]
    fn every_option_of_a_store_has_one_for_the_destination() {
        let command = Line::augment_args(Command::new("x"));
        let has = |long: &str| command.get_arguments().any(|arg| arg.get_long() == Some(long));
        assert!(store_options().len() > 30);
        for arg in store_options() {
            assert!(has(&format!("to-{}", arg.get_long().unwrap_or_default())), "{arg}");
        }
        command.debug_assert();
    }

    #[test]
    fn what_is_not_said_is_as_at_the_source() {
        let line =
            parse(&["--s3-endpoint=http://a", "--s3-access-key=k", "--header=a: b", "--insecure"]);
        let to = &line.to.store;
        assert!(!line.to.differs && to.connection.insecure);
        assert_eq!(to.s3.s3_endpoint, line.from.s3.s3_endpoint);
        assert_eq!(secret(&to.s3.s3_access_key), Some("k"));
        assert_eq!(to.connection.header.len(), 1);
    }

    #[test]
    fn what_is_said_holds_there_only_and_keys_are_not_mixed() {
        let line = parse(&[
            "--s3-endpoint=http://a",
            "--s3-region=r",
            "--s3-access-key=k",
            "--s3-secret-key=s",
            "--s3-session-token=t",
            "--s3-sse-customer-key-file=/key",
            "--header=a: b",
            "--to-s3-endpoint=http://b",
            "--to-s3-access-key=K",
            "--to-s3-secret-key=S",
            "--to-s3-sse=AES256",
            "--to-header=c: d",
            "--to-header=e: f",
            "--to-insecure",
            "--to-s3-bucket-lookup=DNS",
        ]);
        let (from, to) = (&line.from, &line.to.store);
        assert!(line.to.differs && to.connection.insecure && !from.connection.insecure);
        assert_eq!(from.s3.s3_endpoint.as_deref(), Some("http://a"));
        assert_eq!(to.s3.s3_endpoint.as_deref(), Some("http://b"));
        assert_eq!(to.s3.s3_region.as_deref(), Some("r"));
        assert_eq!(secret(&from.s3.s3_access_key), Some("k"));
        assert_eq!(secret(&to.s3.s3_access_key), Some("K"));
        assert_eq!(secret(&to.s3.s3_secret_key), Some("S"));
        // There, yet empty: neither the source's nor the environment's.
        assert_eq!(secret(&to.s3.s3_session_token), Some(""));
        assert_eq!(to.s3.s3_sse.as_deref(), Some("AES256"));
        assert!(to.s3.s3_sse_customer_key_file.is_none());
        let headers: Vec<&str> = to.connection.header.iter().map(Secret::expose).collect();
        assert_eq!(headers, ["c: d", "e: f"]);
        let line = parse(&["--s3-access-key=k", "--s3-secret-key=s", "--to-aws-profile=vault"]);
        assert_eq!(secret(&line.to.store.s3.s3_access_key), Some(""));
        assert_eq!(line.to.store.s3.aws_profile.as_deref(), Some("vault"));
    }
}
