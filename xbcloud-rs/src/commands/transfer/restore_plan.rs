//! `restore --dry-run`: shows what a restore would read, and writes nothing.

use std::io::Write as _;

use xb_backup::OrInterrupted as _;
use xb_cli::{Failure, format_count, format_size, printable};
use xb_repo::chain::Link;

use crate::args::RestoreArgs;
use crate::commands::context::Context;
use crate::report;

impl Context {
    pub(super) fn restore_plan(&self, args: &RestoreArgs) -> Result<(), Failure> {
        report::can_print()?;
        let (root, name) = self.resolve(&args.source, &args.common)?;
        let run = &args.common.run;
        let (chain, _) = self.with_progress("plan", run, None, |_, cancel| async move {
            cancel.or(xb_repo::chain::chain(&root, &name)).await
        })?;
        report::printed(shown(&chain))?;
        self.log.info("nothing was restored: leave out --dry-run to restore");
        Ok(())
    }
}

/// The backups in the order of their restore.
fn shown(chain: &[Link]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let mut files = 0;
    let (mut stored, mut stream) = (0, 0);
    for link in chain {
        let manifest = &link.stored.manifest;
        let kind = if manifest.is_incremental() { "incremental" } else { "full" };
        let finished = manifest.finished.strftime("%Y-%m-%d %H:%M:%S UTC");
        let size = format_size(manifest.stream_bytes);
        writeln!(out, "{}  {finished}  {kind}, {size}", printable(&manifest.name))?;
        files += manifest.files;
        stored += manifest.stored_bytes;
        stream += manifest.stream_bytes;
    }
    writeln!(
        out,
        "would read {} of {}, and write {} of {}",
        format_size(stored),
        format_count(chain.len() as u64, "backup"),
        format_size(stream),
        format_count(files, "file")
    )?;
    out.flush()
}
