//! `list`: lists the backups of a ROOT and their state.

use std::cmp::Reverse;

use xb_backup::{CancelToken, OrInterrupted as _};
use xb_cli::{Exit, Failure, Log, printable};
use xb_repo::list::Listing;

use crate::args::ListArgs;
use crate::cache;
use crate::commands::context::Context;
use crate::listing::{ListFilter, listing, select, totals};
use crate::location::{place_above, root_place};
use crate::report;

/// Most names shown that are beside an empty ROOT.
const BESIDE: usize = 5;

impl Context {
    pub(crate) fn list(&self, args: &ListArgs) -> Result<(), Failure> {
        report::can_print()?;
        let root = root_place(args.root.place.as_deref(), &args.common).map_err(|failure| {
            let beside = (failure.exit() == Exit::NotFound).then(|| self.beside(args)).flatten();
            beside.into_iter().fold(failure, Failure::fact)
        })?;
        let cache = match args.no_cache {
            false => cache::of_root(args.root.place.as_deref(), &args.common)?,
            true => None,
        };
        let only = &args.only;
        let wanted =
            ListFilter { last: only.last, since: only.since, server: only.server.as_deref() };
        let ((listings, all), _) =
            self.with_progress("list", &args.common.run, None, |_, cancel| async move {
                let listings = cancel.or(xb_repo::list::list_with(&root, cache.as_ref())).await?;
                let all = listings.iter().filter(|line| line.finished.is_some()).count();
                let mut listings = select(listings, wanted);
                if args.long {
                    cancel.or(xb_backup::show_slots(&root, &mut listings)).await?;
                }
                Ok((listings, all))
            })?;
        report::printed(listing(&listings, args.long, args.common.run.json))?;
        if let Some(totals) = totals(&listings, all) {
            self.log.info(totals);
        }
        if all == 0 {
            let place = args.root.place.as_deref().filter(|place| !place.is_empty());
            let place = place.or(args.common.store.root.as_deref()).unwrap_or_default();
            self.log.info(format!(
                "there is no backup below {place}; if that is a backup itself, `xbcloud-rs show` shows it"
            ));
            self.beside(args).iter().for_each(|beside| self.log.info(beside));
        }
        proven(&self.log, &listings);
        unencrypted(&self.log, &listings);
        Ok(())
    }

    /// Names what is beside a ROOT without backups: its name may be a slip for one of these.
    fn beside(&self, args: &ListArgs) -> Option<String> {
        let (above, name) = place_above(args.root.place.as_deref(), &args.common)?;
        let find = |_, cancel: CancelToken| async move { cancel.or(above.folders_below("")).await };
        let (mut found, _) = self.with_progress("list", &args.common.run, None, find).ok()?;
        found.retain(|other| *other != name && !other.starts_with('.'));
        let shared = |other: &String| {
            other.bytes().zip(name.bytes()).take_while(|(own, its)| own == its).count()
        };
        found.sort_by_key(|other| Reverse(shared(other)));
        let more = match found.len().saturating_sub(BESIDE) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        found.truncate(BESIDE);
        let names = printable(&found.join(", "));
        (!found.is_empty()).then(|| format!("folders beside it: {names}{more}"))
    }
}

/// Notes how many backups are not encrypted.
fn unencrypted(log: &Log, listings: &[Listing]) {
    let backups: Vec<_> = listings.iter().filter_map(|line| line.encrypted).collect();
    let open = backups.iter().filter(|encrypted| !**encrypted).count() as u64;
    match (open, backups.len()) {
        (0, _) => {}
        (1, 1) => log.info(report::unencrypted("this backup is")),
        (open, all) => log.info(report::unencrypted(&format!("{open} of {all} backups are"))),
    }
}

/// Reports the newest verified backup as an event, for monitoring.
pub(crate) fn proven(log: &Log, listings: &[Listing]) {
    let proven = listings
        .iter()
        .filter(|line| !line.raw)
        .filter(|line| line.is_verified(xb_repo::verification::Level::Checksum));
    let Some(newest) = proven.max_by_key(|line| line.finished) else { return };
    log.event("proven", &serde_json::json!({
        "name": newest.name, "level": newest.verified.and_then(|proof| proof.level), "age_seconds": newest.age_seconds,
        "verified_age_seconds": newest.verified_age_seconds,
    }));
}
