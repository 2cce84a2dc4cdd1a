//! Check of each page of a listing, before a parser with defaults for every field reads it.
//!
//! To such a parser, an error, the page of a proxy and an empty document are empty listings. A page
//! counts only if it has the right root element, says whether more pages follow and where, and
//! names nothing outside the prefix of the request.

use std::borrow::Cow;

use http::{Method, Uri};
use percent_encoding::percent_decode_str;
use quick_xml::Reader;
use quick_xml::events::Event;
use serde::Deserialize;

/// A response that is no page of the listing that was requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the store's answer is not a listing: {0}")]
pub(crate) struct NoListing(String);

/// Kind of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Objects in S3 or Google Cloud Storage.
    Objects,
    /// Blobs in Azure.
    Blobs,
    /// Unfinished multipart uploads.
    Uploads,
}

impl Kind {
    /// The root element of a page.
    const fn root(self) -> &'static str {
        match self {
            Self::Objects => "ListBucketResult",
            Self::Blobs => "EnumerationResults",
            Self::Uploads => "ListMultipartUploadsResult",
        }
    }
}

/// A request for a page of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageRequest {
    kind: Kind,
    /// Prefix of all keys; empty: any key.
    prefix: String,
}

impl PageRequest {
    /// Returns the page that a request asks for; `None` if it asks for something else.
    pub(crate) fn of(method: &Method, uri: &Uri) -> Option<Self> {
        let fields = || uri.query().unwrap_or_default().split('&');
        let kind = fields().find_map(|field| match field {
            "comp=list" => Some(Kind::Blobs),
            "uploads" | "uploads=" => Some(Kind::Uploads),
            field => field.starts_with("list-type=").then_some(Kind::Objects),
        });
        let kind = kind.filter(|_| method == Method::GET)?;
        let prefix = fields().find_map(|field| field.strip_prefix("prefix="));
        Some(Self { kind, prefix: decoded(prefix.unwrap_or_default()) })
    }

    /// Checks the body of a successful response.
    ///
    /// # Errors
    /// [`NoListing`]; another try may be answered with a listing.
    pub(crate) fn check(&self, body: &[u8]) -> Result<(), NoListing> {
        let page: Page =
            quick_xml::de::from_reader(body).map_err(|error| self.refused(body, &error))?;
        let (kind, page) = match page {
            Page::ListBucketResult(page) => (Kind::Objects, page.summary()),
            Page::EnumerationResults(page) => (Kind::Blobs, page.summary()),
            Page::ListMultipartUploadsResult(page) => (Kind::Uploads, page.summary()),
        };
        if kind != self.kind {
            return Err(NoListing(format!("it is a {}, not a {}", kind.root(), self.kind.root())));
        }
        let Some(next) = page.next else {
            return Err(NoListing("it does not state whether it is complete".to_owned()));
        };
        if next == NextPage::Nowhere {
            return Err(NoListing(
                "it is not complete, and does not say where it continues".to_owned(),
            ));
        }
        match page.keys.iter().find(|key| !key.starts_with(&self.prefix)) {
            Some(key) => {
                Err(NoListing(format!("it names {key}, which is not below {}", self.prefix)))
            }
            None => Ok(()),
        }
    }

    /// Explains why a body cannot be parsed.
    fn refused(&self, body: &[u8], error: &quick_xml::DeError) -> NoListing {
        let text = String::from_utf8_lossy(body);
        if text.trim().is_empty() {
            return NoListing("it is empty".to_owned());
        }
        let code = element(&text, "Code").map(|code| format!(" with the code {code}"));
        NoListing(match root_of(&text) {
            None => "it is not XML".to_owned(),
            Some(root) if root == self.kind.root() => error.to_string(),
            Some(root) => format!("its root element is {root}{}", code.unwrap_or_default()),
        })
    }
}

/// Decodes a value of a query, in which `+` may stand for a space.
fn decoded(value: &str) -> String {
    percent_decode_str(&value.replace('+', " ")).decode_utf8_lossy().into_owned()
}

/// The name of the first element.
pub(crate) fn root_of(text: &str) -> Option<String> {
    let mut reader = Reader::from_str(text);
    loop {
        match reader.read_event().ok()? {
            Event::Start(tag) | Event::Empty(tag) => {
                return Some(String::from_utf8_lossy(tag.local_name().as_ref()).into_owned());
            }
            Event::Eof => return None,
            _ => {}
        }
    }
}

/// Continuation of a listing.
#[derive(Debug, PartialEq, Eq)]
enum NextPage {
    End,
    Marker,
    /// It continues, but the page names no marker.
    Nowhere,
}

/// Fields of a page.
struct Summary {
    /// `None` if the page does not say it.
    next: Option<NextPage>,
    /// Keys and common prefixes.
    keys: Vec<String>,
}

/// Returns the continuation of a listing, from a flag and a marker.
fn next(truncated: Option<bool>, marker: Option<&str>) -> Option<NextPage> {
    Some(match (truncated?, marker.is_some_and(|marker| !marker.is_empty())) {
        (false, _) => NextPage::End,
        (true, true) => NextPage::Marker,
        (true, false) => NextPage::Nowhere,
    })
}

#[derive(Debug, Deserialize)]
enum Page {
    ListBucketResult(Objects),
    EnumerationResults(Blobs),
    ListMultipartUploadsResult(Uploads),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Objects {
    is_truncated: Option<bool>,
    key_count: Option<u64>,
    next_continuation_token: Option<String>,
    #[serde(default)]
    contents: Vec<Keyed>,
    #[serde(default)]
    common_prefixes: Vec<CommonPrefix>,
}

impl Objects {
    fn summary(self) -> Summary {
        let keys = self.contents.into_iter().map(|object| object.key);
        let keys: Vec<String> =
            keys.chain(self.common_prefixes.into_iter().map(|common| common.prefix)).collect();
        // Some emulators leave the flag out. The number of keys shows as well that nothing is cut.
        let counted = self.key_count == Some(keys.len() as u64);
        let truncated = self.is_truncated.or(counted.then_some(false));
        Summary { next: next(truncated, self.next_continuation_token.as_deref()), keys }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Keyed {
    key: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CommonPrefix {
    prefix: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Uploads {
    is_truncated: Option<bool>,
    max_uploads: Option<u64>,
    next_key_marker: Option<String>,
    #[serde(default)]
    upload: Vec<Keyed>,
}

impl Uploads {
    fn summary(self) -> Summary {
        let keys: Vec<String> = self.upload.into_iter().map(|upload| upload.key).collect();
        // `rclone serve s3` leaves the flag out. A page with room for more is the last one.
        let has_room = self.max_uploads.is_some_and(|max| (keys.len() as u64) < max);
        let truncated = self.is_truncated.or(has_room.then_some(false));
        Summary { next: next(truncated, self.next_key_marker.as_deref()), keys }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Blobs {
    blobs: BlobList,
    /// Empty on the last page.
    next_marker: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BlobList {
    #[serde(default)]
    blob: Vec<Named>,
    #[serde(default)]
    blob_prefix: Vec<Named>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Named {
    name: String,
}

impl Blobs {
    fn summary(self) -> Summary {
        let next = self.next_marker.as_deref();
        let next =
            next.map(|marker| if marker.is_empty() { NextPage::End } else { NextPage::Marker });
        let named = self.blobs.blob.into_iter().chain(self.blobs.blob_prefix);
        Summary { next, keys: named.map(|blob| blob.name).collect() }
    }
}

/// Checks a body as the page that a `GET` of this URI requests. Returns `None` if the URI requests
/// no listing.
#[doc(hidden)]
#[must_use]
pub fn check_page(uri: &str, body: &[u8]) -> Option<Result<(), String>> {
    let request = PageRequest::of(&Method::GET, &uri.parse().ok()?)?;
    Some(request.check(body).map_err(|error| error.to_string()))
}

/// Text of the first XML element of this name.
pub(crate) fn element<'t>(raw: &'t str, name: &str) -> Option<Cow<'t, str>> {
    let (_, rest) = raw.split_once(&format!("<{name}>"))?;
    let (inside, _) = rest.split_once(&format!("</{name}>"))?;
    let inside = inside.trim();
    Some(quick_xml::escape::unescape(inside).unwrap_or(Cow::Borrowed(inside)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const S3: &str = "http://h/b?delimiter=%2F&list-type=2&prefix=a%20b%2F%2B+%2F";
    const AZURE: &str = "http://h/c?restype=container&comp=list&prefix=a%2F";
    const UPLOADS: &str = "http://h/b?prefix=a/&uploads=";

    fn checked(uri: &str, body: &str) -> Result<(), String> {
        check_page(uri, body.as_bytes()).expect("a listing")
    }

    fn refused(uri: &str, body: &str, why: &str) {
        let error = checked(uri, body).unwrap_err();
        assert!(error.contains("not a listing") && error.contains(why), "{error}");
    }

    fn objects(inside: &str) -> String {
        format!(
            r#"<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name>{inside}</ListBucketResult>"#
        )
    }

    #[test]
    fn only_listings_are_checked() {
        let of = |method, uri: &str| PageRequest::of(&method, &uri.parse().unwrap());
        let asked = of(Method::GET, S3).unwrap();
        assert_eq!((asked.kind, &*asked.prefix), (Kind::Objects, "a b/+ /"));
        assert_eq!(of(Method::GET, AZURE).unwrap().kind, Kind::Blobs);
        assert_eq!(of(Method::GET, UPLOADS).unwrap().kind, Kind::Uploads);
        assert_eq!(of(Method::POST, "http://h/b/k?uploads"), None);
        for other in ["http://h/b/k", "http://h/b?uploadId=1", "http://h/b?comp=blocklist"] {
            assert_eq!(of(Method::GET, other), None);
        }
    }

    #[test]
    fn a_malformed_listing_is_refused() {
        let error = "<Error><Code>InternalError</Code><Message>x</Message></Error>";
        for uri in [S3, AZURE, UPLOADS] {
            refused(uri, "", "empty");
            refused(uri, " \n", "empty");
            refused(uri, error, "root element is Error with the code InternalError");
            refused(uri, "<!DOCTYPE html><html><body>x</body></html>", "root element is html");
            refused(uri, "{}", "not XML");
            refused(uri, "<ListAllMyBucketsResult/>", "ListAllMyBucketsResult");
        }
        refused(
            S3,
            "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>",
            "not a ListBucketResult",
        );
        // Cut off, or without a statement.
        let whole = objects("<IsTruncated>false</IsTruncated>");
        for end in 0..whole.len() {
            checked(S3, &whole[..end]).unwrap_err();
        }
        for nothing in ["", "<KeyCount>1</KeyCount>", "<MaxKeys>1000</MaxKeys>"] {
            refused(S3, &objects(nothing), "whether it is complete");
        }
        refused(S3, &objects("<IsTruncated>true</IsTruncated>"), "where it continues");
        refused(
            S3,
            &objects("<IsTruncated>true</IsTruncated><NextContinuationToken/>"),
            "where it continues",
        );
        refused(
            UPLOADS,
            "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated></ListMultipartUploadsResult>",
            "where it continues",
        );
        refused(UPLOADS, "<ListMultipartUploadsResult/>", "whether it is complete");
        refused(
            UPLOADS,
            "<ListMultipartUploadsResult><MaxUploads>1</MaxUploads><Upload><Key>a/x</Key></Upload></ListMultipartUploadsResult>",
            "whether it is complete",
        );
        refused(
            AZURE,
            "<EnumerationResults><Blobs/></EnumerationResults>",
            "whether it is complete",
        );
        refused(AZURE, "<EnumerationResults><NextMarker/></EnumerationResults>", "missing field");
    }

    #[test]
    fn listings_of_stores_are_accepted() {
        let key = "<Contents><Key>a b/+ /&amp;</Key><Size>1</Size></Contents>";
        for inside in [
            "<IsTruncated>false</IsTruncated>".to_owned(),
            format!(
                "{key}<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
            ),
            format!(
                "<CommonPrefixes><Prefix>a b/+ /x/</Prefix></CommonPrefixes>{key}<CommonPrefixes><Prefix>a b/+ /y/</Prefix></CommonPrefixes><IsTruncated>false</IsTruncated>"
            ),
            format!("{key}<KeyCount>1</KeyCount>"),
        ] {
            checked(S3, &objects(&inside)).unwrap();
        }
        checked(AZURE, "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults ServiceEndpoint=\"http://h/\"><Prefix>a/</Prefix><Blobs><BlobPrefix><Name>a/b/</Name></BlobPrefix><Blob><Name>a/x</Name><Properties/></Blob></Blobs><NextMarker /></EnumerationResults>").unwrap();
        checked(UPLOADS, "<ListMultipartUploadsResult><Upload><Key>a/x</Key><UploadId>1</UploadId></Upload><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>").unwrap();
        checked(UPLOADS, "<ListMultipartUploadsResult><Bucket>b</Bucket><MaxUploads>1000</MaxUploads><Prefix>a/</Prefix><Upload><Key>a/x</Key><UploadId>1</UploadId></Upload></ListMultipartUploadsResult>").unwrap();
    }

    #[test]
    fn keys_outside_the_prefix_are_refused() {
        let key = "<IsTruncated>false</IsTruncated><Contents><Key>c/x</Key></Contents>";
        refused(S3, &objects(key), "c/x, which is not below a b/+ /");
        let common =
            "<IsTruncated>false</IsTruncated><CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes>";
        refused(S3, &objects(common), "not below");
        refused(
            AZURE,
            "<EnumerationResults><Blobs><Blob><Name>b</Name></Blob></Blobs><NextMarker/></EnumerationResults>",
            "not below",
        );
        refused(
            UPLOADS,
            "<ListMultipartUploadsResult><Upload><Key>b</Key></Upload><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>",
            "not below",
        );
    }

    proptest! {
        /// A page is accepted exactly if all its keys are below the prefix, wherever it is cut or
        /// changed there is no panic.
        #[test]
        fn keys_decide(keys in proptest::collection::vec("[ab+ &<é/]{0,4}", 0..6), prefix in "[ab+ &é/]{0,2}", cut in 0_usize..400) {
            let escape = |key: &String| format!("<Contents><Key>{}</Key></Contents>", quick_xml::escape::escape(key.as_str()));
            let inside: String = keys.iter().map(escape).collect();
            let body = objects(&format!("{inside}<IsTruncated>false</IsTruncated>"));
            let uri = format!("http://h/b?list-type=2&prefix={}", crate::request::encode::percent(&prefix));
            prop_assert_eq!(checked(&uri, &body).is_ok(), keys.iter().all(|key| key.starts_with(&prefix)));
            if cut < body.len() {
                prop_assert!(check_page(&uri, &body.as_bytes()[..cut]).unwrap().is_err());
            }
        }
    }
}
