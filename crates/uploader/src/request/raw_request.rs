//! Requests that the `object_store` crate does not offer, built and signed here.

use std::path::PathBuf;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use md5::{Digest as _, Md5};
use object_store::aws::{AwsAuthorizer, AwsCredentialProvider};
use object_store::azure::{AzureAuthorizer, AzureCredentialProvider};
use object_store::client::{HttpClient, HttpRequest, HttpRequestBody};
use object_store::gcp::GcpCredentialProvider;

use crate::request::encode::base64;

/// Target and credentials of a direct request.
#[derive(Debug, Clone)]
pub(crate) enum RawApi {
    S3 {
        client: HttpClient,
        credentials: AwsCredentialProvider,
        region: String,
        bucket: String,
        /// Whether whoever sends a request pays for it.
        payer: bool,
        /// Whether one request can delete many objects.
        bulk: bool,
        /// The operator's headers that a signature must cover.
        headers: HeaderMap,
    },
    Google {
        client: HttpClient,
        credentials: GcpCredentialProvider,
        bucket: String,
    },
    Azure {
        client: HttpClient,
        credentials: AzureCredentialProvider,
        account: String,
        /// Address of the container.
        container: String,
    },
    Folder(PathBuf),
}

pub(crate) fn failed(error: impl std::error::Error + Send + Sync + 'static) -> object_store::Error {
    object_store::Error::Generic { store: "own request", source: Box::new(error) }
}

#[derive(Debug, thiserror::Error)]
#[error("status {status}: {body}")]
struct ErrorResponse {
    status: u16,
    body: String,
}

#[derive(Debug, thiserror::Error)]
#[error("the store does not support this request")]
struct Unsupported;

impl RawApi {
    /// Sends a request for `what` in the bucket: a path with its query, percent-encoded. Returns
    /// the body of the response.
    pub(crate) async fn call(
        &self,
        method: Method,
        what: &str,
        body: Bytes,
    ) -> object_store::Result<Bytes> {
        Ok(self.exchange(method, what, body, HeaderMap::new()).await?.1)
    }

    /// As [`RawApi::call`], with more headers, and with those of the response.
    pub(crate) async fn exchange(
        &self,
        method: Method,
        what: &str,
        body: Bytes,
        headers: HeaderMap,
    ) -> object_store::Result<(HeaderMap, Bytes)> {
        let (client, bucket) = match self {
            Self::S3 { client, bucket, .. } | Self::Google { client, bucket, .. } => {
                (client, bucket)
            }
            Self::Azure { client, container, .. } => (client, container),
            Self::Folder(_) => return Err(failed(Unsupported)),
        };
        let sum = (!body.is_empty()).then(|| base64(&Md5::digest(&body)));
        let mut request = HttpRequest::new(HttpRequestBody::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = format!("{bucket}{what}").parse().map_err(failed)?;
        *request.headers_mut() = headers;
        if let Some(sum) = sum {
            // All stores accept this header, and some require it for requests that must arrive
            // intact.
            request
                .headers_mut()
                .insert("content-md5", HeaderValue::from_str(&sum).map_err(failed)?);
        }
        self.authorize(&mut request).await?;
        let response = client.execute(request).await.map_err(failed)?;
        let status = response.status();
        let (parts, body) = response.into_parts();
        let body = body.bytes().await.map_err(failed)?;
        if status.is_success() {
            return Ok((parts.headers, body));
        }
        let body = String::from_utf8_lossy(&body).into_owned();
        let source = Box::new(ErrorResponse { status: status.as_u16(), body });
        let path = bucket.clone();
        Err(match status.as_u16() {
            404 => object_store::Error::NotFound { path, source },
            412 => object_store::Error::Precondition { path, source },
            401 | 403 => object_store::Error::PermissionDenied { path, source },
            _ => object_store::Error::Generic { store: "own request", source },
        })
    }

    async fn authorize(&self, request: &mut HttpRequest) -> object_store::Result<()> {
        match self {
            Self::S3 { credentials, region, payer, .. } => {
                let credential = credentials.get_credential().await?;
                AwsAuthorizer::new(&credential, "s3", region)
                    .with_request_payer(*payer)
                    .try_authorize(request, None)
            }
            Self::Google { credentials, .. } => {
                let bearer = &credentials.get_credential().await?.bearer;
                if !bearer.is_empty() {
                    let value = format!("Bearer {bearer}").parse().map_err(failed)?;
                    request.headers_mut().insert(http::header::AUTHORIZATION, value);
                }
                Ok(())
            }
            Self::Azure { credentials, account, .. } => {
                let credential = credentials.get_credential().await?;
                AzureAuthorizer::new(&credential, account).try_authorize(request)
            }
            Self::Folder(_) => Ok(()),
        }
    }
}
