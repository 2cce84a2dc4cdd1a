//! `show`: shows the files of a backup and its source.

use std::io::Write as _;

use xb_backup::{BackupDescription, OrInterrupted as _, ShowRequest};
use xb_cli::{Failure, format_size, printable};

use crate::args::catalogue::ShowArgs;
use crate::cache;
use crate::commands::context::{Context, memory};
use crate::report::{self, details};

impl Context {
    pub(crate) fn show(&self, args: &ShowArgs) -> Result<(), Failure> {
        report::can_print()?;
        let cache = cache::of_backup(&args.source.name, &args.common)?;
        let (root, name) = self.resolve_cached(&args.source, &args.common, cache.as_ref())?;
        let request = ShowRequest {
            name,
            keys: crate::keys::opening(false, &args.opening, &self.log)?,
            accept: args.opening.accept,
            memory: memory(&args.common.run),
        };
        let (mut shown, _) =
            self.with_progress("show", &args.common.run, None, |_, cancel| async move {
                cancel.or(xb_backup::show(&root, &request)).await
            })?;
        if args.no_files {
            (shown.content, shown.why_not) = (None, None);
        }
        report::printed(print_shown(&shown, args.common.run.json))
    }
}

fn print_shown(shown: &BackupDescription, json: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, shown)?;
        return writeln!(out);
    }
    let l = &shown.listing;
    writeln!(out, "{:12} {}", "name", l.name)?;
    writeln!(out, "{:12} {}", "state", report::state(l))?;
    if let Some(finished) = l.finished {
        writeln!(out, "{:12} {}", "finished", finished.strftime("%Y-%m-%d %H:%M:%S UTC"))?;
    }
    if let (Some(bytes), Some(objects)) = (l.stored_bytes, l.objects) {
        writeln!(out, "{:12} {} in {}", "stored", format_size(bytes), report::objects(objects))?;
    }
    let storage = &shown.storage;
    let how = storage.codecs.iter().chain(&storage.cipher).map(String::as_str).collect::<Vec<_>>();
    if !how.is_empty() {
        writeln!(out, "{:12} {}", "encoding", printable(&how.join(", ")))?;
    }
    for (what, value) in details(l) {
        writeln!(out, "{what:12} {}", printable(&value))?;
    }
    let broken = l.broken.as_ref().map(|why| format!("cannot be restored: {why}"));
    let open = l.open_question();
    let notes = broken.as_deref().into_iter().chain(open.as_deref()).chain(l.problem.as_deref());
    for why in notes.chain(shown.why_not) {
        writeln!(out, "{:12} {}", "note", printable(why))?;
    }
    for file in shown.content.iter().flatten() {
        match (file.size, file.stored_bytes, file.objects) {
            (Some(size), ..) => writeln!(out, "{size:>15}  {}", file.path)?,
            (None, bytes, objects) => writeln!(
                out,
                "{:>15}  {}  ({})",
                bytes.unwrap_or(0),
                file.path,
                report::objects(objects.unwrap_or(0))
            )?,
        }
    }
    Ok(())
}
