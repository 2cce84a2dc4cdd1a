//! `gc`: shows, and with `--yes` removes, what dead runs have left.

use std::time::Duration;

use xb_backup::OrInterrupted as _;
use xb_cli::Failure;

use crate::args::GcArgs;
use crate::commands::context::Context;
use crate::location::root_place;
use crate::report;

impl Context {
    pub(crate) fn gc(&self, args: &GcArgs) -> Result<(), Failure> {
        let root = root_place(args.root.place.as_deref(), &args.common)?;
        let removes = args.yes && !args.dry_run;
        let age = Duration::from_secs(args.older_than * 3600);
        let (findings, _) =
            self.with_progress("gc", &args.common.run, None, |_, cancel| async move {
                if !removes {
                    return cancel.or(xb_backup::find_orphaned(&root, age)).await;
                }
                let mut found = cancel.or(xb_backup::find_orphaned_to_remove(&root, age)).await?;
                for left in cancel.or(xb_backup::remove_all(&root, &mut found)).await? {
                    self.log.info(format!("{}: skipped, its run is alive again", left.name));
                }
                Ok(found)
            })?;
        report::printed(report::orphaned(&self.log, &findings, removes, args.common.run.json))?;
        Ok(())
    }
}
