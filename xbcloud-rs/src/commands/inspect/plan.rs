//! `plan`: estimates objects, requests, memory and cost before the first run.

use xb_backup::{CancelToken, OrInterrupted as _, put_plan};
use xb_cli::Failure;
use xb_pipeline::{ObjectSize, UnpackPlan};
use xb_repo::manifest::{Layout, Manifest};

use crate::args::PlanArgs;
use crate::commands::context::{Context, DEFAULT_CHUNK, memory, put_resources};
use crate::commands::inspect::cost_report::{Failures, PlanReport};
use crate::commands::inspect::price_options::{priced, provider_of};
use crate::location::{backup_place, locate};
use crate::report;

impl Context {
    pub(crate) fn plan(&self, args: &PlanArgs) -> Result<(), Failure> {
        report::can_print()?;
        let like = match &args.like {
            None => None,
            Some(name) => {
                let (root, name) = backup_place(name, &args.common, false)?;
                let find = |_, cancel: CancelToken| async move {
                    cancel.or(xb_repo::list::describe(&root, &name)).await
                };
                Some(self.with_progress("plan", &args.common.run, None, find)?.0.manifest)
            }
        };
        let layout = like.as_ref().map(|manifest| manifest.layout).or(args.layout);
        let layout = layout.unwrap_or(Layout::Packed);
        let cut_as = like.as_ref().and_then(|manifest| manifest.classic.as_ref());
        let chunk_size = args.chunk_size.map(|size| size.bytes());
        let chunk_size = chunk_size.or(cut_as.map(|classic| classic.chunk_size));
        let fixed_size = layout == Layout::Classic && chunk_size.is_some();
        let chunk_size = chunk_size.unwrap_or(DEFAULT_CHUNK);
        let run = &args.common.run;
        let object_size = ObjectSize::new(chunk_size);
        let resources = put_resources(run, run.threads, object_size, 0);
        let request = xb_tune::EstimateRequest {
            stored: like.as_ref().map_or_else(
                || args.size.map_or(0, |size| size.bytes()),
                |manifest| manifest.stored_bytes,
            ),
            layout,
            fixed_size,
            files: like.as_ref().map_or(args.files, |manifest| manifest.files),
            sealed: like.as_ref().map_or(args.sealed, Manifest::is_sealed),
            put: put_plan(resources, object_size, fixed_size).map_err(report::failure)?,
            get: UnpackPlan::new(memory(run), resources.threads, resources.parallel)
                .map_err(|error| report::failure(error.into()))?,
        };
        let estimate = xb_tune::estimate(&request);
        let plan = PlanReport {
            estimate,
            prices: priced(&args.prices, price_default(args)?)?,
            failure: args.failure_rate.map(|rate| Failures::of(&estimate, rate, &args.common.run)),
        };
        report::printed(plan.print(args.common.run.json))
    }
}

/// The prices that apply if no option names any: by the kind of the store, if one is named.
fn price_default(args: &PlanArgs) -> Result<Option<&'static str>, Failure> {
    let store = &args.common.store;
    let place = match (&args.like, &store.root, &store.storage) {
        (Some(like), _, _) => like,
        (None, None, None) => return Ok(Some("aws")),
        _ => "",
    };
    match locate(place, store) {
        Ok(location) => provider_of(&location.place, &args.common),
        Err(_) => Ok(Some("aws")),
    }
}
