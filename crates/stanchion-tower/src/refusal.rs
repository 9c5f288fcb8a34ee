//! The responses that a layer makes itself.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use stanchion_client::{AcquireError, QueryError};

use crate::body::ResponseBody;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// The reason for which a layer responded instead of the handler.
///
/// The response has this value in its extensions, and a body of the type `application/problem+json` (RFC 9457). The response to a gRPC
/// request has the status 200, no body, and a `grpc-status` instead. A middleware can replace the body:
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
    /// 409: another request has the lock, also after a wait. The client may retry after this number of seconds.
    Busy {
        /// The value of `Retry-After`.
        retry_after: u64,
    },
    /// 503: no permit was free, also after a wait. The client may retry after this number of seconds.
    Full {
        /// The value of `Retry-After`.
        retry_after: u64,
    },
    /// 429: the request is over its rate limit. The client may retry after this number of seconds.
    Limited {
        /// The value of `Retry-After`.
        retry_after: u64,
    },
    /// 503: the server of the locks gave no answer, or the client is not connected to it. The handler was not called.
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
    /// 400: the route requires an idempotency key, and the request has no scope: its caller is not known.
    ScopeMissing,
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
            Self::InvalidName
            | Self::KeyMissing
            | Self::KeyInvalid
            | Self::ScopeMissing
            | Self::Unreadable => StatusCode::BAD_REQUEST,
            // RFC 9110, 15.5.10: a conflict with the state of the resource, which the client can resolve by a retry. The draft for idempotency
            // keys has this status for a request in progress. 429 is about the number of a client's requests, and 503 blames the service.
            Self::Busy { .. } | Self::InProgress => StatusCode::CONFLICT,
            Self::NotStored => StatusCode::GONE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::KeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Limited { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Rejected | Self::Broken => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Full { .. } | Self::Unavailable | Self::Lost => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns the code of gRPC that tells a client whether it may retry.
    const fn grpc_status(self) -> u16 {
        match self {
            Self::InvalidName
            | Self::KeyMissing
            | Self::KeyInvalid
            | Self::ScopeMissing
            | Self::Unreadable
            | Self::KeyReused => 3, // INVALID_ARGUMENT
            Self::Full { .. } | Self::Limited { .. } | Self::TooLarge => 8, // RESOURCE_EXHAUSTED
            Self::NotStored => 9,                                           // FAILED_PRECONDITION
            // ABORTED: the operation as a whole may be repeated.
            Self::Busy { .. } | Self::InProgress | Self::Lost => 10,
            Self::Rejected | Self::Broken => 13, // INTERNAL
            Self::Unavailable => 14,             // UNAVAILABLE
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Busy { .. } => "Another request for the same resource is in progress",
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
            Self::ScopeMissing => "The caller of a request with an Idempotency-Key is not known",
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
            Self::Busy { retry_after }
            | Self::Full { retry_after }
            | Self::Limited { retry_after } => Some(retry_after),
            Self::InProgress | Self::Unavailable => Some(1),
            _ => None,
        }
    }

    /// Makes the response, and writes the reason to the log. An operator has to act on a warning; all else is the ordinary work of a layer.
    pub(crate) fn because<T: std::fmt::Display>(self, reason: T) -> Self {
        match self {
            Self::Unavailable | Self::Lost | Self::Rejected | Self::Broken => {
                tracing::warn!(%reason, "a request is refused: {self}");
            }
            _ => tracing::debug!(%reason, "a request is refused: {self}"),
        }
        self
    }

    pub(crate) fn response<B>(self, form: &Form) -> Response<ResponseBody<B>> {
        let mut response = match form {
            Form::Problem => {
                // The titles need no escapes.
                let status = self.status();
                let body = format!(r#"{{"title":"{self}","status":{}}}"#, status.as_u16());
                let mut response = Response::new(ResponseBody::of_layer(body.into()));
                *response.status_mut() = status;
                let problem = HeaderValue::from_static("application/problem+json");
                response.headers_mut().insert(CONTENT_TYPE, problem);
                response
            }
            Form::Grpc(kind) => {
                let mut response = Response::new(ResponseBody::of_layer(Bytes::new()));
                let headers = response.headers_mut();
                headers.insert(CONTENT_TYPE, kind.clone());
                headers.insert(GRPC_STATUS, self.grpc_status().into());
                let message = HeaderValue::from_static(self.title());
                headers.insert(GRPC_MESSAGE, message);
                response
            }
        };
        if let Some(seconds) = self.retry_after() {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response.extensions_mut().insert(self);
        response
    }

    /// The refusal after an acquire that failed, with `busy` if it only waited for too long.
    pub(crate) fn of_acquire(error: &AcquireError, busy: Self) -> Self {
        let refusal = match error {
            AcquireError::TimedOut { .. } | AcquireError::Deadlock { .. } => busy,
            AcquireError::Rejected { .. } => Self::Rejected,
            _ => Self::Unavailable,
        };
        refusal.because(error)
    }

    pub(crate) fn of_query(error: &QueryError) -> Self {
        let refusal = match error {
            QueryError::Rejected { .. } => Self::Rejected,
            _ => Self::Unavailable,
        };
        refusal.because(error)
    }
}

/// Returns the value of `Retry-After` for a request that has waited for `wait`.
pub(crate) fn after(wait: Option<Duration>) -> u64 {
    seconds(wait.unwrap_or_default()).max(1)
}

/// Returns whole seconds, rounded up.
pub(crate) fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// The form of a response that the client of a request understands.
#[derive(Clone, Debug)]
pub(crate) enum Form {
    /// A problem of RFC 9457.
    Problem,
    /// A status of gRPC, with the content type of the request. A client of gRPC reads no body of another type.
    Grpc(HeaderValue),
}

impl Form {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        match headers.get(CONTENT_TYPE) {
            Some(kind) if kind.as_bytes().starts_with(b"application/grpc") => {
                Self::Grpc(kind.clone())
            }
            _ => Self::Problem,
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.title())
    }
}
