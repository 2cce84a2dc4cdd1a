//! `plan`: estimates objects, requests and memory before the first run.

use xb_backup::{CancelToken, Layout, Manifest};
use xb_cli::Failure;
use xb_pipeline::UnpackPlan;

use crate::args::{LayoutArg, PlanArgs};
use crate::commands::context::{Context, DEFAULT_CHUNK, DEFAULT_PARALLEL, memory};
use crate::limits::default_threads;
use crate::place::backup_place;
use crate::report;

impl Context {
    pub(crate) fn plan(&self, args: &PlanArgs) -> Result<(), Failure> {
        let like = match &args.like {
            None => None,
            Some(name) => {
                let (root, name) = backup_place(name, &args.common, false)?;
                let find = |_, mut stop: CancelToken| async move {
                    stop.or(xb_backup::describe(&root, &name)).await
                };
                Some(self.with_progress("plan", &args.common.run, None, find)?.0)
            }
        };
        let layout = match (&like, args.layout) {
            (Some(manifest), _) => manifest.layout,
            (None, Some(LayoutArg::Classic)) => Layout::Classic,
            (None, _) => Layout::Packed,
        };
        let cut_as = like.as_ref().and_then(|manifest| manifest.classic.as_ref());
        let chunk_size = args.chunk_size.map(|size| size.bytes());
        let chunk_size = chunk_size.or(cut_as.map(|classic| classic.chunk_size));
        let recut = layout == Layout::Classic && chunk_size.is_some();
        let chunk_size = chunk_size.unwrap_or(DEFAULT_CHUNK);
        let (memory, threads) =
            (memory(&args.common.run), args.common.run.threads.unwrap_or_else(default_threads));
        let parallel = args.common.run.parallel.unwrap_or(DEFAULT_PARALLEL);
        let request = xb_backup::EstimateRequest {
            stored: like.as_ref().map_or_else(
                || args.size.map_or(0, |size| size.bytes()),
                |manifest| manifest.stored_bytes,
            ),
            layout,
            recut,
            files: like.as_ref().map_or(args.files, |manifest| manifest.files),
            sealed: like.as_ref().map_or(args.sealed, Manifest::is_sealed),
            put: xb_backup::put_plan(memory, chunk_size, threads, parallel, recut)
                .map_err(report::failure)?,
            get: UnpackPlan::new(memory, threads, parallel)
                .map_err(|error| report::failure(error.into()))?,
        };
        report::printed(report::estimate(&xb_backup::estimate(&request), args.common.run.json))?;
        Ok(())
    }
}
