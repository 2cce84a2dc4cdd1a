//! Checks of a store, with objects that are removed again.

use bytes::Bytes;
use xb_repo::names::{CATALOG, RunId};
use xb_repo::root::Root;
use xb_uploader::{PartData, PartSender, Permission, Service, Store, StoreError};

use crate::check::{CheckLine, no_random};
use crate::error::BackupError;

/// Size of the first part of a multipart upload: the least that S3 accepts.
const PART: usize = 5 << 20;
/// Clocks further apart are refused by S3, in seconds.
const MAX_SKEW: i64 = 15 * 60;
/// Difference between clocks that causes a warning, in seconds.
const SKEW: i64 = 60;

/// Checks the store of ROOT: list, write, read, range, conditional write, multipart upload, unfinished
/// uploads, object lock if `lock`, delete, and the clock. Objects are written below
/// `ROOT/.xb-catalog/@check`, which listings ignore.
///
/// # Errors
/// Only if no random name can be made; everything else is a line.
pub async fn check_store(root: &Root, lock: bool) -> Result<Vec<CheckLine>, BackupError> {
    let store = root.store();
    let folder = root.key(&format!("{CATALOG}/@check/{}", RunId::random().map_err(no_random)?));
    let mut lines = Vec::new();
    match root.list_below(&format!("{CATALOG}/@check")).await {
        Ok(_) => lines.push(CheckLine::ok("list", "the store responds to a listing")),
        Err(error) => {
            // Everything else would fail for the same reason.
            let fix = error.hint().map_or_else(
                || "check location, network and credentials".to_owned(),
                str::to_owned,
            );
            lines.push(CheckLine::failed("list", error.to_string(), fix));
            return Ok(lines);
        }
    }
    let key = format!("{folder}/object");
    let content = Bytes::from_static(b"xbcloud-rs check\n");
    if let Err(error) = store.put(&key, content.clone().into()).await {
        lines.push(failed("write", &error, store.service().permit(Permission::Write)));
        return Ok(lines);
    }
    lines.push(CheckLine::ok("write", "an object was written"));
    lines.push(match store.get(&key).await {
        Ok(found) if found == content => CheckLine::ok("read", "it reads back"),
        Ok(_) => CheckLine::failed(
            "read",
            "the bytes read differ from those written",
            "check the proxies and gateways between this host and the store",
        ),
        Err(error) => failed("read", &error, store.service().permit(Permission::Read)),
    });
    lines.push(range(store, &key, &content).await);
    lines.push(conditions(store, &key).await);
    lines.push(multipart(store, &format!("{folder}/parts")).await);
    lines.push(match store.unfinished_uploads(&folder).await {
        Ok(_) => CheckLine::ok("uploads", "unfinished uploads can be listed"),
        Err(error) => CheckLine::warning("uploads", error.to_string(), may_list(store.service())),
    });
    if lock {
        lines.push(match store.can_lock().await {
            Ok(()) => CheckLine::ok("object lock", "objects can be locked"),
            Err(error) => failed("object lock", &error, "create the bucket with object lock"),
        });
    }
    lines.push(removed(store, &folder).await);
    lines.push(clock(store));
    Ok(lines)
}

/// A part of an object: restores of single tables read ranges, and so does every read of an object
/// that is larger than the memory for it.
async fn range(store: &Store, key: &str, content: &Bytes) -> CheckLine {
    const WHAT: &str = "range";
    match store.get_range(key, 1..8, content.len() as u64).await {
        Ok(found) if found == content.slice(1..8) => CheckLine::ok(WHAT, "a part reads back"),
        Ok(_) => CheckLine::failed(
            WHAT,
            "the bytes of a part differ from those written",
            "check the proxies and gateways between this host and the store",
        ),
        Err(error) => failed(WHAT, &error, store.service().permit(Permission::Read)),
    }
}

async fn conditions(store: &Store, key: &str) -> CheckLine {
    const WHAT: &str = "create only";
    let alone = "let only one host write to a name at a time";
    let way = store.service().without_conditions();
    let fix = way.map_or_else(|| alone.to_owned(), |way| format!("{way}, and {alone}"));
    if !store.has_conditions() {
        let found = "this kind of store has no conditional writes";
        return CheckLine::warning(WHAT, found, alone);
    }
    // Where each conditional write is refused, the second one shows nothing.
    if let Err(error) = store.create(&format!("{key}-new"), Bytes::from_static(b"new")).await {
        return failed(WHAT, &error, "permit conditional writes of new objects (If-None-Match)");
    }
    match store.refuses_existing(key, Bytes::from_static(b"another content")).await {
        Ok(true) => CheckLine::ok(WHAT, "an existing object is not replaced"),
        Ok(false) => CheckLine::warning(WHAT, "the store ignores the condition of a write", fix),
        Err(error) => failed(WHAT, &error, &fix),
    }
}

/// How `gc` may list unfinished uploads, or need not.
fn may_list(service: Service) -> &'static str {
    match service {
        Service::S3 => {
            "permit s3:ListBucketMultipartUploads for gc, or set a lifecycle rule that aborts \
             unfinished uploads (`init` prints one)"
        }
        Service::Google => {
            "permit storage.multipartUploads.list for gc, or set a lifecycle rule that aborts \
             unfinished uploads (`init` prints one)"
        }
        other => other.permit(Permission::Read),
    }
}

async fn multipart(store: &Store, key: &str) -> CheckLine {
    const WHAT: &str = "multipart";
    let mut sender = PartSender::new(store.clone(), 2);
    let outcome = async {
        let parts = [(0, PART, false), (1, 1, true)];
        for (index, len, end) in parts {
            let payload = vec![Bytes::from(vec![b'x'; len])];
            sender.send(PartData { key: key.into(), index, payload, end }).await?;
        }
        sender.finish().await
    };
    match outcome.await {
        Ok(_) => CheckLine::ok(WHAT, "an upload in two parts was joined"),
        Err(error) => {
            sender.abort().await;
            failed(WHAT, &error, store.service().permit(Permission::WriteParts))
        }
    }
}

async fn removed(store: &Store, folder: &str) -> CheckLine {
    let remove = async {
        let listed = store.list(folder).await?;
        store.delete_all(listed.into_iter().map(|listed| listed.key).collect()).await
    };
    match remove.await {
        Ok(()) => CheckLine::ok("delete", "the objects of this check are removed"),
        Err(error) => CheckLine::warning(
            "delete",
            format!("{error}; the objects below {folder} stay"),
            format!(
                "{}, or prune with other credentials",
                store.service().permit(Permission::Remove)
            ),
        ),
    }
}

fn clock(store: &Store) -> CheckLine {
    const WHAT: &str = "clock";
    let skew = jiff::Timestamp::now().as_second().saturating_sub(store.now());
    let found = match skew {
        0 => "as the store's".to_owned(),
        1.. => format!("{skew} s ahead of the store's"),
        _ => format!("{} s behind the store's", skew.saturating_neg()),
    };
    let fix = "synchronise this host's clock (chrony, systemd-timesyncd)";
    match skew.saturating_abs() {
        MAX_SKEW.. => CheckLine::failed(WHAT, found, fix),
        SKEW.. => CheckLine::warning(WHAT, found, fix),
        _ => CheckLine::ok(WHAT, found),
    }
}

fn failed(what: &'static str, error: &StoreError, fix: &str) -> CheckLine {
    CheckLine::failed(what, error.to_string(), error.hint().unwrap_or(fix))
}
