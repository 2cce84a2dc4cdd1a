//! `pin`, `unpin` and `accept`.

use xb_backup::OrInterrupted as _;
use xb_cli::Failure;
use xb_repo::records::Accepted;

use crate::args::catalogue::{AcceptArgs, PinArgs, UnpinArgs};
use crate::commands::context::{Context, parallel};
use crate::location::backup_place;
use crate::report;

impl Context {
    pub(crate) fn pin(&self, args: &PinArgs) -> Result<(), Failure> {
        let (root, name) = backup_place(&args.name, &args.common, false)?;
        let reason = args.reason.clone();
        let (lock, parallel) = (args.retain.lock()?, parallel(&args.common.run));
        let pinning = |_, cancel: xb_backup::CancelToken| async move {
            let locked = match &lock {
                Some(lock) => Some(cancel.or(xb_backup::lock(&root, &name, lock, parallel)).await?),
                None => None,
            };
            cancel.or(xb_repo::pin::pin(&root, &name, reason.as_deref())).await?;
            Ok(locked.and_then(|locked| locked.incomplete))
        };
        let (not_locked, _) = self.with_progress("pin", &args.common.run, None, pinning)?;
        report::locked(&self.log, lock.as_ref(), not_locked.as_deref());
        self.log.info("pinned: prune and delete skip this backup until you unpin it");
        Ok(())
    }

    pub(crate) fn unpin(&self, args: &UnpinArgs) -> Result<(), Failure> {
        let (root, name) = backup_place(&args.name, &args.common, false)?;
        let (was, _) =
            self.with_progress("unpin", &args.common.run, None, |_, cancel| async move {
                cancel.or(xb_repo::pin::unpin(&root, &name)).await
            })?;
        self.log.info(if was.is_some() { "unpinned" } else { "the backup was not pinned" });
        Ok(())
    }

    pub(crate) fn accept(&self, args: &AcceptArgs) -> Result<(), Failure> {
        if args.begun_anew {
            return self.accept_begun_anew(Some(&args.name), &args.common);
        }
        let (root, name) = backup_place(&args.name, &args.common, false)?;
        if args.undo {
            let (was, _) =
                self.with_progress("accept", &args.common.run, None, |_, cancel| async move {
                    cancel.or(xb_repo::pin::take_back(&root, &name)).await
                })?;
            let was = if was.is_some() { "no longer accepted" } else { "it was not accepted" };
            self.log.info(was);
            return Ok(());
        }
        let reason = args.reason.clone();
        let (about, _) =
            self.with_progress("accept", &args.common.run, None, |_, cancel| async move {
                cancel.or(xb_repo::pin::accept(&root, &name, reason.as_deref())).await
            })?;
        let said = about.into_iter().map(|about| match about {
            Accepted::Size => "its size counts as usual from now on",
            Accepted::Base => "its base may be elsewhere",
        });
        self.log.info(format!("accepted: {}", said.collect::<Vec<_>>().join(", and ")));
        Ok(())
    }
}
