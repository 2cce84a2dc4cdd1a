//! Origin of the stream of a backup: a producer, or the clone of a server.

use std::ffi::OsString;

use xb_backup::{
    Access, CloneRequest, CloneServer, Producer, UnprovenServer, clone_access, pinned,
};
use xb_cli::{Failure, host_name};

use crate::args::BackupOptions;
use crate::commands::context::Context;
use crate::commands::transfer::producer::producer_command;
use crate::report;

/// Origin of the stream of a backup.
#[derive(Debug)]
pub(crate) enum Origin {
    /// A program and its arguments.
    Program(Vec<OsString>),
    /// A server, and who logs in.
    Server(Access),
}

impl Origin {
    /// Options of the command line.
    ///
    /// # Errors
    /// Nothing is named, or both; options that do not fit it.
    pub(crate) fn of(args: &BackupOptions) -> Result<Self, Failure> {
        let Some(server) = clone_server(args) else {
            return producer_command(args).map(Self::Program);
        };
        let refused = |option: &str, why: &str| {
            Err(Failure::usage(format!("--from and {option} cannot be combined: {why}"))
                .hint(format!("remove {option}, or --from")))
        };
        let stream = &args.put.stream;
        if !args.producer.is_empty() || args.producer_options.producer_command.is_some() {
            return refused("a producer", "both say what to back up");
        }
        if args.incremental_from.is_some() {
            return refused("--incremental-from", "a clone is always a full backup");
        }
        if stream.raw || stream.unsafe_any_end || stream.last_file.is_some() {
            return refused(
                "--raw, --unsafe-any-end or --last-file",
                "only a clone that ended as its server announced is a backup",
            );
        }
        clone_access(server).map(Self::Server).map_err(report::failure)
    }

    /// Like [`of`](Self::of), and checks that a program exists.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub(crate) fn installed(args: &BackupOptions) -> Result<Self, Failure> {
        let origin = Self::of(args)?;
        if let Self::Program(command) = &origin {
            Producer::look_for(command).map_err(report::failure)?;
        }
        Ok(origin)
    }
}

fn clone_server(args: &BackupOptions) -> Option<CloneServer<'_>> {
    Some(CloneServer {
        from: args.from.as_deref()?,
        login_file: args.clone.login.login_file.as_deref(),
        ca: args.clone.ssl_ca.as_deref(),
        fingerprint: args.clone.ssl_fp.as_deref(),
    })
}

/// Name of the server in its backups: `--server`, else the host that is cloned, else this host.
pub(crate) fn server_name(args: &BackupOptions) -> Option<String> {
    let cloned = || clone_server(args).and_then(|server| server.other_host());
    args.put.server.clone().or_else(cloned).or_else(host_name)
}

/// A clone as the options ask for it.
pub(crate) fn clone_request(args: &BackupOptions, access: Access, is_sealed: bool) -> CloneRequest {
    let mut request = CloneRequest::new(access, is_sealed);
    request.allow_ddl = args.clone.allow_ddl;
    request.allow_empty_tables = args.clone.allow_empty_tables;
    request.max_donor_redo = args.clone.max_donor_redo.bytes();
    request
}

impl Context {
    /// Has the server of a clone prove who it is: asks a person at a terminal, once, about the fingerprint of a
    /// certificate that nothing vouches for.
    ///
    /// # Errors
    /// There is no terminal, or no agreement; the server cannot be asked.
    pub(crate) fn proven(&self, access: Access) -> Result<Access, Failure> {
        let Some(server) = UnprovenServer::of(&access) else { return Ok(access) };
        let found = server.fingerprint().map_err(report::failure)?;
        let question = format!(
            "Nothing proves that {server} is the server to clone.\nIts certificate has the SHA-256 fingerprint\n  {found}\nCompare it on the server: openssl x509 -noout -fingerprint -sha256 -in server-cert.pem\nIs it the same? [y/N] "
        );
        if xb_cli::ask(&question)? != Some(true) {
            return Err(unproven(&server, &found));
        }
        self.log.info(format!(
            "put this line into the group of the option file, so that you are not asked again: ssl-fp = {found}"
        ));
        Ok(pinned(access, &found))
    }
}

/// The refusal of a server that proves nothing.
pub(crate) fn unproven(server: &UnprovenServer, found: &str) -> Failure {
    Failure::usage(format!(
        "nothing proves that {server} is the server to clone, and a clone shows all data: its certificate has the fingerprint {found}"
    ))
    .hint(format!(
        "compare it with that of server-cert.pem on the server, then set ssl-fp = {found}; or give the authority with --ssl-ca, without an ssl-mode that verifies nothing"
    ))
}
