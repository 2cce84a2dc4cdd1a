//! Completion in shells, by the scripts that a package holds.

use std::fs;
use std::path::{Path, PathBuf};

use xb_testkit::command::{Cmd, Ran};
use xb_testkit::stream::small_backup;

const PROGRAM: &str = env!("CARGO_BIN_EXE_xbcloud-rs");

/// A user with an option file and two repositories, one of them with two backups, and the scripts.
struct User {
    folder: tempfile::TempDir,
}

impl User {
    fn new() -> Self {
        let user = Self { folder: tempfile::tempdir().unwrap() };
        let folder = user.path();
        let options = format!(
            "[xbcloud.shop]\nroot=file://{}/shop\n[xbcloud.vault]\nroot=file://{}/vault\n",
            folder.display(),
            folder.display(),
        );
        fs::write(folder.join(".my.cnf"), options).unwrap();
        let written = user.program().args(["--write-manual"]).arg(folder.join("manual"));
        let _ = written.run().expect(0);
        for name in ["monday", "tuesday"] {
            let put = user.program().args(["put", &format!("@shop/{name}"), "--quiet"]);
            let _ = put.stdin_bytes(small_backup(1, 200_000)).run().expect(0);
        }
        user
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self, program: &str) -> Cmd {
        let folder = Path::new(PROGRAM).parent().unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        Cmd::new(program)
            .env("HOME", self.path())
            .env("PATH", format!("{}:{path}", folder.display()))
            .cwd(self.path())
    }

    fn program(&self) -> Cmd {
        self.command(PROGRAM)
    }

    fn script(&self, file: &str) -> PathBuf {
        self.path().join("manual").join(file)
    }

    /// The words that bash puts in place of `replaced`, which is the end of the last of `words`. `words` are those that bash makes
    /// of `line`: it cuts at `@`, `=` and `:`.
    fn bash(&self, line: &str, words: &[&str], replaced: &str) -> Vec<String> {
        let run = r#"
            source "$1"; line=$2 replaced=$3; shift 3
            registered=$(complete -p xbcloud-rs)
            [[ $registered =~ -F\ ([^ ]+) ]]
            COMP_LINE=$line COMP_POINT=${#line} COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
            "${BASH_REMATCH[1]}" xbcloud-rs "$replaced" ''
            ((${#COMPREPLY[@]} == 0)) || printf '%s\n' "${COMPREPLY[@]}""#;
        let script = self.script("bash/xbcloud-rs.bash");
        let ran = self
            .command("bash")
            .args(["--norc", "--noprofile", "-c", run, "test"])
            .arg(script)
            .args([line, replaced])
            .args(words)
            .run();
        lines(&ran)
    }
}

fn lines(ran: &Ran) -> Vec<String> {
    assert_eq!(ran.code(), 0, "{}", ran.stderr_text());
    ran.stdout_text().lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_repositories_backups_levels_and_codecs() {
    let user = User::new();
    let list = ["xbcloud-rs", "list", "@", "sh"];
    assert_eq!(user.bash("xbcloud-rs list @sh", &list, "@sh"), ["@shop"]);
    assert_eq!(user.bash("xbcloud-rs list @", &list[..3], "@"), ["@shop", "@vault"]);
    // Where a backup is required, its name follows.
    let verify = ["xbcloud-rs", "verify", "@", "sh"];
    assert_eq!(user.bash("xbcloud-rs verify @sh", &verify, "@sh"), ["@shop/"]);
    let names =
        user.bash("xbcloud-rs verify @shop/", &["xbcloud-rs", "verify", "@", "shop/"], "@shop/");
    assert_eq!(names, ["@shop/latest", "@shop/tuesday", "@shop/monday"]);
    let begun = ["xbcloud-rs", "restore", "@", "shop/mo"];
    assert_eq!(user.bash("xbcloud-rs restore @shop/mo", &begun, "@shop/mo"), ["@shop/monday"]);
    // A new backup must have another name; a repository without a backup names none.
    let new = ["xbcloud-rs", "backup", "@", "shop/"];
    assert!(user.bash("xbcloud-rs backup @shop/", &new, "@shop/").is_empty());
    let empty = ["xbcloud-rs", "verify", "@", "vault/"];
    assert!(user.bash("xbcloud-rs verify @vault/", &empty, "@vault/").is_empty());
    // The destination of a copy, as a word and as an option.
    let copy = ["xbcloud-rs", "copy", "@", "shop/monday", "@", "v"];
    assert_eq!(user.bash("xbcloud-rs copy @shop/monday @v", &copy, "@v"), ["@vault"]);
    let option = ["xbcloud-rs", "run", "@", "shop", "--copy-to", "=@", "v"];
    assert_eq!(user.bash("xbcloud-rs run @shop --copy-to=@v", &option, "@v"), ["@vault"]);

    let level = ["xbcloud-rs", "verify", "--level", "=", "pa"];
    assert_eq!(user.bash("xbcloud-rs verify --level=pa", &level, "pa"), ["pages"]);
    let codec = ["xbcloud-rs", "put", "--compress", "="];
    let codecs = user.bash("xbcloud-rs put --compress=", &codec, "");
    assert_eq!(codecs, ["auto", "none", "lz4", "snappy", "gzip", "zstd"]);
    let command = ["xbcloud-rs", "consolid"];
    assert_eq!(user.bash("xbcloud-rs consolid", &command, "consolid"), ["consolidate"]);
    let option = ["xbcloud-rs", "restore", "--target"];
    assert_eq!(user.bash("xbcloud-rs restore --target", &option, "--target"), ["--target-dir"]);
    // Behind `--` are the words of another program.
    let other = ["xbcloud-rs", "backup", "@", "shop", "--", "mariadb-backup", "@"];
    assert!(user.bash("xbcloud-rs backup @shop -- mariadb-backup @", &other, "@").is_empty());
}

/// Whoever can write into the store chooses the names of its backups.
#[test]
fn bash_quotes_a_name_that_would_run_a_command() {
    let user = User::new();
    for name in ["wed;touch pwned;#", "wed $(touch pwned)"] {
        let put = user.program().args(["put", &format!("@shop/{name}"), "--quiet"]);
        let _ = put.stdin_bytes(small_backup(1, 2000)).run().expect(0);
    }
    let begun = ["xbcloud-rs", "restore", "@", "shop/wed"];
    let names = user.bash("xbcloud-rs restore @shop/wed", &begun, "@shop/wed");
    assert_eq!(names.len(), 2, "{names:?}");
    let line = names.iter().map(|name| format!("printf '%s\\n' {name}\n")).collect::<String>();
    let ran = user.command("bash").args(["--norc", "-c", &line]).run();
    let mut read = lines(&ran);
    read.sort();
    assert_eq!(read, ["@shop/wed $(touch pwned)", "@shop/wed;touch pwned;#"]);
    assert!(!user.path().join("pwned").exists());
}

#[test]
fn fish_completes_repositories_and_backups() {
    let user = User::new();
    if std::process::Command::new("fish").arg("--version").output().is_err() {
        return xb_testkit::skipped("there is no fish");
    }
    let script = user.script("fish/xbcloud-rs.fish");
    for (line, expected) in [
        ("xbcloud-rs list @", vec!["@shop", "@vault"]),
        ("xbcloud-rs verify @shop/t", vec!["@shop/tuesday"]),
        ("xbcloud-rs put --compress=z", vec!["--compress=zstd"]),
    ] {
        let ask = "source $argv[1]; complete -C $argv[2]";
        let ran = user.command("fish").args(["--no-config", "-c", ask]).arg(&script).arg(line);
        assert_eq!(lines(&ran.run()), expected, "{line}");
    }
}

#[test]
fn no_environment_turns_a_run_into_a_question() {
    let user = User::new();
    let asked = |program: &str, words: &[&str]| {
        user.command(program)
            .env("_XB_COMPLETE", "bash")
            .env("_CLAP_COMPLETE_INDEX", "1")
            .args(words)
            .run()
    };
    let list = asked(PROGRAM, &["list", "@shop"]).expect(0).stdout_text().to_string();
    assert!(list.contains("tuesday"), "{list}");
    let stock = user.path().join("xbcloud");
    std::os::unix::fs::symlink(PROGRAM, &stock).unwrap();
    let _ = asked(stock.to_str().unwrap(), &["--", "xbcloud", "l"]).expect(1);
    // A shell that is not known, and no question.
    let unknown = user.program().env("_XB_COMPLETE", "csh").args(["--", "xbcloud-rs", "l"]).run();
    let _ = unknown.expect(2);
}
