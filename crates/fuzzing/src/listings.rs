//! Pages of listings, as a store or whatever answers in its place sends them.

use xb_uploader::check_page;

/// Requests for the three kinds of pages, below one prefix.
const REQUESTS: [(&str, &str); 3] = [
    ("http://h/b?list-type=2&prefix=a%2F", "ListBucketResult"),
    ("http://h/c?restype=container&comp=list&prefix=a%2F", "EnumerationResults"),
    ("http://h/b?prefix=a/&uploads=", "ListMultipartUploadsResult"),
];

/// Any bytes as a page: no panic, and what is accepted has the right root and says that it is
/// complete or where it continues. The first byte chooses the kind.
pub(crate) fn page(data: &[u8]) {
    let Some((kind, body)) = data.split_first() else { return };
    let (request, root) = REQUESTS[usize::from(*kind) % REQUESTS.len()];
    if check_page(request, body).expect("a listing").is_err() {
        return;
    }
    let text = String::from_utf8_lossy(body);
    assert!(text.contains(root), "{text}");
    let says = ["IsTruncated", "KeyCount", "NextMarker"].iter().any(|word| text.contains(word));
    assert!(says, "{text}");
    // The same page answers no request for another kind.
    for (other, _) in REQUESTS.iter().filter(|(other, _)| *other != request) {
        assert!(check_page(other, body).expect("a listing").is_err(), "{text}");
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let pages: [(u8, &str); 6] = [
        (
            0,
            "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name><Prefix>a/</Prefix><KeyCount>1</KeyCount><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken><Contents><Key>a/&amp;</Key><LastModified>2026-11-21T00:00:00.000Z</LastModified><ETag>&quot;1&quot;</ETag><Size>7</Size></Contents><CommonPrefixes><Prefix>a/b/</Prefix></CommonPrefixes></ListBucketResult>",
        ),
        (0, "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"),
        (0, "<Error><Code>InternalError</Code></Error>"),
        (
            1,
            "<EnumerationResults><Blobs><BlobPrefix><Name>a/b/</Name></BlobPrefix><Blob><Name>a/x</Name><Properties><Content-Length>7</Content-Length></Properties></Blob></Blobs><NextMarker>m</NextMarker></EnumerationResults>",
        ),
        (
            2,
            "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated><Upload><Key>a/x</Key><UploadId>1</UploadId></Upload></ListMultipartUploadsResult>",
        ),
        (2, "<html><body>x</body></html>"),
    ];
    pages.iter().map(|(kind, page)| [&[*kind], page.as_bytes()].concat()).collect()
}
