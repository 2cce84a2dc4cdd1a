//! Prepares the received files, so that a server can start on them.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use xb_pipeline::BeforePrepare;
use xb_process::can_confine;
use xb_server::{clean_option_file, recovery_memory, temporary_dirs};

use super::content;
use super::destination::Destination;
use super::donor_files;
use crate::context::Context;
use crate::contract::args::Product;
use crate::contract::position::Position;
use crate::error::SstError;
use crate::run::{ChildError, Run};
use crate::session::backup_program::{key_words, option, server_words};

/// Prepares the received files, and removes what is the donor's own. `stated` is the position that they stated when they
/// had arrived, `offered` the one that the donor offered. Returns the position of the data.
///
/// # Errors
/// If the backup program fails, or a file cannot be changed; [`SstError::Content`] if there is no
/// position, or the program lost tables.
pub(super) fn prepare(
    context: &Context,
    destination: &Destination,
    stated: Option<Position>,
    offered: Option<&Position>,
) -> Result<Position, SstError> {
    let new = &destination.new;
    destination.prepare_with(|| {
        let before =
            BeforePrepare::look(new, &[]).map_err(SstError::io("look at the tables in", new))?;
        run_program(context, destination)?;
        let lost = before.lost(new).map_err(SstError::io("look at the tables in", new))?;
        lost.map_or(Ok(()), |lost| {
            Err(SstError::Content(format!("its --prepare {lost}; start the node again")))
        })
    })?;
    let position = content::position(new, stated, offered)?;
    let Context { settings, layout, .. } = context;
    let mut sent_again = None;
    if let Some(recorded) = content::recorded_before(new, &position) {
        sent_again = position.domain.filter(|_| settings.cluster_gtids);
        context.error_log.warn(format_args!(
            "the backup is at {position}, but the server's position in its data is {recorded}, as is normal under load: this node is sent what lies between once more; only a CREATE TABLE ... SELECT among that makes it stop replicating (Inconsistent), and it must join again then"
        ));
    }
    let stays =
        |name: &OsStr| settings.keep.keeps(name.as_bytes(), true) || layout.leads_outside(name);
    donor_files::clear(new, layout.binlog.as_deref(), sent_again, stays)?;
    Ok(position)
}

/// Runs the backup program's `--prepare` on the files in `new`.
fn run_program(context: &Context, destination: &Destination) -> Result<(), SstError> {
    let new = &destination.new;
    let Context { args, settings, layout, .. } = context;
    let program = &settings.program;
    clean(context, new)?;
    let mut words = match args.product {
        // The backup has its own option file, which lists the plugins to load and their directory.
        // The program reads that file only if no other is given.
        Product::MariaDb => {
            add_key_options(settings.key_options.text(), new)?;
            Vec::new()
        }
        Product::Percona => args.defaults.words(),
    };
    words.push("--prepare".into());
    words.push(option("--target-dir", new));
    let writable = writable(context, destination);
    let tmpdir = match writable.is_empty() {
        true => settings.tmpdir.as_deref(),
        // Others have their files in the usual one.
        false => Some(new.as_path()),
    };
    words.extend(tmpdir.map(|dir| option("--tmpdir", dir)));
    // Options of the operator's come later, and the last one counts.
    words.push(match &settings.use_memory {
        Some(memory) => option("--use-memory", memory),
        None => option("--use-memory", recovery_memory(new, new).to_string()),
    });
    words.extend(settings.apply_opts.iter().cloned());
    if args.product == Product::MariaDb {
        words.extend(key_words(args, &layout.datadir));
    }
    let server = server_words(args);
    if args.product == Product::MariaDb && !server.is_empty() {
        words.push("--mysqld-args".into());
        words.extend(server);
    }
    let log = layout.datadir.join("xbrs.prepare.log");
    Run { program, args: words, env: Vec::new(), log: Some(log), writable }
        .to_end(&context.cancel)
        .map_err(|error| match error {
            ChildError::Failed { ref words, .. }
                if args.product == Product::Percona
                    && words.iter().any(|word| is_of_keys(word)) =>
            {
                SstError::Keyring { source: error }
            }
            error => error.into(),
        })
}

/// Leaves out of the donor's option file what could have the program act outside the received files.
fn clean(context: &Context, new: &Path) -> Result<(), SstError> {
    let path = new.join("backup-my.cnf");
    let remarks = clean_option_file(new, &context.settings.program);
    for remark in remarks.map_err(SstError::io("clean", &path))? {
        context.error_log.warn(format_args!("from the donor: {remark}"));
    }
    Ok(())
}

/// Directories that the program can write below: names of files in the redo log come from the donor. None if it is not
/// confined.
fn writable(context: &Context, destination: &Destination) -> Vec<PathBuf> {
    let Context { args, settings, error_log, .. } = context;
    // A keyring of Percona's may be written beside its own file.
    if args.product != Product::MariaDb {
        return Vec::new();
    }
    if let Err(why) = can_confine() {
        error_log.info(format_args!("--prepare is not confined to the received data: {why}"));
        return Vec::new();
    }
    let named = temporary_dirs(settings.apply_opts.iter().map(AsRef::as_ref));
    let received = destination.dirs_of(|_| true).chain([destination.new.clone()]);
    received.chain(named).collect()
}

/// Returns whether a message is about the keys of encrypted tables.
fn is_of_keys(message: &str) -> bool {
    let message = message.to_lowercase();
    ["keyring", "encryption key", "master key", "decrypt"].iter().any(|word| message.contains(word))
}

/// Appends the location of this node's keys to the backup's option file: it may differ from the
/// donor's.
fn add_key_options(text: &[u8], new: &Path) -> Result<(), SstError> {
    if text.is_empty() {
        return Ok(());
    }
    let path = new.join("backup-my.cnf");
    let mut open = std::fs::OpenOptions::new();
    let file = open.append(true).create(true).mode(0o600).open(&path);
    let written = file.and_then(|mut file| file.write_all(text));
    written.map_err(SstError::io("write", &path))
}
