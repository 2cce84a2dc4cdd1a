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
        let root = root_place(args.place.as_deref(), &args.common)?;
        let removes = args.yes && !args.dry_run;
        let age = Duration::from_secs(args.older_than * 3600);
        let (leftovers, _) =
            self.with_progress("gc", &args.common.run, None, |_, cancel| async move {
                let found = match removes {
                    true => cancel.or(xb_backup::leftovers_to_remove(&root, age)).await?,
                    false => cancel.or(xb_backup::leftovers(&root, age)).await?,
                };
                if removes {
                    for dead in &found.dead {
                        if !cancel.or(xb_backup::remove(&root, dead)).await? {
                            self.log
                                .info(format!("{}: skipped, its run is alive again", dead.name));
                        }
                    }
                    cancel.or(xb_backup::abort_uploads(&root, &found)).await?;
                    cancel.or(xb_backup::remove_measurements(&root, &found)).await?;
                }
                Ok(found)
            })?;
        report::printed(report::leftovers(&self.log, &leftovers, removes, args.common.run.json))?;
        Ok(())
    }
}
