use super::*;
use std::fs;
use std::path::Path;

use clap::{ArgAction, arg};
use proptest::prelude::*;

fn command() -> Command {
    let shared = || {
        [
            arg!(--storage <KIND>).required(false),
            arg!(--parallel <N>).required(false),
            arg!(--"s3-secret-key" <KEY>).required(false),
            arg!(--header <LINE>).required(false).action(ArgAction::Append),
            arg!(-v --verbose ...),
            arg!(--insecure),
        ]
    };
    let put = Command::new("put")
        .args(shared())
        .arg(arg!(--md5))
        .arg(arg!(--"chunk-size" <SIZE>).required(false));
    let backup = Command::new("backup")
        .args(shared())
        .arg(arg!(<NAME>))
        .arg(clap::Arg::new("command").num_args(1..).last(true));
    let get = Command::new("get").visible_alias("fetch").args(shared()).arg(arg!(<NAME>));
    let inner = Command::new("put").args(shared()).arg(arg!(--fast)).arg(arg!(<NAME>));
    crate::args::argv::mysql_style(
        Command::new("xbcloud")
            .args(defaults_args(Some('c')))
            .subcommand(Command::new("log").subcommand(inner))
            .subcommand(put.arg(arg!(<NAME>)))
            .subcommand(get)
            .subcommand(backup),
    )
}

fn run(argv: &[&str], places: &OptionFilePaths) -> Result<ExpandedArgs, UsageError> {
    let argv: Vec<OsString> = argv.iter().map(OsString::from).collect();
    expand_with(&mut command(), &Sources::groups(&["xbcloud"]), &argv, places, Vec::new(), false)
}

fn args(argv: &[&str]) -> Vec<String> {
    let expanded = run(argv, &OptionFilePaths::none()).unwrap();
    expanded.args.into_iter().map(|arg| arg.into_string().unwrap()).collect()
}

#[test]
fn secrets_of_other_programs_are_hidden() {
    for argv in [
        &["x", "backup", "n", "--", "dump", "--password=s3cret"][..],
        &["x", "backup", "n", "--", "sh", "-c", "dump --pass=s3cret | cat"],
        &["x", "backup", "n", "--", "dump", "--encrypt_key", "s3cret"],
        // In the value of an option.
        &["x", "--storage=dump --password=s3cret", "put", "n"],
    ] {
        let secrets = run(argv, &OptionFilePaths::none()).unwrap().secrets;
        assert_eq!(secrets, ["s3cret"], "{argv:?}");
    }
    let none = ["x", "backup", "n", "--", "dump", "--port=1", "--encrypt-key-file=f"];
    assert!(run(&none, &OptionFilePaths::none()).unwrap().secrets.is_empty());
}

#[test]
fn the_subcommand_comes_to_the_front() {
    let table: &[(&[&str], &[&str])] = &[
        (&[], &[]),
        (&["x"], &["x"]),
        (&["x", "put", "n"], &["x", "put", "n"]),
        (&["x", "--storage=s3", "put", "n"], &["x", "put", "--storage=s3", "n"]),
        (&["x", "--storage", "put", "put", "get"], &["x", "put", "--storage=put", "get"]),
        (&["x", "-v", "--insecure", "fetch", "n"], &["x", "fetch", "--verbose", "--insecure", "n"]),
        (&["x", "--par", "4", "get", "n"], &["x", "get", "--parallel=4", "n"]),
        // A subcommand of a subcommand.
        (&["x", "log", "put", "--fa", "put"], &["x", "log", "put", "--fast", "put"]),
        (
            &["x", "-v", "log", "--fast", "put", "n"],
            &["x", "log", "put", "--verbose", "--fast", "n"],
        ),
        (&["x", "log", "--help"], &["x", "log", "--help"]),
        (&["x", "put", "log"], &["x", "put", "log"]),
        // Not a subcommand, or after `--`: left to clap.
        (&["x", "n", "put"], &["x", "n", "put"]),
        (&["x", "--", "put"], &["x", "--", "put"]),
        (&["x", "--bogus", "put", "n"], &["x", "put", "--bogus", "n"]),
        (&["x", "--help"], &["x", "--help"]),
        (&["x", "put", "-?"], &["x", "put", "--help"]),
        // A prefix needs to be unique only among the options of its subcommand.
        (
            &["x", "put", "--s3", "k", "--chunk", "1M", "n"],
            &["x", "put", "--s3-secret-key=k", "--chunk-size=1M", "n"],
        ),
        // Arguments after `--` belong to another program.
        (
            &[
                "x",
                "--par=2",
                "backup",
                "n",
                "--",
                "mariadb-backup",
                "--user_x=1",
                "--skip-v",
                "-xv",
                "put",
            ],
            &[
                "x",
                "backup",
                "--parallel=2",
                "n",
                "--",
                "mariadb-backup",
                "--user_x=1",
                "--skip-v",
                "-xv",
                "put",
            ],
        ),
    ];
    for (argv, expected) in table {
        assert_eq!(args(argv), *expected, "{argv:?}");
    }
}

#[test]
fn only_the_command_that_runs_is_built_and_it_keeps_its_text() {
    let put = Command::new("put").about("Store");
    let put = put.defer(|put| put.about("Options").arg(arg!(--fast)).arg(arg!(<NAME>)));
    let get = Command::new("get").defer(|_| panic!("get is built"));
    let mut command = crate::mysql_style(Command::new("x").subcommand(put).subcommand(get));
    let argv = ["x", "--no-defaults", "put", "--fa", "n"].map(OsString::from);
    let sources = Sources { environment: Some("X_"), ..Sources::groups(&["x"]) };
    let variables = vec![("X_FAST".into(), "1".into())];
    let places = OptionFilePaths::none();
    let expanded = expand_with(&mut command, &sources, &argv, &places, variables, false).unwrap();
    assert_eq!(expanded.args, ["x", "put", "--fast", "--fast", "n"]);
    assert!(command.try_get_matches_from_mut(expanded.args).is_ok());
    let put = command.find_subcommand("put").unwrap();
    assert_eq!(put.get_about().unwrap().to_string(), "Store");
}

struct Files(tempfile::TempDir);

impl Files {
    fn new(text: &str) -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        fs::write(files.path(), text).unwrap();
        files
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("my.cnf")
    }

    fn option(&self) -> String {
        format!("--defaults-file={}", self.path().display())
    }
}

fn with_file(text: &str, argv: &[&str]) -> Result<ExpandedArgs, UsageError> {
    let files = Files::new(text);
    let option = files.option();
    let argv: Vec<&str> =
        std::iter::once("x").chain([option.as_str()]).chain(argv.iter().copied()).collect();
    run(&argv, &OptionFilePaths::none())
}

#[test]
fn files_come_before_the_command_line() {
    let text = "[xbcloud]\nstorage=s3\ns3_secret_key=\"a b\"\nmd5\nverbose=1\nparal=2\n[client]\nbogus=1\n";
    let table: &[(&[&str], &[&str])] = &[
        (
            &["put", "--storage=google", "n"],
            &[
                "x",
                "put",
                "--storage=s3",
                "--s3-secret-key=a b",
                "--md5",
                "--verbose",
                "--parallel=2",
                "--storage=google",
                "n",
            ],
        ),
        // Switches are turned off; options of other subcommands are skipped.
        (
            &["--skip-verbose", "get", "n"],
            &["x", "get", "--storage=s3", "--s3-secret-key=a b", "--parallel=2", "n"],
        ),
        (
            &["put", "--md5=0", "--verbose=0", "n"],
            &["x", "put", "--storage=s3", "--s3-secret-key=a b", "--parallel=2", "n"],
        ),
        (&["--help"], &["x", "--help"]),
    ];
    for (argv, expected) in table {
        let expanded = with_file(text, argv).unwrap();
        assert_eq!(expanded.args, *expected, "{argv:?}");
        assert!(expanded.warnings.is_empty());
    }
}

#[test]
fn clap_lets_the_command_line_win() {
    let text = "[xbcloud]\nstorage=s3\nparallel=2\nverbose\nheader=a: 1\n";
    let expanded =
        with_file(text, &["put", "--storage=google", "--par", "3", "-v", "--header=b: 2", "n"])
            .unwrap();
    let matches = command().try_get_matches_from(expanded.args).unwrap();
    let (_, put) = matches.subcommand().unwrap();
    assert_eq!(put.get_one::<String>("storage").unwrap(), "google");
    assert_eq!(put.get_one::<String>("parallel").unwrap(), "3");
    assert_eq!(put.get_count("verbose"), 2);
    assert_eq!(put.get_one::<String>("NAME").unwrap(), "n");
    // Values of a repeatable option add up.
    let headers: Vec<_> = put.get_many::<String>("header").unwrap().collect();
    assert_eq!(headers, ["a: 1", "b: 2"]);
}

#[test]
fn options_about_files_stand_at_the_front() {
    let files = Files::new("[xbcloud]\nparallel=2\n[xbcloud_b]\nparallel=3\n");
    let (option, path) = (files.option(), files.path());
    let path = path.to_str().unwrap();
    let taken: &[&[&str]] = &[
        &["x", &option, "--defaults-group-suffix=_b", "get", "n"],
        &["x", "--defaults-group-suffix=_b", &option, "get", "n"],
        &["x", "get", "--defaults-group-suffix=_b", &option, "n"],
        &["x", "-c", path, "--defaults-group-suffix=_b", "get", "n"],
        &["x", "--defaults_extra_file", path, "--defaults-group-suffix=_b", "get", "n"],
    ];
    for argv in taken {
        assert_eq!(args(argv), ["x", "get", "--parallel=2", "--parallel=3", "n"], "{argv:?}");
    }
    assert_eq!(args(&["x", "--no-defaults", "get", "n"]), ["x", "get", "n"]);
    assert_eq!(args(&["x", &option, "--no-defaults", "get", "n"]), ["x", "get", "n"]);
    let late: &[&[&str]] = &[
        &["x", "-v", &option, "get", "n"],
        &["x", "get", "n", &option],
        &["x", "get", "n", "--no-defaults"],
    ];
    for argv in late {
        let error = run(argv, &OptionFilePaths::none()).unwrap_err();
        assert!(matches!(error, UsageError::DefaultsNotFirst { .. }), "{argv:?}: {error}");
    }
    // The options of a program, without the `--` that belongs before it.
    let argv = ["x", "backup", "n", "mariadb-backup", "--no-defaults", "--backup"];
    let error = run(&argv, &OptionFilePaths::none()).unwrap_err().to_string();
    assert!(error.contains("write `--` before it: `-- mariadb-backup --no-defaults`"), "{error}");
    let error = run(&["x", "backup", "n", "--no-defaults"], &OptionFilePaths::none()).unwrap_err();
    assert!(matches!(error, UsageError::DefaultsNotFirst { .. }), "{error}");
    // Options of another program stay unchanged.
    let own = args(&["x", "backup", "n", "--", "mariadb-backup", "--no-defaults"]);
    assert_eq!(own, ["x", "backup", "n", "--", "mariadb-backup", "--no-defaults"]);
}

#[test]
fn without_groups_there_are_no_option_files() {
    let mut command = Command::new("x").arg(arg!(-c - -create)).arg(arg!([NAME] ...));
    let argv = ["x", "-c", "--no-defaults"].map(OsString::from);
    let expanded =
        expand(&mut command, &Sources::default(), &argv, &OptionFilePaths::usual()).unwrap();
    assert_eq!(expanded.args, ["x", "--create", "--no-defaults"]);
}

#[test]
fn bad_options_in_files_are_refused_by_key_only() {
    let table = [
        ("bogus=hunter2", "unknown option bogus in @ line 2"),
        ("=hunter2", "unknown option  in @ line 2"),
        ("defaults-files=hunter2", "unknown option defaults-files in @ line 2"),
        ("no-default", "unknown option no-default in @ line 2"),
        ("parallel", "option parallel in @ line 2 needs a value"),
        ("insecure=hunter2", "option insecure in @ line 2 must be 0, 1, on, off, true or false"),
        ("s=hunter2", "option s in @ line 2 is ambiguous: it may be s3-secret-key or storage"),
        ("skip-parallel", "unknown option skip-parallel in @ line 2"),
        ("bogus hunter2", "no `=` behind bogus in @ line 2: write bogus = VALUE"),
        ("bogus:hunter2", "no `=` behind bogus in @ line 2: write bogus = VALUE"),
        ("bogus: hunter2", "no `=` behind bogus in @ line 2: write bogus = VALUE"),
    ];
    for (line, text) in table {
        let files = Files::new(&format!("[xbcloud]\n{line}\n"));
        // The command does not declare these options, so only the built-in ones count.
        let argv = ["x", &files.option(), "put", "n"].map(OsString::from);
        let error =
            expand(&mut plain(), &Sources::groups(&["xbcloud"]), &argv, &OptionFilePaths::none())
                .unwrap_err();
        let key = line.split('=').next().unwrap();
        let next = match text.starts_with("unknown") {
            true => format!(": correct it, or write loose-{key} to have it ignored"),
            false => String::new(),
        };
        let text = text.replace('@', files.path().to_str().unwrap()) + &next;
        assert_eq!(error.to_string(), text);
        assert!(!format!("{error:?}").contains("hunter2"));
    }
}

/// Returns the command without the options about option files, which need not be declared.
fn plain() -> Command {
    let mut plain = Command::new("xbcloud");
    for subcommand in command().get_subcommands() {
        plain = plain.subcommand(subcommand.clone());
    }
    plain
}

#[test]
fn loose_options_may_be_unknown() {
    let expanded = with_file(
        "[xbcloud]\nloose_bogus=hunter2\nloose-parallel=2\n",
        &["put", "--loose-odd=hunter2", "n"],
    )
    .unwrap();
    assert_eq!(expanded.args, ["x", "put", "--parallel=2", "n"]);
    assert_eq!(expanded.warnings.len(), 2);
    assert!(expanded.warnings[0].starts_with("ignored unknown option bogus in "));
    assert_eq!(expanded.warnings[1], "ignored unknown option --loose-odd");
    let shown = format!("{expanded:?} {:?}", expanded.warnings);
    assert!(!shown.contains("hunter2") && !shown.contains("parallel"), "{shown}");
}

#[test]
fn a_missing_file_is_named() {
    let missing = Path::new("/does/not/exist.cnf");
    let option = format!("--defaults-file={}", missing.display());
    let error = run(&["x", &option, "put", "n"], &OptionFilePaths::none()).unwrap_err();
    assert!(error.to_string().contains("/does/not/exist.cnf"), "{error}");
}

proptest! {
    #[test]
    fn any_line_is_expanded_up_to_its_end_of_options(
        line in proptest::collection::vec(
            prop_oneof!["-[a-z?]{0,6}", "--[a-z_=]{1,6}", Just("put".to_owned()), Just("--par".to_owned())],
            0..8,
        ),
        tail in proptest::collection::vec("-{0,2}[a-z_=]{0,6}", 0..4),
    ) {
        // An argument before `--`, since an option that needs a value would take `--` as its
        // value.
        let words = ["x"].into_iter().chain(line.iter().map(String::as_str)).chain(["w", "--"]);
        let argv: Vec<OsString> =
            words.chain(tail.iter().map(String::as_str)).map(OsString::from).collect();
        let expanded = expand(&mut plain(), &Sources::default(), &argv, &OptionFilePaths::none()).unwrap();
        prop_assert!(expanded.args.ends_with(&argv[argv.len() - tail.len() - 1..]));
    }
}
