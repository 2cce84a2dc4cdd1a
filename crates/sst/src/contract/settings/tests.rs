use super::*;
use proptest::prelude::*;

fn read(options: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    let words = "--role joiner --address h --datadir /d/ --mysqld-args --socket=/d/my.sock";
    let words: Vec<_> = words.split(' ').collect();
    let args = Args::parse(&words.into_iter().map(OsString::from).collect::<Vec<_>>()).unwrap();
    let own = |(key, v): &(&str, &str)| {
        let (group, key) = key.split_once('/').unwrap_or(("sst", key));
        (group.to_owned(), key.to_owned(), Some(OsString::from(v)))
    };
    let files = OptionFiles::new(options.iter().map(own), args.product, None);
    Settings::read(&args, &files, None, 2)
}

#[test]
fn defaults_are_those_of_the_design() {
    let settings = read(&[]).unwrap();
    assert_eq!(settings.compress.to_string(), "auto");
    assert_eq!((settings.compress_threads, settings.backup_threads), (2, 2));
    assert_eq!(settings.initial_timeout, Duration::from_secs(300));
    assert_eq!(settings.locks.lock_stall, Some(Duration::from_secs(30)));
    assert_eq!((settings.old, settings.space_check), (Old::Kept, true));
    assert!(settings.keep.keeps(b"my.sock", false) && !settings.keep.keeps(b"ibdata1", false));
    assert!(settings.remarks.is_empty() && settings.login.is_none());
}

#[test]
fn of_a_list_of_folders_the_first_counts() {
    let settings = read(&[("mysqld/tmpdir", "/fast:/slow")]).unwrap();
    assert_eq!(settings.tmpdir, Some("/fast".into()));
    assert_eq!(settings.locks.spool_dir, Some("/fast".into()));
    let of_transfer = read(&[("mysqld/tmpdir", "/fast:/slow"), ("tmpdir", "/small")]).unwrap();
    assert_eq!(of_transfer.tmpdir, Some("/small".into()));
    assert_eq!(of_transfer.server_tmpdir, Some("/fast".into()));
    // A command line precedes the option files.
    let words = "--role joiner --address h --datadir /d --mysqld-args --tmpdir=/line";
    let words: Vec<_> = words.split(' ').map(OsString::from).collect();
    let args = Args::parse(&words).unwrap();
    let own = ("mysqld".to_owned(), "tmpdir".to_owned(), Some("/fast".into()));
    let files = OptionFiles::new([own], args.product, None);
    let settings = Settings::read(&args, &files, None, 2).unwrap();
    assert_eq!(
        (settings.tmpdir, settings.server_tmpdir),
        (Some("/line".into()), Some("/line".into()))
    );
}

#[test]
fn stock_options_are_mapped() {
    let settings = read(&[
        ("compressor", "zstd -3 -T2"),
        ("decompressor", "zstd -d"),
        ("inno-backup-opts", "--galera-info '--tables=a b'"),
        ("mysqld/innodb_buffer_pool_size", "512M"),
        ("mysqld/extra_port", "3307"),
        ("use-extra", "1"),
        ("rlimit", "50m"),
        ("wsrep-sst-auth", "sst:secret"),
        ("keep-old", "no"),
        ("progress", "1"),
        ("ssl-cert", "/c.pem"),
        ("mysqld/ssl-ca", "/ca.pem"),
        ("encrypt", "4"),
    ])
    .unwrap();
    assert_eq!(settings.compress.to_string(), "zstd:3");
    assert_eq!(read(&[("compress", "auto")]).unwrap().compress, xb_compressor::Compression::Auto);
    assert_eq!(settings.backup_opts, ["--galera-info", "--tables=a b"]);
    // The memory of a server says nothing about what preparing needs.
    assert_eq!(settings.use_memory, None);
    assert_eq!(read(&[("use-memory", "512M")]).unwrap().use_memory, Some("512M".into()));
    assert_eq!((settings.extra_port, settings.rlimit), (Some(3307), Some(50 << 20)));
    assert_eq!(settings.old, Old::Removed);
    assert_eq!(settings.progress_every, Duration::from_secs(5));
    assert_eq!(settings.tls.files.cert, Some("/c.pem".into()));
    assert_eq!(settings.tls.files.ca, Some("/ca.pem".into()));
    assert_eq!(settings.tls.files.verify, Verify::Ca);
    assert!(!format!("{settings:?}").contains("secret"));
    assert_eq!(settings.remarks.len(), 2, "{:?}", settings.remarks);
    for (command, expected) in
        [("gzip", "gzip:3"), ("pigz -6", "gzip:6"), ("/usr/bin/lz4", "lz4"), ("snzip", "snappy")]
    {
        assert_eq!(read(&[("compressor", command)]).unwrap().compress.to_string(), expected);
    }
}

/// A default that the operator did not choose would count in their place.
#[test]
fn values_that_are_no_text_are_refused() {
    use std::os::unix::ffi::OsStringExt as _;
    for name in ["cpat", "wsrep-sst-auth", "wire-security", "encrypt", "ssl-mode"] {
        let words = ["--role", "joiner", "--address", "h"].map(OsString::from);
        let args = Args::parse(&words).unwrap();
        let bad = OsString::from_vec(b"3\xff".to_vec());
        let options = [("sst".to_owned(), name.to_owned(), Some(bad))];
        let files = OptionFiles::new(options, args.product, None);
        let refused = Settings::read(&args, &files, None, 2).unwrap_err().to_string();
        assert!(refused.contains(name), "{refused}");
    }
}

#[test]
fn settings_without_effect_or_meaning_are_named() {
    let settings = read(&[
        ("sockopt", ",x"),
        ("compres", "lz4"),
        ("progress", "/fifo"),
        ("loose-time", "1"),
        ("force-upgrade", "on"),
    ]);
    let remarks = settings.unwrap().remarks;
    assert_eq!(remarks.len(), 4, "{remarks:?}");
    for name in ["sockopt", "compres ", "progress", "force-upgrade"] {
        assert!(remarks.iter().any(|remark| remark.contains(name)), "{name}: {remarks:?}");
    }
}

/// The chosen files, as `CERT KEY CA`, and the check of the peer.
fn chosen(options: &[(&str, &str)], version: &str) -> (String, Verify) {
    let tls = read(options).unwrap().tls;
    let files = tls.of_server(Some(version));
    let text = |path: &Option<std::path::PathBuf>| {
        path.as_ref().map_or("-".to_owned(), |path| path.display().to_string())
    };
    let words = [&files.cert, &files.key, &files.ca].map(text);
    (words.join(" "), files.verify)
}

/// The stock joiner of 10.11.19 does the same with these options.
#[test]
fn files_are_chosen_as_groups_and_an_authority_is_used() {
    const TRANSFER: [(&str, &str); 3] = [("tcert", "t.c"), ("tkey", "t.k"), ("tca", "t.ca")];
    const ROLE: [(&str, &str); 3] =
        [("ssl-server-cert", "r.c"), ("ssl-server-key", "r.k"), ("ssl-server-ca", "r.ca")];
    const SERVER: [(&str, &str); 3] =
        [("mysqld/ssl-cert", "s.c"), ("mysqld/ssl-key", "s.k"), ("mysqld/ssl-ca", "s.ca")];
    let now = "10.11.19-MariaDB";
    for (options, files, verify) in [
        (&[("encrypt", "3"), SERVER[0], SERVER[1]][..], "s.c s.k -", Verify::Unsaid),
        (&[("encrypt", "3"), SERVER[0], SERVER[1], SERVER[2]], "s.c s.k s.ca", Verify::Ca),
        (&[SERVER[0], SERVER[1], SERVER[2]], "- - -", Verify::Unsaid),
        (&[("mysqld/ssl-mode", "VERIFY_CA"), SERVER[0], SERVER[2]], "s.c - s.ca", Verify::Ca),
        (&[("ssl-mode", "REQUIRED"), SERVER[0], SERVER[2]], "s.c - s.ca", Verify::Unsaid),
        // The group is not mixed with the server's files.
        (&[("encrypt", "3"), TRANSFER[0], SERVER[1], SERVER[2]], "t.c - -", Verify::Unsaid),
        (&[("encrypt", "4"), TRANSFER[0], TRANSFER[1], SERVER[2]], "t.c t.k -", Verify::Ca),
        (
            &[("encrypt", "3"), TRANSFER[0], ROLE[0], ROLE[1], SERVER[2]],
            "r.c r.k -",
            Verify::Unsaid,
        ),
        (&[("encrypt", "3"), SERVER[0], SERVER[1], ROLE[2]], "s.c s.k r.ca", Verify::Ca),
        // An authority for transfers asks for a check, unless a mode says otherwise.
        (&TRANSFER, "t.c t.k t.ca", Verify::Ca),
        (&[TRANSFER[0], TRANSFER[2], ("ssl-mode", "REQUIRED")], "t.c - t.ca", Verify::Unsaid),
        // The stricter mode counts; the other role's mode does not.
        (&[TRANSFER[0], ("ssl-server-mode", "VERIFY_IDENTITY")], "t.c - -", Verify::Identity),
        (&[("ssl-mode", "VERIFY_CA"), ("ssl-server-mode", "DISABLED")], "- - -", Verify::Ca),
        (&[TRANSFER[0], ("ssl-client-mode", "VERIFY_CA")], "t.c - -", Verify::Unsaid),
    ] {
        assert_eq!(chosen(options, now), (files.to_owned(), verify), "{options:?}");
    }
    let both = [&TRANSFER[..], &ROLE[..]].concat();
    assert_eq!(chosen(&both, now).0, "r.c r.k r.ca");
    assert_eq!(chosen(&both, "11.8.6-MariaDB").0, "t.c t.k t.ca");
}

#[test]
fn no_known_option_is_ignored_without_a_word() {
    let usual = format!("{:?}", read(&[]).unwrap());
    // A mode or an authority of the other role has no effect in this one.
    let of_donors = |name: &&&str| name.starts_with("ssl-client-");
    let texts = ["1", "0", "no", "7", "/x", "tar", "VERIFY_CA", "any-donor", "gzip", "a:b"];
    for name in stock::KNOWN.iter().filter(|name| !of_donors(name)) {
        let has_effect = |text: &&str| match read(&[(name, text), ("mysqld/extra_port", "3307")]) {
            Ok(settings) => format!("{settings:?}") != usual,
            Err(_) => true,
        };
        assert!(texts.iter().any(has_effect), "{name} has no effect");
        let remarks = read(&[(name, "yes")]).map(|settings| settings.remarks).unwrap_or_default();
        assert!(!remarks.iter().any(|remark| remark.contains("unknown")), "{remarks:?}");
    }
    assert!(read(&[("report-dir", "/x")]).unwrap().remarks.is_empty());
}

#[test]
fn settings_that_would_be_ignored_are_refused() {
    for (option, given) in [
        ("encrypt", "1"),
        ("encrypt", "5"),
        ("streamfmt", "tar"),
        ("compressor", "sh -c reboot"),
        ("compressor", "gzip '"),
        ("compress", "quicklz"),
        ("compress", "zstd:99"),
        ("ssl-mode", "MAYBE"),
        ("ssl-server-mode", "MAYBE"),
        ("tcapath", "/cas"),
        ("ssl-capath", "/cas"),
        ("ssl-server-capath", "/cas"),
        ("tkey", "/k.pem"),
        ("tca", "/ca.pem"),
        ("wire-security", "none"),
        ("use-extra", "1"),
        ("compress-threads", "0"),
        ("rlimit", "fast"),
        ("keep-old", "perhaps"),
        ("cpat", "["),
        ("inno-apply-opts", "--use-memory=1G --generate_new_master_key"),
        ("inno-backup-opts", "--transition-key=hidden"),
        ("xtrabackup/inno-backup-opts", "--generate-transition-key"),
    ] {
        let error = read(&[(option, given)]).unwrap_err().to_string();
        let option = option.trim_start_matches("xtrabackup/");
        assert!(error.contains(option) && !error.contains("hidden"), "{option}={given}: {error}");
    }
}

#[test]
fn the_servers_directory_of_authorities_is_refused_only_where_it_would_count() {
    let cas = ("mysqld/ssl-capath", "/cas");
    let cert = ("mysqld/ssl-cert", "/c.pem");
    assert!(read(&[cas, cert]).is_ok());
    assert!(read(&[cas, cert, ("encrypt", "3")]).is_err());
    assert!(read(&[cas, cert, ("encrypt", "3"), ("mysqld/ssl-ca", "/ca.pem")]).is_ok());
    assert!(read(&[cas, ("encrypt", "3"), ("tcert", "/c.pem")]).is_ok());
}

proptest! {
    #[test]
    fn any_value_is_read_or_refused(
        name in prop::sample::select(vec!["compress", "compressor", "rlimit", "cpat", "encrypt", "ssl-mode", "backup-threads", "lock-stall", "inno-apply-opts", "wsrep-sst-auth", "keep-old", "spool-size"]),
        text in "\\PC{0,20}|[0-9]{0,25}[kKmMgGtT]?",
    ) {
        let _ = read(&[(name, text.as_str())]);
    }
}
