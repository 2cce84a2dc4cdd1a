use std::fs;
use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // `@` is replaced by the folder's path.
        fs::write(path, text.replace('@', folder.path().to_str().unwrap())).unwrap();
    }
    folder
}

fn only(folder: &TempDir, name: &str) -> OptionFileArgs {
    OptionFileArgs { only: Some(folder.path().join(name)), ..OptionFileArgs::default() }
}

fn as_stock(folder: &TempDir, name: &str) -> OptionFileArgs {
    OptionFileArgs { as_stock: true, ..only(folder, name) }
}

fn pairs(loaded: &LoadedOptions) -> Vec<String> {
    let pair = |option: &FileOption| match &option.value {
        Some(value) => format!("{}={}", option.key, value.to_str().unwrap()),
        None => option.key.clone(),
    };
    loaded.options.iter().map(pair).collect()
}

fn read(text: &str) -> Vec<String> {
    let folder = folder(&[("my.cnf", text)]);
    pairs(&load(&OptionFilePaths::none(), &only(&folder, "my.cnf"), &["g"]).unwrap())
}

/// Checks each line against the output of `my_print_defaults`.
#[test]
fn lines_are_read_as_mysql_reads_them() {
    let table = [
        ("plain=1", "plain=1"),
        (" spaces = x y  ", "spaces=x y"),
        ("bare", "bare"),
        ("  bare # comment", "bare"),
        ("empty=", "empty="),
        ("blank=   ", "blank="),
        ("under_score=1", "under_score=1"),
        ("loose_foo=1", "loose_foo=1"),
        ("equals=a=b", "equals=a=b"),
        ("cr=1\r", "cr=1"),
        // Comments.
        ("tail = v # comment", "tail=v"),
        ("hash=a#b", "hash=a"),
        ("semi=a;b", "semi=a;b"),
        ("k='a\"b\" # c'", "k=a\"b\" # c"),
        ("k=a\"b#c\"d # e", "k=a\"b#c\"d"),
        ("k=\"a\\\"b\" # c", "k=a\"b"),
        ("k= \"a#b", "k=\"a#b"),
        // Quotes.
        ("quoted=\"a # b\" # tail", "quoted=a # b"),
        ("single='q'", "single=q"),
        ("inner=' x '", "inner= x "),
        ("half=\"abc", "half=\"abc"),
        ("mixed=\"a\"b", "mixed=\"a\"b"),
        ("lone=\"", "lone=\""),
        // Escapes.
        ("esc=a\\sb\\tc\\nd\\\\e\\qf\\\"g\\'h\\r\\b", "esc=a b\tc\nd\\e\\qf\"g'h\r\u{8}"),
        ("k=a\\", "k=a\\"),
    ];
    for (line, option) in table {
        assert_eq!(read(&format!("[g]\n{line}\n")), [option], "{line:?}");
    }
}

#[test]
fn groups_are_chosen_by_their_exact_name() {
    let text = "# c\n; c\n\n[h]\nx=1\n  [g] # trailing\na=1\n[g2]\nb=1\n[G]\nx=1\n[g ]\nc=1\n[]\nx=1\n[ g]\nx=1";
    let folder = folder(&[("my.cnf", text)]);
    let wanted = only(&folder, "my.cnf");
    let read = |wanted: &OptionFileArgs, places: &OptionFilePaths, groups: &[&str]| {
        pairs(&load(places, wanted, groups).unwrap())
    };
    assert_eq!(read(&wanted, &OptionFilePaths::none(), &["g"]), ["a=1", "c=1"]);
    assert_eq!(read(&wanted, &OptionFilePaths::none(), &["g2", "g"]), ["a=1", "b=1", "c=1"]);
    assert!(read(&wanted, &OptionFilePaths::none(), &["nope"]).is_empty());
    assert!(read(&wanted, &OptionFilePaths::none(), &[]).is_empty());
    let suffixed = OptionFileArgs { group_suffix: Some("2".to_owned()), ..wanted.clone() };
    assert_eq!(read(&suffixed, &OptionFilePaths::none(), &["g"]), ["a=1", "b=1", "c=1"]);
    let places = OptionFilePaths { group_suffix: Some("2".to_owned()), ..OptionFilePaths::none() };
    assert_eq!(read(&wanted, &places, &["g"]), ["a=1", "b=1", "c=1"]);
    let other = OptionFileArgs { group_suffix: Some("3".to_owned()), ..wanted };
    assert_eq!(read(&other, &places, &["g"]), ["a=1", "c=1"]);
}

#[test]
fn includes_are_followed_and_do_not_end_the_group() {
    let folder = folder(&[
        ("my.cnf", "[g]\n  !include @/one.cnf\na=1\n!includedir\t@/d\nb=2\nc=3"),
        ("one.cnf", "[h]\nx=1\n[g]\none=1"),
        ("d/b.cnf", "[g]\nd-b=1"),
        ("d/a.cnf", "[g]\nd-a=1"),
        ("d/c.txt", "[g]\nx=1"),
    ]);
    let loaded = load(&OptionFilePaths::none(), &only(&folder, "my.cnf"), &["g"]).unwrap();
    assert_eq!(pairs(&loaded), ["one=1", "a=1", "d-a=1", "d-b=1", "b=2", "c=3"]);
    assert_eq!(loaded.options[0].line, 4);
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
}

#[test]
fn includes_that_never_end_are_bounded() {
    let itself = folder(&[("my.cnf", "[g]\n!include @/my.cnf\na=1\n")]);
    let error = load(&OptionFilePaths::none(), &only(&itself, "my.cnf"), &["g"]).unwrap_err();
    assert!(error.to_string().ends_with("line 2: more than 10 levels of !include"), "{error}");
    let loaded = load(&OptionFilePaths::none(), &as_stock(&itself, "my.cnf"), &["g"]).unwrap();
    assert_eq!((loaded.options.len(), loaded.warnings.len()), (11, 1));

    let text = "[g]\n!includedir @\n";
    let each_other = folder(&[("a.cnf", text), ("b.cnf", text), ("c.cnf", text)]);
    let error = load(&OptionFilePaths::none(), &only(&each_other, "a.cnf"), &["g"]).unwrap_err();
    assert!(matches!(error, OptionFileError::TooDeep { .. }), "{error}");
    let wanted = as_stock(&each_other, "a.cnf");
    let error = load(&OptionFilePaths::none(), &wanted, &["g"]).unwrap_err();
    assert!(matches!(error, OptionFileError::TooMany { limit: MAX_FILES, .. }), "{error}");
}

#[test]
fn files_are_read_in_the_order_of_mysql() {
    let folder = folder(&[
        ("etc.cnf", "[g]\nk=etc"),
        ("home/.my.cnf", "[g]\nk=home"),
        ("home/x.cnf", "[g]\nk=x"),
        ("extra.cnf", "[g]\nk=extra"),
        ("only.cnf", "[g]\nk=only"),
    ]);
    let places = OptionFilePaths {
        system: vec![folder.path().join("missing.cnf"), folder.path().join("etc.cnf")],
        home: Some(folder.path().join("home")),
        group_suffix: None,
    };
    let extra = Some(folder.path().join("extra.cnf"));
    let table = [
        (OptionFileArgs::default(), vec!["k=etc", "k=home"]),
        (
            OptionFileArgs { extra: extra.clone(), ..OptionFileArgs::default() },
            vec!["k=etc", "k=extra", "k=home"],
        ),
        (OptionFileArgs { extra, ..only(&folder, "only.cnf") }, vec!["k=only"]),
        (OptionFileArgs { none: true, ..only(&folder, "only.cnf") }, vec![]),
        (OptionFileArgs { only: Some("~/x.cnf".into()), ..OptionFileArgs::default() }, vec!["k=x"]),
    ];
    for (wanted, expected) in table {
        assert_eq!(pairs(&load(&places, &wanted, &["g"]).unwrap()), expected, "{wanted:?}");
    }
}

#[test]
fn the_usual_places_follow_the_environment() {
    let places = OptionFilePaths::with(|name| match name {
        "MYSQL_HOME" => Some("/srv/db".into()),
        "HOME" => Some("/home/u".into()),
        "MYSQL_GROUP_SUFFIX" => Some("_x".into()),
        _ => None,
    });
    let names: Vec<_> = places.system.iter().map(|path| path.to_str().unwrap()).collect();
    assert_eq!(names, ["/etc/my.cnf", "/etc/mysql/my.cnf", "/srv/db/my.cnf"]);
    assert_eq!(places.home.as_deref(), Some(Path::new("/home/u")));
    assert_eq!(places.group_suffix.as_deref(), Some("_x"));
    assert_eq!(OptionFilePaths::with(|_| None).system.len(), 2);
}

#[test]
fn a_file_that_everybody_may_write_is_ignored_only_if_nothing_in_it_counts() {
    let folder = folder(&[
        ("home/.my.cnf", "[g]\nseal=1"),
        ("other/.my.cnf", "[h]\nx=1"),
        ("odd/.my.cnf", "[h]\n!include @/home/.my.cnf"),
        ("outer.cnf", "[g]\na=1\n!include @/home/.my.cnf"),
        ("folder.cnf", "[g]\na=1\n!includedir @/d"),
        ("d/a.cnf", "[g]\nseal=1"),
    ]);
    let at = |name: &str| folder.path().join(name);
    for name in ["home/.my.cnf", "other/.my.cnf", "odd/.my.cnf", "d/a.cnf"] {
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o666)).unwrap();
    }
    let home = |name: &str| OptionFilePaths { home: Some(at(name)), ..OptionFilePaths::none() };
    let none = OptionFileArgs::default();
    let extra = OptionFileArgs { extra: Some(at("other/.my.cnf")), ..none.clone() };
    for (places, wanted, named) in [
        (home("home"), none.clone(), "home/.my.cnf"),
        (home("odd"), none.clone(), "odd/.my.cnf"),
        (OptionFilePaths::none(), only(&folder, "outer.cnf"), "home/.my.cnf"),
        (OptionFilePaths::none(), only(&folder, "folder.cnf"), "d/a.cnf"),
        // Whoever names a file wants it to count.
        (OptionFilePaths::none(), only(&folder, "other/.my.cnf"), "other/.my.cnf"),
        (OptionFilePaths::none(), extra, "other/.my.cnf"),
    ] {
        let text = format!(
            "option file {} is world-writable, so its options do not count: run chmod o-w on it",
            at(named).display()
        );
        let error = load(&places, &wanted, &["g"]).unwrap_err();
        assert_eq!(error.to_string(), text);
        // The stock programs go on without it.
        let wanted = OptionFileArgs { as_stock: true, ..wanted };
        let loaded = load(&places, &wanted, &["g"]).unwrap();
        assert!(!pairs(&loaded).contains(&"seal=1".to_owned()));
        assert_eq!(loaded.warnings, [text]);
    }
    let loaded = load(&home("other"), &none, &["g"]).unwrap();
    assert!(loaded.options.is_empty());
    assert_eq!(loaded.warnings.len(), 1);
}

#[test]
fn parts_that_cannot_be_read_are_left_out_only_as_the_stock_programs_do() {
    let folder = folder(&[
        ("missing.cnf", "[g]\na=1\n!include @/none.cnf"),
        ("odd.cnf", "[g]\na=1\n!includes @/none.cnf"),
        ("unreadable.cnf", "[g]\na=1\n!include @/d.cnf"),
        ("hidden.cnf", "[g]\na=1\n!include @/loop/x.cnf"),
        ("d.cnf/x", ""),
    ]);
    std::os::unix::fs::symlink("loop", folder.path().join("loop")).unwrap();
    for (name, text) in [
        (
            "missing.cnf",
            "cannot read option file @/none.cnf, which @/missing.cnf includes in line 3: it does not exist; create it, or remove the line",
        ),
        ("odd.cnf", "option file @/odd.cnf line 3: unknown ! directive"),
        // As one without the right to read, also for root.
        ("unreadable.cnf", "cannot read option file @/d.cnf"),
        // As one in a folder that only its owner sees.
        ("hidden.cnf", "cannot read option file @/loop/x.cnf"),
    ] {
        let error = load(&OptionFilePaths::none(), &only(&folder, name), &["g"]).unwrap_err();
        assert_eq!(error.to_string(), text.replace('@', folder.path().to_str().unwrap()));
        let loaded = load(&OptionFilePaths::none(), &as_stock(&folder, name), &["g"]).unwrap();
        assert_eq!((pairs(&loaded), loaded.warnings.len()), (vec!["a=1".to_owned()], 1), "{name}");
    }
    // In a home that cannot be seen, there may be none.
    for name in ["odd.cnf", "loop"] {
        let home = Some(folder.path().join(name));
        let places = OptionFilePaths { home, ..OptionFilePaths::none() };
        let loaded = load(&places, &OptionFileArgs::default(), &["g"]).unwrap();
        assert_eq!(loaded.warnings.len(), 1);
    }
    let system = vec![folder.path().join("loop/my.cnf")];
    let places = OptionFilePaths { system, ..OptionFilePaths::none() };
    assert!(load(&places, &OptionFileArgs::default(), &["g"]).is_err());
}

#[test]
fn bad_files_are_refused_without_quoting_a_value() {
    let folder = folder(&[
        ("early.cnf", "\n\nsecret=hunter2\n[g]\n"),
        ("group.cnf", "[g]\n[hunter2\n"),
        ("dir.cnf", "[g]\n!includedir @/missing"),
        ("inner.cnf", "[g]\nsecret=hunter2\n!include @/early.cnf"),
    ]);
    let words = "\u{feff}[g]\nsecret=hunter2".encode_utf16();
    let (little, big): (Vec<_>, Vec<_>) =
        words.map(|word| (word.to_le_bytes(), word.to_be_bytes())).unzip();
    fs::write(folder.path().join("utf16le.cnf"), little.concat()).unwrap();
    fs::write(folder.path().join("utf16be.cnf"), big.concat()).unwrap();
    let large = vec![b'#'; usize::try_from(MAX_FILE).unwrap() + 1];
    fs::write(folder.path().join("large.cnf"), &large).unwrap();
    fs::write(folder.path().join("full.cnf"), &large[1..]).unwrap();
    let table = [
        ("missing.cnf", "cannot read option file @/missing.cnf"),
        ("early.cnf", "option without a group before it in option file @/early.cnf line 3"),
        ("group.cnf", "wrong group in option file @/group.cnf line 2"),
        ("utf16le.cnf", "option file @/utf16le.cnf is UTF-16 text"),
        ("utf16be.cnf", "option file @/utf16be.cnf is UTF-16 text"),
        ("dir.cnf", "cannot list the option file directory @/missing"),
        ("inner.cnf", "option without a group before it in option file @/early.cnf line 3"),
        ("large.cnf", "option file @/large.cnf is larger than 1048576 bytes"),
    ];
    for (name, text) in table {
        let error = load(&OptionFilePaths::none(), &only(&folder, name), &["g"]).unwrap_err();
        assert_eq!(error.to_string(), text.replace('@', folder.path().to_str().unwrap()));
        assert!(!format!("{error:?}").contains("hunter2"));
    }
    assert!(load(&OptionFilePaths::none(), &only(&folder, "full.cnf"), &["g"]).is_ok());
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_file() {
    let folder = folder(&[("bom.cnf", "\u{feff}[g]\na=\u{feff}b"), ("only.cnf", "\u{feff}")]);
    let loaded = load(&OptionFilePaths::none(), &only(&folder, "bom.cnf"), &["g"]).unwrap();
    assert_eq!(pairs(&loaded), ["a=\u{feff}b"]);
    let loaded = load(&OptionFilePaths::none(), &only(&folder, "only.cnf"), &["g"]).unwrap();
    assert!(pairs(&loaded).is_empty());
}

#[test]
fn options_do_not_show_their_value() {
    let folder = folder(&[("my.cnf", "[g]\nsecret=hunter2")]);
    let loaded = load(&OptionFilePaths::none(), &only(&folder, "my.cnf"), &["g"]).unwrap();
    assert_eq!(pairs(&loaded), ["secret=hunter2"]);
    assert!(!format!("{loaded:?}").contains("hunter2"));
}

/// Lines of characters with a special meaning.
const ODD_LINE: &str = "[\\[\\]!#;=\"'\\\\ a-c]{0,12}";

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(text in proptest::collection::vec(any::<u8>(), 0..200)) {
        let places = OptionFilePaths::none();
        let mut loader =
            Loader { wants: &|group| group == "g", places: &places, as_stock: true, files: 0, loaded: LoadedOptions::default() };
        let _ = loader.lines(Path::new("f"), &text, MAX_DEPTH);
    }

    #[test]
    fn odd_lines_never_panic_and_keep_their_keys_short(line in ODD_LINE) {
        if let Line::Option(key, value) = read_line(line.as_bytes()) {
            let length = key.len() + value.map_or(0, |value| value.len() + 1);
            prop_assert!(length <= line.len());
            prop_assert!(!key.contains(&b'#') || key.contains(&b'"') || key.contains(&b'\''));
        }
    }

    #[test]
    fn a_quoted_value_reads_back(value in "[a-z #;=\"'\\\\\n\t]{0,20}") {
        let mut quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
        quoted = quoted.replace('\'', "\\'").replace('\n', "\\n").replace('\t', "\\t");
        let line = format!("key = \"{quoted}\" # comment");
        prop_assert_eq!(read_line(line.as_bytes()), Line::Option(b"key", Some(value.into_bytes())));
    }
}

/// Reads the same odd lines with the stock reader, if it is installed.
#[test]
fn the_stock_reader_agrees() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    use std::process::Command;

    let stock = |path: &Path| {
        let file = format!("--defaults-file={}", path.display());
        Command::new("my_print_defaults").arg(file).arg("g").output()
    };
    let folder = folder(&[("my.cnf", "[g]\n")]);
    let path = folder.path().join("my.cnf");
    if stock(&path).is_err() {
        xb_testkit::skipped("my_print_defaults is not installed");
        return;
    }
    let mut runner = TestRunner::deterministic();
    // Groups and directives have separate tests; here, the generator produces only option lines.
    let lines = proptest::collection::vec("[a-c][#;=\"'\\\\ a-c]{0,12}", 40);
    for _ in 0..50 {
        let lines = lines.new_tree(&mut runner).unwrap().current();
        fs::write(&path, format!("[g]\n{}\n", lines.join("\n"))).unwrap();
        let theirs = String::from_utf8(stock(&path).unwrap().stdout).unwrap();
        let ours = load(&OptionFilePaths::none(), &only(&folder, "my.cnf"), &["g"]).unwrap();
        let ours: String = pairs(&ours).iter().map(|pair| format!("--{pair}\n")).collect();
        assert_eq!(ours, theirs, "{lines:#?}");
    }
}
