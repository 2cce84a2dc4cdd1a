//! Our place in the HTTP client: every request of every store passes here.
//!
//! The store crate's own retries are off; what it folds into one error text (status,
//! `Retry-After`) is noted here for the one retry loop, by way of a task-local.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

/// Counters of a run against one store. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Traffic(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    retries: AtomicU64,
}

impl Traffic {
    /// Requests sent, retries and listings included. A local folder counts none.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.0.requests.load(Ordering::Relaxed)
    }

    /// Tries that followed a failed one.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.0.retries.load(Ordering::Relaxed)
    }

    pub(crate) fn count_retry(&self) {
        self.0.retries.fetch_add(1, Ordering::Relaxed);
    }
}

/// What the last answer within one try said.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: Cell<Option<u16>>,
    pub(crate) retry_after: Cell<Option<Duration>>,
}

tokio::task_local! {
    pub(crate) static ANSWER: Answer;
}

/// Connects through the ordinary client and counts what passes.
#[derive(Debug)]
pub(crate) struct Connector {
    pub(crate) traffic: Traffic,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Observed { inner, traffic: self.traffic.clone() }))
    }
}

#[derive(Debug)]
struct Observed {
    inner: HttpClient,
    traffic: Traffic,
}

#[async_trait::async_trait]
impl HttpService for Observed {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.traffic.0.requests.fetch_add(1, Ordering::Relaxed);
        let response = self.inner.execute(request).await;
        let _ = ANSWER.try_with(|answer| match &response {
            Ok(response) => {
                answer.status.set(Some(response.status().as_u16()));
                let seconds = response
                    .headers()
                    .get("retry-after")
                    .and_then(|v| v.to_str().ok()?.trim().parse().ok());
                answer.retry_after.set(seconds.map(|s: u64| Duration::from_secs(s.min(3600))));
            }
            Err(_) => answer.status.set(None),
        });
        response
    }
}
