//! `copy`: copies a verified backup to another place.

use xb_backup::{CopyReport, CopyRequest};
use xb_cli::Failure;
use xb_repo::root::Root;

use crate::args::RunOptions;
use crate::args::catalogue::CopyArgs;
use crate::commands::context::{Context, resources};
use crate::location::copy_place;
use crate::report;

impl Context {
    pub(crate) fn copy(&self, args: &CopyArgs) -> Result<(), Failure> {
        let (from, name) = self.resolve(&args.source, &args.common)?;
        let keys = crate::keys::opening(false, &args.opening, &self.log)?;
        let stores = (&args.common.store, &args.destination);
        let place = copy_place((&args.source.name, &args.to), &name, stores, &args.common.run)?;
        if place.same {
            return Err(Failure::usage("source and destination are the same backup"));
        }
        let lock = args.retain.lock()?;
        let request = CopyRequest {
            name,
            to: place.name,
            options: args.options,
            keys,
            accept: args.opening.accept,
            within_store: place.within_store.then_some(xb_uploader::Store::MAX_COPY),
            lock,
        };
        let to = self.taking_over(place.root, args.take_over);
        self.copy_backup(from, to, request, &args.common.run).map(drop)
    }

    /// Copies one backup, and reports it.
    pub(crate) fn copy_backup(
        &self,
        from: Root,
        to: Root,
        request: CopyRequest,
        run: &RunOptions,
    ) -> Result<CopyReport, Failure> {
        let lock = request.lock;
        let copying = |session| async move { xb_backup::copy(&session, &to, request).await };
        let (done, end) = self.with_session("copy", run, (from, resources(run)), copying)?;
        report::copied(&self.log, &done, &end);
        report::locked(&self.log, lock.as_ref(), done.not_locked.as_deref());
        Ok(done)
    }
}
