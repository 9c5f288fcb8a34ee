//! The responses that a layer makes itself.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use stanchion_client::{AcquireError, QueryError};

/// The reason for which a layer responded instead of the handler.
///
/// The response has this value in its extensions, and a body of the type `application/problem+json` (RFC 9457). A middleware can replace
/// the body:
///
/// ```
/// use axum::response::{IntoResponse, Response};
/// use stanchion_tower::Refusal;
///
/// // axum::middleware::map_response(in_our_format)
/// async fn in_our_format(response: Response) -> Response {
///     match response.extensions().get::<Refusal>() {
///         Some(refusal) => (refusal.status(), format!("sorry: {refusal}\n")).into_response(),
///         None => response,
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// 409: another request has the lock.
    Busy,
    /// 503: the lock or a permit was not free within the wait. The client may retry after this number of seconds.
    Full {
        /// The value of `Retry-After`.
        retry_after: u64,
    },
    /// 429: the request is over its rate limit. The client may retry after this number of seconds.
    Limited {
        /// The value of `Retry-After`.
        retry_after: u64,
    },
    /// 503: the server of the locks gave no answer. The handler was not called.
    Unavailable,
    /// 503: the lock, claim or permit was lost while the handler ran. The handler was dropped at an await point.
    Lost,
    /// 500: the server of the locks rejected the request, because a setting or a right is wrong. The log has the reason.
    Rejected,
    /// 400: the name of the lock or limiter, which was made from the request, is invalid.
    InvalidName,
    /// 400: the route requires the header `Idempotency-Key`.
    KeyMissing,
    /// 400: the header `Idempotency-Key` is invalid or occurs twice.
    KeyInvalid,
    /// 409: another request with this idempotency key is in progress.
    InProgress,
    /// 422: the idempotency key was used before, with another method, path or body.
    KeyReused,
    /// 410: the request with this key was processed before, but its response could not be stored.
    NotStored,
    /// 413: the body is too large for a request with an idempotency key.
    TooLarge,
    /// 400: the body of the request could not be read.
    Unreadable,
    /// 500: the body of the handler's response ended with an error.
    Broken,
}

impl Refusal {
    /// Returns the status of the response.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::InvalidName | Self::KeyMissing | Self::KeyInvalid | Self::Unreadable => {
                StatusCode::BAD_REQUEST
            }
            Self::Busy | Self::InProgress => StatusCode::CONFLICT,
            Self::NotStored => StatusCode::GONE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::KeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Limited { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Rejected | Self::Broken => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Full { .. } | Self::Unavailable | Self::Lost => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Busy => "Another request for the same resource is in progress",
            Self::Full { .. } => "Too many requests are in progress",
            Self::Limited { .. } => "The rate limit is reached",
            Self::Unavailable => "The lock service is unavailable",
            Self::Lost => "The lock was lost while the request was in progress",
            Self::Rejected => "The lock service rejected the request",
            Self::InvalidName => "The request has no valid key",
            Self::KeyMissing => "The header Idempotency-Key is required",
            Self::KeyInvalid => {
                "The header Idempotency-Key must be one string of 1 to 255 ASCII characters"
            }
            Self::InProgress => "A request with this Idempotency-Key is in progress",
            Self::KeyReused => "This Idempotency-Key was used for another request",
            Self::NotStored => {
                "The request with this Idempotency-Key was processed, but its response was not stored"
            }
            Self::TooLarge => "The body is too large for a request with an Idempotency-Key",
            Self::Unreadable => "The body of the request could not be read",
            Self::Broken => "The response could not be read",
        }
    }

    const fn retry_after(self) -> Option<u64> {
        match self {
            Self::Full { retry_after } | Self::Limited { retry_after } => Some(retry_after),
            _ => None,
        }
    }

    /// The refusal of a request after `wait` without a hold. `Retry-After` has the same time.
    pub(crate) fn full(wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Self::Full {
            retry_after: seconds.max(1),
        }
    }

    pub(crate) fn response<B: From<Bytes>>(self) -> Response<B> {
        // The titles need no escapes.
        let body = format!(
            r#"{{"title":"{self}","status":{}}}"#,
            self.status().as_u16()
        );
        let mut response = Response::new(Bytes::from(body).into());
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        let problem = HeaderValue::from_static("application/problem+json");
        headers.insert(CONTENT_TYPE, problem);
        if let Some(seconds) = self.retry_after() {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        response.extensions_mut().insert(self);
        response
    }

    /// The refusal after an acquire that failed, with `timed_out` if it only waited for too long.
    pub(crate) fn of_acquire(error: &AcquireError, timed_out: Self) -> Self {
        let refusal = match error {
            AcquireError::TimedOut { .. } | AcquireError::Deadlock { .. } => timed_out,
            AcquireError::Rejected { .. } => Self::Rejected,
            _ => Self::Unavailable,
        };
        if refusal == timed_out {
            tracing::debug!(%error, "a request is refused");
        } else {
            tracing::warn!(%error, "a request is refused");
        }
        refusal
    }

    pub(crate) fn of_query(error: &QueryError) -> Self {
        tracing::warn!(%error, "a request is refused");
        match error {
            QueryError::Rejected { .. } => Self::Rejected,
            _ => Self::Unavailable,
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.title())
    }
}
