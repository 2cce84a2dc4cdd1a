//! Options give files of the data other names and places: what is left of the old data would act on the new.

use std::path::Path;

use crate::harness::{Scene, start_on};
use crate::present_data::{by_hand, is_refused, join, read, succeeds, text};

/// Old ones would undo or finish what the new data does not have, or name files that are gone.
#[test]
fn logs_under_names_of_their_own_go_with_the_data_that_they_belong_to() {
    let scene = Scene::new();
    let data = scene.data("joiner");
    // By their endings, these names are those of logs that stay.
    let old = [
        "my-tc.log",
        "my-ddl.log",
        "my-ddl-backup.log",
        "master.log",
        "master-c2.log",
        "relay.err",
        "list.log",
        "b.000001",
        "r.000001",
    ];
    let stay = ["slow.log", "my-general.log", "host.err"];
    for name in old.iter().chain(&stay) {
        std::fs::write(data.join(name), "old").unwrap();
    }
    let ddl = format!("--log-ddl-recovery={}/my-ddl.x", data.display());
    let words = [
        &*ddl,
        "--log-tc=./my-tc.log",
        "--master-info-file=master.log",
        "--log-bin=b",
        "--log-bin-index=list.log",
        "--relay-log=r",
        "--relay-log-index=relay.err",
    ];
    succeeds(&scene, &words);
    for name in old {
        assert!(!data.join(name).exists(), "{name}");
        assert_eq!(read(data.join("#sql-xb/.old").join(name)), "old", "{name}");
    }
    for name in stay {
        assert_eq!(read(data.join(name)), "old", "{name}");
    }
    // The server makes some of them on the new data, too.
    std::fs::write(data.join("my-tc.log"), "new").unwrap();
    start_on(&data);
    let back = by_hand("roll-back", &data);
    assert!(back.status.success(), "{}", text(&back));
    for name in old {
        assert_eq!(read(data.join(name)), "old", "{name}");
    }
}

/// An operator who keeps the binary log keeps what lists it.
#[test]
fn an_index_stays_with_a_binary_log_that_the_operator_keeps() {
    let scene = Scene::new();
    let data = scene.data("joiner");
    for name in ["b.000001", "b.list"] {
        std::fs::write(data.join(name), "old").unwrap();
    }
    scene.options("cpat=.*/b\\.[0-9]*$\\|.*\\.list$\\|.*galera\\.cache$");
    succeeds(&scene, &["--log-bin=b", "--log-bin-index=b.list"]);
    for name in ["b.000001", "b.list"] {
        assert_eq!(read(data.join(name)), "old", "{name}");
    }
}

/// A server does not start with an index whose files are gone. Only a name without an ending gets `.index`.
#[test]
fn the_index_of_a_binary_log_elsewhere_goes_with_its_files() {
    for (option, name) in [("bl.idx", "bl.idx"), ("db1.example", "db1.example"), ("x", "x.index")] {
        let scene = Scene::new();
        let logs = scene.scratch.dir("logs");
        let others = ["of-another.idx", "db1.index", "db1.000001"];
        for name in [name, "bl.000001"].iter().chain(&others) {
            std::fs::write(logs.join(name), "old").unwrap();
        }
        let words = ["bin=", "bin-index="].map(|word| format!("--log-{word}{}/", logs.display()));
        succeeds(&scene, &[&format!("{}bl", words[0]), &format!("{}{option}", words[1])]);
        for name in [name, "bl.000001"] {
            assert!(!logs.join(name).exists(), "{name}");
            assert_eq!(read(logs.join("#sql-xb/.old").join(name)), "old", "{name}");
        }
        for name in others {
            assert_eq!(read(logs.join(name)), "old", "{name}");
        }
    }
}

/// The server would go on with its old rows, beside the new ones of all other tables.
#[test]
fn data_of_myrocks_that_the_server_would_not_read_is_refused() {
    let scene = Scene::new();
    let [data, donors] = ["joiner", "donor"].map(|node| scene.data(node));
    let (ssd, current) = (scene.scratch.dir("ssd"), "#rocksdb/CURRENT");
    std::fs::write(ssd.join("CURRENT"), "old").unwrap();
    let elsewhere = format!("--loose-rocksdb-datadir={}", ssd.display());
    let inside = "--rocksdb-wal-dir=wal";
    // A donor without MyRocks.
    succeeds(&scene, &[&elsewhere]);
    assert!(by_hand("roll-back", &data).status.success());

    scene.stream(&[current, "xtrabackup_info"]);
    let why = format!("rocksdb-datadir names {}", ssd.display());
    // An earlier donor does not say that it has some.
    is_refused(&scene, &[&elsewhere], &why);
    std::fs::create_dir(donors.join("#rocksdb")).unwrap();
    std::fs::write(donors.join(current), "new").unwrap();
    for (option, why) in [(&*elsewhere, &*why), (inside, "rocksdb-wal-dir names")] {
        let joiner = is_refused(&scene, &[option], why);
        assert!(joiner.log.contains("hint: remove rocksdb-"), "{}", joiner.log);
        assert!(!joiner.log.contains("received"), "{}", joiner.log);
    }
    assert_eq!(
        (read(data.join("ibdata1")), read(ssd.join("CURRENT"))),
        ("old".into(), "old".into())
    );

    let usual = format!("--rocksdb-datadir={}/#rocksdb/", data.display());
    let joiner = join(&scene, &[&usual, "--rocksdb-wal-dir=./#rocksdb"]);
    assert!(joiner.status.success(), "{}", joiner.log);
    assert!(Path::new(&data).join(current).exists());
}
