//! Unfinished multipart uploads: they are billed, and no ordinary listing shows them.
//!
//! The `object_store` crate cannot list them, so S3's `ListMultipartUploads` is sent and signed
//! here; Google's XML interface has the same call with its own authorization. Azure needs no such
//! call: it removes uncommitted blocks after seven days.

use std::io::ErrorKind;

use bytes::Bytes;
use http::Method;
use serde::Deserialize;

use crate::request::encode::percent;
use crate::request::raw_request::{RawApi, failed};
use crate::store::folder::{is_number, is_unfinished_file};

/// Multipart upload, or staging file of a local folder, that was started and never finished.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Unfinished {
    /// Key of the object that the upload would create.
    pub key: String,
    /// Store's ID of the upload.
    pub id: String,
    /// Start time in seconds since 1970 (for a folder: time of the last write).
    pub started: i64,
    /// Whether a listing shows it as an object, because its key has a `#`, too. Then only who knows which keys there can be
    /// knows that it is none.
    pub is_listed: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Page {
    #[serde(default)]
    is_truncated: bool,
    next_key_marker: Option<String>,
    next_upload_id_marker: Option<String>,
    #[serde(default)]
    upload: Vec<Upload>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Upload {
    key: String,
    upload_id: String,
    initiated: Option<String>,
}

/// Start of the next page: key and ID.
pub(crate) type Marker = (String, String);

impl RawApi {
    /// Reads one page of the uploads whose keys begin with `prefix`. Returns the page and the start
    /// of the next one.
    pub(crate) async fn page(
        &self,
        prefix: &str,
        after: Option<&Marker>,
    ) -> object_store::Result<(Vec<Unfinished>, Option<Marker>)> {
        match self {
            Self::S3 { .. } | Self::Google { .. } => {}
            Self::Folder(root) => {
                let (root, prefix) = (root.clone(), prefix.to_owned());
                let found = tokio::task::spawn_blocking(move || staged(&root, &prefix)).await;
                return Ok((found.map_err(failed)?.map_err(failed)?, None));
            }
            // Its blocks that no list has committed belong to no upload, and go by themselves.
            Self::Azure { .. } => return Ok((Vec::new(), None)),
        }
        let prefix = percent(prefix);
        let query = match after {
            None => format!("prefix={prefix}&uploads="),
            Some((key, id)) => format!(
                "key-marker={}&prefix={prefix}&upload-id-marker={}&uploads=",
                percent(key),
                percent(id)
            ),
        };
        let body = self.call(Method::GET, &format!("?{query}"), Bytes::new()).await?;
        let page: Page = quick_xml::de::from_reader(&body[..]).map_err(failed)?;
        let next = match (page.is_truncated, page.next_key_marker, page.next_upload_id_marker) {
            (true, Some(key), id) => Some((key, id.unwrap_or_default())),
            _ => None,
        };
        Ok((page.upload.into_iter().map(unfinished).collect(), next))
    }
}

fn unfinished(upload: Upload) -> Unfinished {
    // If the store reports no start time, use the current time, so that the upload does not count
    // as old.
    let started = upload.initiated.and_then(|at| at.parse::<jiff::Timestamp>().ok());
    let started = started.unwrap_or_else(jiff::Timestamp::now).as_second();
    Unfinished { key: upload.key, id: upload.upload_id, started, is_listed: false }
}

/// Finds the staging files below `root`: the `object_store` crate writes an object `name` as
/// `name#N` until it is complete.
fn staged(root: &std::path::Path, prefix: &str) -> std::io::Result<Vec<Unfinished>> {
    let mut found = Vec::new();
    let mut todo = vec![root.to_owned()];
    while let Some(folder) = todo.pop() {
        let entries = match std::fs::read_dir(&folder) {
            // Such as `lost+found`, which only root may read.
            Err(error) if error.kind() == ErrorKind::PermissionDenied && folder != root => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            // Files may appear and disappear during the scan.
            let Ok(facts) = entry.metadata() else { continue };
            let path = entry.path();
            if facts.is_dir() {
                todo.push(path);
                continue;
            }
            let Some(file) = path.strip_prefix(root).ok().and_then(|below| below.to_str()) else {
                continue;
            };
            let Some((key, number)) = file.rsplit_once('#') else { continue };
            if !is_number(number) || !key.starts_with(prefix) {
                continue;
            }
            let name = file.rsplit('/').next().unwrap_or(file);
            let modified =
                facts.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            found.push(Unfinished {
                key: key.to_owned(),
                id: number.to_owned(),
                started: i64::try_from(modified.as_secs()).unwrap_or(i64::MAX),
                is_listed: !is_unfinished_file(name),
            });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read() {
        let xml = r#"<?xml version="1.0"?><ListMultipartUploadsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
            <Bucket>b</Bucket><NextKeyMarker>a/b &amp; c</NextKeyMarker><NextUploadIdMarker>2</NextUploadIdMarker>
            <MaxUploads>2</MaxUploads><IsTruncated>true</IsTruncated>
            <Upload><Key>a/b</Key><UploadId>1</UploadId><Initiator><ID>x</ID></Initiator><Initiated>2026-11-21T10:00:00.000Z</Initiated></Upload>
            <Upload><Key>a/b &amp; c</Key><UploadId>2</UploadId></Upload></ListMultipartUploadsResult>"#;
        let page: Page = quick_xml::de::from_str(xml).unwrap();
        assert!(page.is_truncated && page.next_key_marker.as_deref() == Some("a/b & c"));
        let found: Vec<_> = page.upload.into_iter().map(unfinished).collect();
        assert_eq!(
            found[0],
            Unfinished {
                key: "a/b".into(),
                id: "1".into(),
                started: 1_795_255_200,
                is_listed: false
            }
        );
        assert_eq!(found[1].key, "a/b & c");
        let empty: Page = quick_xml::de::from_str("<ListMultipartUploadsResult><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>").unwrap();
        assert!(!empty.is_truncated && empty.upload.is_empty());
    }

    #[test]
    fn staging_files_of_a_folder_are_found() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("a/run")).unwrap();
        for file in ["a/run/000#1", "a/run/000#x", "a/run/001", "b#2", "a#b#12"] {
            std::fs::write(root.path().join(file), b"").unwrap();
        }
        let found = staged(root.path(), "").unwrap().into_iter();
        let mut found: Vec<_> = found.map(|u| (u.key, u.id, u.is_listed)).collect();
        found.sort();
        let of = |key: &str, id: &str, listed| (key.to_owned(), id.to_owned(), listed);
        // The object `a#b#12`, or an unfinished `a#b`.
        let expected = [of("a#b", "12", true), of("a/run/000", "1", false), of("b", "2", false)];
        assert_eq!(found, expected);
        assert_eq!(staged(root.path(), "a/").unwrap().len(), 1);
    }

    /// What this rule calls unfinished, the crate neither lists nor accepts, and nothing else.
    #[tokio::test]
    async fn the_rule_is_that_of_the_store_crate() {
        use futures::TryStreamExt as _;
        use object_store::{ObjectStore as _, ObjectStoreExt as _};

        let root = tempfile::tempdir().unwrap();
        let store = object_store::local::LocalFileSystem::new_with_prefix(root.path()).unwrap();
        for name in ["a", "a#", "a#1", "a#b", "a#b#1", "#1", "#1#2", "a#1x", "a##1"] {
            std::fs::write(root.path().join(name), b"").unwrap();
            let listed: Vec<_> = store.list(None).try_collect().await.unwrap();
            let accepted =
                store.head(&object_store::path::Path::parse(name).unwrap()).await.is_ok();
            assert_eq!(
                (listed.len() == 1, accepted),
                (accepted, !is_unfinished_file(name)),
                "{name}"
            );
            std::fs::remove_file(root.path().join(name)).unwrap();
        }
    }
}
