//! `rescue`: single tables of a backup, as a dump or into a running server.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufWriter;
use std::os::fd::AsFd as _;

use xb_backup::{GetRequest, RescueReport, RescueRequest, RescueUntil, UntilRequest};
use xb_cli::{Failure, FailureContext as _, Log, ProgressEnd, format_count};
use xb_repo::names::BackupName;

use crate::args::rescue::RescueArgs;
use crate::commands::context::{Context, resources};
use crate::commands::program_output::ProgramOutput;
use crate::commands::state_dir::state_dir;
use crate::commands::transfer::restore::{Origins, told};
use crate::report;

/// Buffer of a dump, in bytes.
const BUFFER: usize = 1 << 20;

impl Context {
    pub(crate) fn rescue(&self, args: &RescueArgs) -> Result<(), Failure> {
        if args.tables.into.is_none() {
            xb_cli::refuse_terminal_output(
                "redirect it: xbcloud-rs rescue ... > dump.sql, or name a server with --into",
            )?;
        }
        let options = &args.until;
        let (root, name, server) = match &options.until {
            Some(_) => {
                let Origins { root, name, server } = self.from(&args.source, &args.common)?;
                (root, name, server)
            }
            None => {
                let (root, name) = self.resolve(&args.source, &args.common)?;
                (root, Some(name), None)
            }
        };
        let keys = crate::keys::opening(true, &args.opening, &self.log)?;
        let keyed = !keys.is_empty();
        let stop = options.until.as_ref().map(|stop| UntilRequest {
            name: name.clone(),
            server,
            stop: stop.clone(),
            leave_out: BTreeSet::new(),
            may_leave_out_ddl: false,
            state: state_dir(&args.common.run),
            accept_lost_end: options.accept_lost_end,
        });
        let any = BackupName::new("any").map_err(|error| Failure::new(error.to_string()))?;
        let accept = args.opening.accept;
        let mut get = GetRequest { accept, ..GetRequest::new(name.unwrap_or(any), keys) };
        let (tables, upgrade) = (args.tables.clone(), options.upgrade);
        let (run, log) = (&args.common.run, &self.log);
        let output = ProgramOutput::new(log, run, "rescue", get.name.as_str());
        let lines = output.on_line();
        let stdout = std::io::stdout().as_fd().try_clone_to_owned().stage("output")?;
        let dump = BufWriter::with_capacity(BUFFER, File::from(stdout));
        let rescued_tables =
            self.with_session("rescue", run, root, resources(run), |session| async move {
                let mut until = None;
                if let Some(stop) = stop {
                    let plan = xb_backup::plan_until(&session, &stop, &mut get).await?;
                    told(log, &plan);
                    until = Some(RescueUntil { plan, upgrade });
                }
                let GetRequest { name, keys, .. } = get;
                let request = RescueRequest { name, keys, accept, tables, until };
                xb_backup::rescue(&session, request, dump, &lines).await
            });
        let (found, end) = rescued_tables.map_err(|failure| output.explain(failure))?;
        rescued(&self.log, args, &found, &end);
        if let (None, Some(finished), Some((name, _))) =
            (&found.replayed, found.finished, found.restored.last())
        {
            self.log.info(format!(
                "the rows are those of {name}, which ended at {}: later writes are not in them",
                finished.strftime("%Y-%m-%dT%H:%M:%SZ")
            ));
        }
        for (name, restored) in &found.restored {
            report::unsealed(&self.log, keyed, name, &restored.get);
        }
        match found.not_rescued.is_empty() {
            true => Ok(()),
            false => Err(Failure::new(format!(
                "the other tables are rescued, but not {}",
                found.not_rescued.join("; nor ")
            ))),
        }
    }
}

fn rescued(log: &Log, args: &RescueArgs, found: &RescueReport, end: &ProgressEnd) {
    for table in &found.tables {
        log.event(
            "rescued",
            &serde_json::json!({
                "table": table.table, "new_name": table.new_name, "rows": table.rows, "left_out": table.left_out,
            }),
        );
        let proof = if args.tables.into.is_some() { ", compared with the backup" } else { "" };
        let without = match table.left_out.is_empty() {
            true => String::new(),
            false => format!("; without its {}", table.left_out.join(" and ")),
        };
        let now = match table.new_name == table.table {
            true => "there again".to_owned(),
            false => format!("now {}", table.new_name),
        };
        let rows = format_count(table.rows, "row");
        log.info(format!("{} is {now}: {rows}{proof}{without}", table.table));
    }
    if !found.passed_over.is_empty() {
        let names = found.passed_over.join(", ");
        log.info(format!("left out, since they have no rows of their own: {names}"));
    }
    if let Some(replayed) = &found.replayed {
        log.event(
            "replayed",
            &serde_json::json!({
                "to": replayed.position.to_string(), "gtids": replayed.gtids.to_string(),
                "transactions": replayed.transactions, "seconds": replayed.seconds.as_secs_f64(),
            }),
        );
        log.info(format!(
            "the rows are those at {} ({}): {} replayed in {:.1} s",
            replayed.position,
            replayed.gtids,
            format_count(replayed.transactions, "transaction"),
            replayed.seconds.as_secs_f64()
        ));
    }
    found.remarks.iter().for_each(|remark| log.warn(remark));
    let files = found.restored.iter().map(|(_, restored)| restored.files).sum();
    log.info(format!(
        "rescued {} in {:.1} s; {} of the backup restored for that",
        format_count(found.tables.len() as u64, "table"),
        end.elapsed.as_secs_f64(),
        format_count(files, "file")
    ));
}
