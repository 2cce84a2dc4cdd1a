//! Options for the destination of a copy: each store option again, with the prefix `to-`.

use std::any::TypeId;
use std::ffi::OsString;

use clap::error::Error;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use xb_cli::Secret;

use crate::args::store::StoreOptions;

/// Options that form one set of credentials. If the destination sets one of them, it inherits none
/// of the source's options of that set.
const CREDENTIAL_SETS: [&[&str]; 3] = [
    &["s3-access-key", "s3-secret-key", "s3-session-token", "aws-profile"],
    &["google-access-key", "google-secret-key", "google-session-token", "google-credentials-file"],
    &["azure-access-key", "azure-sas-token"],
];

/// These options, too, replace each other.
const ENCRYPTION: &[&str] = &["s3-sse", "s3-sse-customer-key-file"];

/// Options that select another store. Such a store inherits neither the source's credentials nor
/// its trust options.
const STORE_IDENTITY: [&str; 5] =
    ["storage", "s3-endpoint", "google-endpoint", "azure-endpoint", "azure-storage-account"];

/// Trust options of the source, besides its credentials.
const TRUST_OPTIONS: [&str; 3] = ["header", "insecure", "s3-sse-customer-key-file"];

/// Store options of the destination: its own options where given, otherwise those of the source.
///
/// This field must come before the source's options: reading those removes them from the matches.
#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) store: Box<StoreOptions>,
    /// Whether any option of its own, except the place, differs from the source's.
    pub(crate) differs: bool,
    /// Whether the destination is another store.
    pub(crate) elsewhere: bool,
}

/// The store options of the source, as clap arguments.
fn store_options() -> Vec<Arg> {
    let command = StoreOptions::augment_args(Command::new("store"));
    command.get_arguments().filter(|arg| arg.get_long().is_some()).cloned().collect()
}

fn is_secret(arg: &Arg) -> bool {
    arg.get_value_parser().type_id() == TypeId::of::<Secret>()
}

fn own_id(arg: &Arg) -> String {
    format!("to_{}", arg.get_id())
}

/// Returns whether an empty value has a meaning of its own: it overrides the environment.
fn keeps_empty(arg: &Arg) -> bool {
    let text = arg.get_value_parser().type_id() == TypeId::of::<String>();
    let list = matches!(arg.get_action(), ArgAction::Append);
    !list && (is_secret(arg) || (text && arg.get_id() != "s3_sse"))
}

/// Returns whether one of the options in `own` replaces the source's option `long`.
fn replaced(long: &str, own: &[&str]) -> bool {
    let mut sets = CREDENTIAL_SETS.iter().chain([&ENCRYPTION]).filter(|set| set.contains(&long));
    sets.any(|set| set.iter().any(|other| own.contains(other)))
}

impl Args for Destination {
    fn augment_args(command: Command) -> Command {
        let own = store_options().into_iter().map(|arg| {
            let aliases = arg.get_all_aliases().into_iter().flatten();
            let own = Arg::new(own_id(&arg))
                .long(format!("to-{}", arg.get_long().unwrap_or_default()))
                .aliases(aliases.map(|alias| format!("to-{alias}")))
                .action(arg.get_action().clone())
                .hide(true);
            // Values are checked later, but clap must know which options are secret.
            match is_secret(&arg) {
                true => own.value_parser(arg.get_value_parser().clone()),
                false if matches!(arg.get_action(), ArgAction::SetTrue) => own,
                false => own.value_parser(value_parser!(OsString)),
            }
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
        // An option that repeats the source's value changes nothing.
        let differing: Vec<&str> = options
            .iter()
            .filter(|arg| given(&own_id(arg)))
            .filter(|arg| {
                let own = matches.get_raw(&own_id(arg)).map(Iterator::collect::<Vec<_>>);
                own != matches.get_raw(arg.get_id().as_str()).map(Iterator::collect::<Vec<_>>)
            })
            .filter_map(|arg| arg.get_long())
            .collect();
        let elsewhere = differing.iter().any(|long| STORE_IDENTITY.contains(long));
        let of_source = |long: &str| {
            // Server-side encryption is inherited in any case.
            elsewhere
                && (TRUST_OPTIONS.contains(&long)
                    || CREDENTIAL_SETS.iter().any(|set| set.contains(&long)))
        };
        let mut words: Vec<OsString> = Vec::new();
        for arg in &options {
            let long = arg.get_long().unwrap_or_default();
            let id = match (own.contains(&long), replaced(long, &own)) {
                (true, _) => own_id(arg),
                (false, true) => {
                    // An empty secret overrides the one in the environment.
                    if is_secret(arg) {
                        words.push(format!("--to-{long}=").into());
                    }
                    continue;
                }
                (false, false) if of_source(long) => continue,
                (false, false) if given(arg.get_id().as_str()) => arg.get_id().to_string(),
                (false, false) => continue,
            };
            match arg.get_action() {
                ArgAction::SetTrue if matches.get_flag(&id) => {
                    words.push(format!("--to-{long}").into())
                }
                ArgAction::SetTrue => {}
                // An empty value removes the option; for a secret it means that there is none.
                _ => words.extend(
                    matches
                        .get_raw(&id)
                        .into_iter()
                        .flatten()
                        .filter(|value| !value.is_empty() || keeps_empty(arg))
                        .map(|value| {
                            let mut word = OsString::from(format!("--to-{long}="));
                            word.push(value);
                            word
                        }),
                ),
            }
        }
        // With the destination's option names, which then appear in errors.
        let command = Command::new("copy").no_binary_name(true);
        let command = StoreOptions::augment_args(command).mut_args(|arg| {
            let long = arg.get_long().map(|long| format!("to-{long}"));
            match long {
                Some(long) => arg.long(long),
                None => arg,
            }
        });
        let matches = command.try_get_matches_from(words)?;
        let store = Box::new(StoreOptions::from_arg_matches(&matches)?);
        // The caller compares the place itself.
        let differs = differing.iter().any(|long| *long != "root");
        Ok(Self { store, differs, elsewhere })
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
    fn unset_options_are_those_of_the_source() {
        let line =
            parse(&["--s3-endpoint=http://a", "--s3-access-key=k", "--header=a: b", "--insecure"]);
        let to = &line.to.store;
        assert!(!line.to.differs && to.connection.insecure);
        assert_eq!(to.s3.s3_endpoint, line.from.s3.s3_endpoint);
        assert_eq!(secret(&to.s3.s3_access_key), Some("k"));
        assert_eq!(to.connection.header.len(), 1);
    }

    #[test]
    fn set_options_hold_there_only_and_keys_are_not_mixed() {
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
        // Present but empty: neither the source's token nor the one in the environment.
        assert_eq!(secret(&to.s3.s3_session_token), Some(""));
        assert_eq!(to.s3.s3_sse.as_deref(), Some("AES256"));
        assert!(to.s3.s3_sse_customer_key_file.is_none());
        let headers: Vec<&str> = to.connection.header.iter().map(Secret::expose).collect();
        assert_eq!(headers, ["c: d", "e: f"]);
        assert!(line.to.elsewhere);
        let line = parse(&["--s3-access-key=k", "--s3-secret-key=s", "--to-aws-profile=vault"]);
        assert!(!line.to.elsewhere);
        assert_eq!(secret(&line.to.store.s3.s3_access_key), Some(""));
        assert_eq!(line.to.store.s3.aws_profile.as_deref(), Some("vault"));
    }

    #[test]
    fn another_party_gets_nothing_that_was_for_the_source() {
        let line = parse(&[
            "--s3-region=r",
            "--s3-access-key=k",
            "--s3-secret-key=s",
            "--s3-session-token=t",
            "--s3-sse-customer-key-file=/key",
            "--header=a: b",
            "--insecure",
            "--to-s3-endpoint=http://b",
        ]);
        let to = &line.to.store;
        assert!(line.to.elsewhere && to.s3.s3_region.is_some());
        assert!(to.s3.s3_access_key.is_none() && to.s3.s3_session_token.is_none());
        assert!(to.s3.s3_sse_customer_key_file.is_none());
        assert!(to.connection.header.is_empty() && !to.connection.insecure);
        let line = parse(&["--s3-sse=aws:kms", "--to-s3-endpoint=http://b"]);
        assert_eq!(line.to.store.s3.s3_sse.as_deref(), Some("aws:kms"), "not left away in silence");
    }

    #[test]
    fn an_empty_value_takes_an_option_away() {
        let line = parse(&[
            "--s3-sse=AES256",
            "--s3-endpoint=http://a",
            "--s3-provider=minio",
            "--google-credentials-file=/g",
            "--google-storage-class=NEARLINE",
            "--cacert=/ca",
            "--header=a: b",
            "--to-s3-sse=",
            "--to-s3-endpoint=",
            "--to-s3-provider=",
            "--to-google-service-account-file=",
            "--to-google-storage-class=",
            "--to-cacert=",
            "--to-header=",
        ]);
        let to = &line.to.store;
        assert!(to.s3.s3_sse.is_none() && to.s3.s3_provider.is_none());
        assert_eq!(to.s3.s3_endpoint.as_deref(), Some(""), "nor the environment's");
        assert!(to.google.google_credentials_file.is_none() && to.connection.cacert.is_none());
        assert!(to.connection.header.is_empty());
    }

    #[test]
    fn errors_name_options_as_written() {
        let error = Line::try_parse_from(["x", "--to-s3-checksum=crc4711"]).err().expect("refused");
        assert!(error.to_string().contains("--to-s3-checksum"), "{error}");
    }
}
