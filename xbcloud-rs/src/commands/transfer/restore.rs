//! `restore`: writes a backup into files.

use xb_backup::GetRequest;
use xb_cli::Failure;

use crate::args::RestoreArgs;
use crate::commands::context::{Context, resources};
use crate::commands::program_output::ProgramOutput;
use crate::commands::transfer::get::{get_request, selection};
use crate::commands::transfer::restore_target::{ready, resumable, target};
use crate::report;

impl Context {
    pub(crate) fn restore(&self, args: &RestoreArgs) -> Result<(), Failure> {
        if let Some(stop) = &args.until.until {
            return self.restore_until(args, stop);
        }
        if args.until.dry_run {
            return self.restore_plan(args);
        }
        let target = target(args)?;
        let (root, name) = self.resolve(&args.source, &args.common)?;
        let keys = crate::keys::opening(true, &args.opening, &self.log)?;
        let keyed = !keys.is_empty();
        self.reporting.name(&name);
        let ready = ready(args, target);
        let request = get_request(name, keys);
        let request = GetRequest {
            files: selection(&[], &args.files)?.with_what_prepare_needs(ready.prepare().is_some()),
            accept: args.opening.accept,
            ..request
        };
        let output = ProgramOutput::new(
            &self.log,
            args.until.state_dir.as_deref(),
            "restore",
            request.name.as_str(),
        );
        let (on_line, how, run) = (output.on_line(), args.how, &args.common.run);
        let outcome =
            self.with_session("restore", run, (root, resources(run)), |session| async move {
                xb_backup::restore_chain(&session, request, target, how, &ready, &on_line).await
            });
        let (report, end) =
            outcome.map_err(|failure| output.explain(resumable(failure, target)))?;
        self.reporting.restore(&report);
        report::restore_done(&self.log, (args, target), &report, &end);
        if let Some(path) = output.path() {
            self.log.info(format!("output of the programs: {}", path.display()));
        }
        report::next_step(&self.log, (args, target), &report);
        for (name, restored) in &report.restored {
            report::unsealed(&self.log, keyed, name, &restored.get);
        }
        Ok(())
    }
}
