//! The connection, set up according to settings and server.

use std::fmt::Display;
use std::io::ErrorKind;
use std::num::{NonZeroU8, NonZeroU64};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::cancel::{CancelHook, CancelReason, CancelToken};
use crate::context::Context;
use crate::contract::args::{Args, Product, Role};
use crate::contract::settings::{Settings, Verify};
use crate::error::SstError;
use crate::server::backup_version;
use xb_wire::{
    Announcement, BindError, Certificates, Donor, Event, HostPort, Joiner, Limits, Listener,
    Observer, Outgoing, Security, TlsMode, TransferError, connect as connect_to, decline,
};

/// Certificates that Percona's server creates in its data directory.
const PERCONAS: [&str; 3] = ["server-cert.pem", "server-key.pem", "ca.pem"];

/// Time for which a donor retries while the joiner's port is closed.
const REFUSED: Duration = Duration::from_secs(10);

/// Returns a token for the connection that is cancelled with the transfer, for the same reason: the peer gets it
/// as text.
fn for_wire(cancel: &CancelToken) -> (xb_process::CancelToken<String>, CancelHook) {
    let for_wire = xb_process::CancelToken::new();
    let (from, to) = (cancel.clone(), for_wire.clone());
    let hook = cancel.on_cancel(move || {
        to.cancel(from.reason().map_or_else(String::new, |reason| reason.to_string()));
    });
    (for_wire, hook)
}

fn limits(settings: &Settings) -> Limits {
    let mut limits = Limits::default();
    limits.resume = settings.resume_limit;
    // A joiner that has ended does not listen again.
    limits.refused = REFUSED.min(settings.resume_limit);
    limits.rate = settings.rlimit.and_then(NonZeroU64::new);
    let connections = settings.connections.and_then(|n| u8::try_from(n).ok());
    limits.connections = connections.and_then(NonZeroU8::new);
    limits
}

/// The last donor that a joiner has refused, and why. Other programs that reach the port are none.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastRefusal(Arc<Mutex<Option<String>>>);

impl LastRefusal {
    fn note(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    /// Returns the cause why no donor was accepted.
    pub(crate) fn cause(&self, error: TransferError) -> SstError {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(what) => SstError::RefusedDonor { what, then: Box::new(error.into()) },
            None => error.into(),
        }
    }
}

/// Logs the transport's events. On the donor, a failure also ends the backup, which may produce no
/// output at that moment.
fn observer(context: &Context, refused: LastRefusal) -> Observer {
    let Context { args, error_log, cancel, .. } = context;
    let (role, error_log, cancel) = (args.role, error_log.clone(), cancel.clone());
    Observer::new(move |event| match event {
        Event::Failed { .. } => {
            if role == Role::Donor {
                // In another thread: the one that reports the event holds locks that the cancel
                // hooks need.
                let cancel = cancel.clone();
                std::thread::spawn(move || cancel.cancel(CancelReason::Elsewhere));
            }
        }
        Event::RejectedPeer { peer, what, spoke } => {
            error_log.warn(event);
            if *spoke {
                refused.note(format!("{what} (connection from {peer})"));
            }
        }
        Event::Lost { .. } => error_log.warn(event),
        event => error_log.info(event),
    })
}

/// Returns the protection of the connection, and logs one line about it.
fn security(context: &Context) -> Result<Security, SstError> {
    let Context { args, settings, error_log, .. } = context;
    let tls = &settings.tls;
    if tls.plain {
        error_log.warn(
            "THE TRANSFER IS NEITHER ENCRYPTED NOR AUTHENTICATED (wire-security=plain): anyone who reaches the port can read it, or send another database",
        );
        return Ok(Security::Plain);
    }
    let files = match tls.earlier {
        Some(_) => tls.of_server(backup_version::of_server(context)?.as_deref()),
        None => &tls.files,
    };
    let certificates = match &files.cert {
        Some(cert) => Some(Certificates {
            certificate: cert.clone(),
            key: files.key.clone().unwrap_or_else(|| cert.clone()),
            authority: files.ca.clone(),
            mode: match files.verify {
                Verify::Unsaid => TlsMode::Required,
                Verify::Ca => TlsMode::VerifyCa,
                Verify::Identity => TlsMode::VerifyIdentity,
            },
        }),
        None if args.product == Product::Percona => perconas(&context.layout.datadir)?,
        None => None,
    };
    let Some(certificates) = certificates else {
        if files.verify != Verify::Unsaid {
            return Err(SstError::Security(
                "ssl-mode or encrypt requires certificates, but this node has none: set tcert and tkey, or ssl-cert and ssl-key"
                    .into(),
            ));
        }
        demand_secret(args, settings)?;
        error_log.info(match args.role {
            Role::Joiner if !has_secret(args) => {
                "security: TLS 1.3 with a one-time certificate; THE DONOR IS NOT AUTHENTICATED (wire-security=any-donor)"
            }
            Role::Joiner => {
                "security: TLS 1.3 with a one-time certificate; the donor must prove a one-time secret"
            }
            Role::Donor => "security: TLS 1.3 with the certificate that the joiner announced",
        });
        return Ok(Security::OneTime);
    };
    if certificates.mode == TlsMode::Required {
        demand_secret(args, settings)?;
    }
    error_log.info(format_args!(
        "security: TLS 1.3 with the certificate {}, {}",
        certificates.certificate.display(),
        match certificates.mode {
            TlsMode::Required =>
                "the peer's certificate is checked only against its server's announcement",
            // A joiner does not know which node its donor is.
            TlsMode::VerifyIdentity if args.role == Role::Donor =>
                "the peer's certificate must be signed by the authority and name its host",
            TlsMode::VerifyCa | TlsMode::VerifyIdentity =>
                "the peer's certificate must be signed by the authority",
        }
    ));
    Ok(Security::Certificates(certificates))
}

/// Returns whether the server's channel carries a secret.
fn has_secret(args: &Args) -> bool {
    args.product == Product::MariaDb
}

/// If nothing else authenticates the donor, the operator must allow that explicitly.
fn demand_secret(args: &Args, settings: &Settings) -> Result<(), SstError> {
    if args.role == Role::Joiner && !has_secret(args) && !settings.tls.any_donor {
        return Err(SstError::Security(
            "the donor cannot be authenticated, because this server passes no secret to it: set ssl-cert, ssl-key and ssl-ca with ssl-mode=VERIFY_CA, or accept any donor with wire-security=any-donor in [sst]"
                .into(),
        ));
    }
    Ok(())
}

/// Certificates that Percona's servers use for their own traffic.
fn perconas(datadir: &Path) -> Result<Option<Certificates>, SstError> {
    let paths = PERCONAS.map(|name| datadir.join(name));
    for path in &paths {
        if !xb_files::exists(path).map_err(SstError::io("look at", path))? {
            return Ok(None);
        }
    }
    let [certificate, key, authority] = paths;
    let authority = Some(authority);
    Ok(Some(Certificates { certificate, key, authority, mode: TlsMode::VerifyCa }))
}

/// Listens on the address that the server gives.
pub(crate) fn listen(
    context: &Context,
    refused: &LastRefusal,
) -> Result<(Listener, CancelHook), SstError> {
    let address: HostPort = context
        .args
        .address
        .parse()
        .map_err(|error| SstError::Address(format!("wsrep_sst_receive_address: {error}")))?;
    let (cancel, hooked) = for_wire(&context.cancel);
    let joiner = Joiner {
        security: security(context)?,
        secret: has_secret(&context.args),
        limits: limits(&context.settings),
        cancel,
        observer: observer(context, refused.clone()),
        ..Joiner::default()
    };
    match Listener::bind(&address, joiner.clone()) {
        Err(BindError::Listen { source, .. }) if source.kind() == ErrorKind::AddrNotAvailable => {
            // Behind network address translation, as in containers.
            context.error_log.warn(format_args!(
                "{} is not an address of this machine; announcing it, but listening on all addresses",
                address.host()
            ));
            let all = if address.host().contains(':') { "[::]" } else { "0.0.0.0" };
            let all: HostPort = format!("{all}:{}", address.port())
                .parse()
                .map_err(|_| SstError::Address("there is no address to listen on".into()))?;
            let joiner = Joiner { announce_as: Some(address), ..joiner };
            Ok((Listener::bind(&all, joiner)?, hooked))
        }
        bound => Ok((bound?, hooked)),
    }
}

/// Connects to the address that the joiner announced.
pub(crate) fn connect(context: &Context, offer: &[u8]) -> Result<(Outgoing, CancelHook), SstError> {
    let announcement = Announcement::parse(&context.args.address, context.remote_auth.as_deref())
        .map_err(SstError::Request)?;
    // The joiner cannot know what differs on this node.
    let tell = |why: &dyn Display| decline(&announcement, &why.to_string());
    let (cancel, hooked) = for_wire(&context.cancel);
    let donor = Donor {
        security: security(context).inspect_err(|error| tell(error))?,
        limits: limits(&context.settings),
        cancel,
        observer: observer(context, LastRefusal::default()),
    };
    let connected = connect_to(&announcement, offer, donor).inspect_err(|error| {
        // Others are errors of a connection, or of the joiner.
        if let TransferError::Security(error) = error {
            tell(error);
        }
    });
    Ok((connected?, hooked))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without them, a donor verifies nothing but the joiner's announcement.
    #[test]
    fn certificates_that_cannot_be_looked_at_are_not_missing() {
        let dir = tempfile::tempdir().unwrap();
        assert!(perconas(dir.path()).unwrap().is_none());
        PERCONAS.iter().for_each(|name| std::fs::write(dir.path().join(name), "").unwrap());
        assert!(perconas(dir.path()).unwrap().is_some());
        let looped = dir.path().join("loop");
        std::os::unix::fs::symlink("loop", &looped).unwrap();
        assert!(perconas(&looped).is_err());
    }
}
