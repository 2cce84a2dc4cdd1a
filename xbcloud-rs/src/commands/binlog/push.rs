//! `binlog push`: archives the log files of a server that is lost.

use std::sync::Arc;
use std::time::Duration;

use xb_cli::{Failure, format_count, format_size};

use crate::args::binlog::PushArgs;
use crate::commands::binlog::watched::ReceiverStatus;
use crate::commands::context::{Context, resources};
use crate::location::root_place;

impl Context {
    pub(super) fn push_binlog(&self, args: &PushArgs) -> Result<(), Failure> {
        let settings = self.archive_settings(&args.archive, &args.common.run, Duration::MAX)?;
        let server = settings.server.clone();
        let root = root_place(Some(&args.place), &args.common)?;
        let watched =
            Arc::new(ReceiverStatus::new(&self.log, &args.place, &server, None, Vec::new()));
        let (files, is_new, run) = (args.files.clone(), args.new_archive, &args.common.run);
        let work = |session: xb_backup::Session| async move {
            let tell = move |notice| watched.tell(notice);
            xb_backup::push(&session, &settings, files, is_new, tell).await
        };
        let (pushed, _) = self.with_session("push", run, root, resources(run), work)?;
        match &pushed.position {
            Some(position) => self.log.info(format!(
                "the archive of {server} reaches {position} now: {} stored",
                format_count(pushed.segments, "segment")
            )),
            None => self.log.info(format!("the archive of {server} has everything already")),
        }
        if pushed.left > 0 {
            self.log.info(format!(
                "{} at the end of the last file are not a whole transaction, and were left out",
                format_size(pushed.left)
            ));
        }
        Ok(())
    }
}
