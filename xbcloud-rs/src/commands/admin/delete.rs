//! `delete`: shows what would be removed, asks, and removes exactly that.

use xb_backup::{CancelToken, DeletionPlan, OrInterrupted as _, Session};
use xb_cli::Failure;

use crate::args::DeleteArgs;
use crate::commands::context::{Context, resources};
use crate::commands::state_dir::remembering;
use crate::location::backup_place;
use crate::report;

impl Context {
    pub(crate) fn delete(&self, args: &DeleteArgs) -> Result<(), Failure> {
        if !args.files.is_empty() {
            return self.delete_files(args);
        }
        if args.dry_run {
            let doomed = self.doomed(args)?;
            return report::printed(report::doomed(&self.log, &doomed, args.common.run.json));
        }
        let mut shown = None;
        if !args.yes && !self.stock {
            let doomed = self.doomed(args)?;
            confirm(&doomed, args.common.run.json)?;
            shown = Some(doomed);
        }
        // Connections belong to the runtime that made them.
        let (root, name) = backup_place(&args.name, &args.common, false)?;
        let root = self.taking_over(root, args.take_over);
        let root = remembering(&self.log, &root, &args.common.run);
        let resources = resources(&args.common.run);
        let run = &args.common.run;
        let (deleted, _) =
            self.with_progress("delete", run, None, |observer, cancel| async move {
                let session = Session { root, resources, observer, cancel };
                let Session { root, cancel, .. } = &session;
                let note = self.note_of(root, &name, cancel, run).await?;
                let deleted = match (shown, args.force) {
                    (Some(shown), _) => xb_backup::delete_shown(&session, &shown).await,
                    (None, true) => cancel.or(xb_backup::delete(root, &name)).await,
                    (None, false) => xb_backup::delete_unless_needed(&session, &name).await,
                }?;
                if let Some((notes, gone)) = note {
                    let _ = notes.forget_one(root.identity(), &gone);
                }
                Ok(deleted)
            })?;
        if deleted.left > 0 {
            self.log.warn(format!(
                "removed the unreadable manifest, but left {}; `gc` removes what is left once it is a day old",
                report::objects(deleted.left)
            ));
        }
        self.log.info(format!("removed the backup and {}", report::objects(deleted.objects)));
        Ok(())
    }

    /// Removes single files.
    fn delete_files(&self, args: &DeleteArgs) -> Result<(), Failure> {
        if !args.yes && !self.stock {
            return Err(Failure::usage("single files are removed only with --yes")
                .hint("the manifest is removed, too, so the rest is no longer a complete backup"));
        }
        let (root, name) = backup_place(&args.name, &args.common, false)?;
        let root = self.taking_over(root, args.take_over);
        let root = remembering(&self.log, &root, &args.common.run);
        let remove = |_, cancel: CancelToken| async move {
            cancel.or(xb_backup::delete_files(&root, &name, &args.files)).await
        };
        let (objects, _) = self.with_progress("delete", &args.common.run, None, remove)?;
        self.log.info(format!("removed {}", report::objects(objects)));
        Ok(())
    }

    /// Plans a delete.
    fn doomed(&self, args: &DeleteArgs) -> Result<DeletionPlan, Failure> {
        let (root, name) = backup_place(&args.name, &args.common, false)?;
        let root = self.taking_over(root, args.take_over);
        let root = remembering(&self.log, &root, &args.common.run);
        let plan = |_, cancel: CancelToken| async move {
            cancel.or(xb_backup::doomed(&root, &name, !args.force)).await
        };
        Ok(self.with_progress("delete", &args.common.run, None, plan)?.0)
    }
}

/// Asks at a terminal whether to remove the backup.
fn confirm(doomed: &DeletionPlan, json: bool) -> Result<(), Failure> {
    let what = format!("{}: {}", doomed.name, report::going(doomed));
    let question = format!("would remove {what}\nRemove it? [y/N] ");
    // With `--json`, the reader is a program and cannot answer.
    let answer = if json { None } else { xb_cli::ask(&question)? };
    match answer {
        Some(true) => Ok(()),
        Some(false) => {
            Err(Failure::new(format!("{} is kept: you did not confirm the removal", doomed.name)))
        }
        None => Err(Failure::usage(format!(
            "would remove {what}, but there is no terminal to ask for confirmation"
        ))
        .hint("add --yes to remove it, or --dry-run to list the objects")),
    }
}
