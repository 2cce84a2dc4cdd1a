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
    Settings::read(&args, &OptionFiles::new(options.iter().map(own), None), None, 2)
}

#[test]
fn defaults_are_those_of_the_design() {
    let settings = read(&[]).unwrap();
    assert_eq!(settings.compress.to_string(), "auto");
    assert_eq!((settings.compress_threads, settings.backup_threads), (2, 2));
    assert_eq!(settings.initial_timeout, Duration::from_secs(300));
    assert_eq!(settings.locks.lock_stall, Some(Duration::from_secs(30)));
    assert_eq!((settings.old, settings.space_check), (Old::Kept, true));
    assert!(settings.keep.keeps(b"my.sock") && !settings.keep.keeps(b"ibdata1"));
    assert!(settings.remarks.is_empty() && settings.login.is_none());
}

#[test]
fn of_a_list_of_folders_the_first_counts() {
    let settings = read(&[("mysqld/tmpdir", "/fast:/slow")]).unwrap();
    assert_eq!(settings.tmpdir, Some("/fast".into()));
    assert_eq!(settings.locks.spool_dir, Some("/fast".into()));
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
        ("tcert", "/c.pem"),
        ("mysqld/ssl-ca", "/ca.pem"),
        ("encrypt", "4"),
    ])
    .unwrap();
    assert_eq!(settings.compress.to_string(), "zstd:3");
    assert_eq!(read(&[("compress", "auto")]).unwrap().compress, xb_compressor::Compression::Auto);
    assert_eq!(settings.backup_opts, ["--galera-info", "--tables=a b"]);
    assert_eq!(settings.use_memory, Some("512M".into()));
    assert_eq!((settings.extra_port, settings.rlimit), (Some(3307), Some(50 << 20)));
    assert_eq!(settings.old, Old::Removed);
    assert_eq!(settings.progress_every, Duration::from_secs(5));
    assert_eq!(settings.tls.cert, Some("/c.pem".into()));
    assert_eq!(settings.tls.ca, Some("/ca.pem".into()));
    assert_eq!(settings.tls.verify, Verify::Ca);
    assert!(!format!("{settings:?}").contains("secret"));
    assert_eq!(settings.remarks.len(), 2, "{:?}", settings.remarks);
    for (command, expected) in
        [("gzip", "gzip:3"), ("pigz -6", "gzip:6"), ("/usr/bin/lz4", "lz4"), ("snzip", "snappy")]
    {
        assert_eq!(read(&[("compressor", command)]).unwrap().compress.to_string(), expected);
    }
}

#[test]
fn what_has_no_effect_or_no_meaning_is_named() {
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

#[test]
fn what_would_not_be_done_is_refused() {
    for (option, given) in [
        ("encrypt", "1"),
        ("encrypt", "5"),
        ("streamfmt", "tar"),
        ("compressor", "sh -c reboot"),
        ("compressor", "gzip '"),
        ("compress", "quicklz"),
        ("compress", "zstd:99"),
        ("ssl-mode", "MAYBE"),
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

proptest! {
    #[test]
    fn any_value_is_read_or_refused(
        name in prop::sample::select(vec!["compress", "compressor", "rlimit", "cpat", "encrypt", "ssl-mode", "backup-threads", "lock-stall", "inno-apply-opts", "wsrep-sst-auth", "keep-old", "spool-size"]),
        text in "\\PC{0,20}|[0-9]{0,25}[kKmMgGtT]?",
    ) {
        let _ = read(&[(name, text.as_str())]);
    }
}
