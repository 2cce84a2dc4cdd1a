//! Input from a server or an operator: option files, arguments, lines.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::sync::OnceLock;

use tempfile::TempDir;
use xb_cli::{OptionFilePaths, read_groups};
use xb_sst::parsers::{credentials, shell_words};
use xb_sst::swap::Journal;
use xb_sst::{Args, Login, Offer, OptionFiles, Position, Product, Server, StateId};
use xb_testkit::daemon::Scratch;

/// A folder in memory, removed when the process ends.
pub(crate) fn scratch() -> &'static TempDir {
    static FOLDER: OnceLock<(TempDir, Scratch)> = OnceLock::new();
    let (folder, _) = FOLDER.get_or_init(|| {
        let memory = tempfile::Builder::new().prefix("xb-fuzz").tempdir_in("/dev/shm");
        let folder = memory.or_else(|_| tempfile::tempdir()).expect("a folder");
        // A static is never dropped.
        let remover = Scratch::with_litter(&[folder.path().to_owned()]);
        (folder, remover)
    });
    folder
}

/// Any bytes as an option file: no panic, and every option has a group that was wanted. Includes
/// lead nowhere: slashes are taken out of a file that has any.
pub(crate) fn option_file(data: &[u8]) {
    let mut content = data.to_vec();
    if content.windows(4).any(|bytes| bytes.eq_ignore_ascii_case(b"!inc")) {
        content.iter_mut().filter(|byte| **byte == b'/').for_each(|byte| *byte = b'_');
    }
    let path = scratch().path().join("my.cnf");
    std::fs::write(&path, content).expect("room");
    let wants = |group: &str| {
        group.len() % 2 == 1 || OptionFiles::wants(group, Product::MariaDb, Some("x"))
    };
    let read = read_groups(&OptionFilePaths::none(), Some(&path), None, wants);
    let Ok((options, _)) = read else { return };
    assert!(options.iter().all(|option| wants(&option.group)));
    let options = options.into_iter().map(|option| (option.group, option.key, option.value));
    let files = OptionFiles::new(options, Product::MariaDb, Some("x"));
    let names: Vec<_> = files.sst_names().map(str::to_owned).collect();
    assert!(names.iter().all(|name| files.has(name)));
}

/// Any words as the arguments of a server, separated by NUL: no panic.
pub(crate) fn sst_args(data: &[u8]) {
    let words: Vec<OsString> =
        data.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect();
    let Ok(args) = Args::parse(&words) else { return };
    assert!(args.server.iter().all(|(name, _)| !name.contains('_')));
    let _ = (args.server_option("datadir"), args.defaults.words());
}

/// Any bytes as what a server and a donor hand over in lines and texts: no panic, and what is
/// accepted is written as it was read.
pub(crate) fn sst_lines(data: &[u8]) {
    let credentials = credentials(data);
    assert!(!format!("{credentials:?}").contains("secret"));
    let _ = shell_words(data);
    for product in [Product::MariaDb, Product::Percona] {
        if let Ok(offer) = Offer::read(data, product, Some("10.11.6")) {
            let again = Offer::read(&offer.encode(), product, Some("10.11.6"));
            assert_eq!(again.expect("our own"), offer);
            let _ = offer.position();
        }
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = Login::parse(text.as_ref());
    if let Ok(state) = text.parse::<StateId>() {
        assert_eq!(state.to_string().parse::<StateId>(), Ok(state));
    }
    if let Ok(position) = text.parse::<Position>() {
        assert_eq!(position.to_string().parse::<Position>(), Ok(position.clone()));
        Server::new(std::io::sink(), true).position(&position).expect("a sink");
    }
    if let Ok(journal) = Journal::parse(text) {
        assert_eq!(Journal::parse(&journal.encode()).expect("our own"), journal);
    }
}

pub(crate) fn file_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "[mysqld]\ndatadir=/var/lib/mysql\n# remark\nplugin-load = \"a;b\" # remark\n",
        "[xbcloud]\nstorage=s3\ns3-secret-key='a\\tb\\\\c'\n[sst]\nencrypt=4\nloose_x\n",
        "!include other.cnf\n!includedir conf.d\n[client-server]\nport = 3306\n",
        "[sst\nnothing\n",
        "key=value before any group\n[sstx]\ntkey=\"\\\"\"\n",
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}

pub(crate) fn args_seeds() -> Vec<Vec<u8>> {
    let lines = [
        "--role donor --address 10.0.0.1:4444/xbrs/tls/1 --socket /run/x --datadir /d --gtid 8a94dbcd-f8c4-11ee-8a6c-7b3b2a2f3b1e:5,1-2-3 --gtid-domain-id 7 --mysqld-args --wsrep_start_position=a --log_bin",
        "--role joiner --address 10.0.0.1 --datadir /d --parent 77 --progress 1 --binlog b --mysqld-args --defaults-file=/e",
        "--role donor --address a:1/xbrs/plain/1 --datadir /d --defaults-file /f --defaults-group-suffix x --bypass --gtid 8a94dbcd-f8c4-11ee-8a6c-7b3b2a2f3b1e:-1",
        "--role joiner --address [::1]:4444 --datadir /d --mysqld-version 8.0.36 --binlog-index i",
    ];
    lines.map(|line| line.replace(' ', "\0").into_bytes()).into()
}

pub(crate) fn line_seeds() -> Vec<Vec<u8>> {
    let uuid = "8a94dbcd-f8c4-11ee-8a6c-7b3b2a2f3b1e";
    let texts = [
        "sst_user=u\nsst_password=secret\nsst_remote_user=xbrs\nsst_remote_password=00ff\n"
            .to_owned(),
        format!("{uuid}:42"),
        format!("{uuid}:42,0-1-42"),
        format!(
            r#"{{"format":1,"what":"backup","state":"{uuid}:42","family":"mariadb","program":"p"}}"#
        ),
        "--compress \"a b\" 'c' d\\ e".to_owned(),
        "root:secret".to_owned(),
    ];
    texts.map(String::into_bytes).into()
}
