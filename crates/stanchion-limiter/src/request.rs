//! The part that requests of both kinds share: it converts the core's results.

use std::sync::Arc;
use std::time::Duration;

use stanchion_client::primitive::{Handle, Synchronizer};
use stanchion_client::{AcquireError, AcquireOptions, Lease, Rejection};

use crate::limited::{Answer, Attempt, Facts, Grant, LimitError};
use crate::quota::{Limit, MOST_PERMITS};

/// One request: its description, and the place for its replies.
#[derive(Debug)]
pub(crate) struct Asking {
    pub(crate) handle: Handle,
    pub(crate) sync: Arc<dyn Synchronizer>,
    pub(crate) answer: Arc<Answer>,
    pub(crate) permits: u32,
    /// The reason to reject the request before anything is sent.
    pub(crate) refused: Option<Rejection>,
}

impl Asking {
    fn checked(&mut self) -> Result<(), AcquireError> {
        let name = || self.sync.name().clone();
        match self.refused.take() {
            Some(rejection) => Err(AcquireError::Rejected {
                name: name(),
                rejection,
            }),
            None => Ok(()),
        }
    }

    fn tell_limited(&self) {
        let kind = self.sync.kind().name();
        self.handle.tell(|observer| observer.limited(kind));
    }

    fn facts(&self) -> Facts {
        self.answer.last().unwrap_or_default()
    }

    pub(crate) async fn acquire(mut self, timeout: Option<Duration>) -> Result<Grant, LimitError> {
        self.checked()?;
        let options = AcquireOptions::new();
        let options = match timeout {
            Some(timeout) => options.timeout(timeout),
            None => options,
        };
        let waited = self
            .handle
            .acquire(&self.sync, &options, Lease::default().length());
        match waited.await {
            Ok(hold) => Ok(Grant::new(hold, self.permits, self.facts())),
            // P8: the server has decided, and no request is in flight.
            Err(AcquireError::TimedOut {
                name,
                waited,
                free_by: None,
                ..
            }) if self.answer.was_refused() => {
                self.tell_limited();
                Err(LimitError::TimedOut {
                    name,
                    waited,
                    limited: Some(self.facts().limited()),
                    free_by: None,
                })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Acquires without a deadline.
    pub(crate) fn wait(self) -> impl Future<Output = Result<Grant, AcquireError>> + Send + 'static {
        let name = self.sync.name().clone();
        // Not an `async fn`: every waiter would store the request twice.
        async move {
            self.acquire(None).await.map_err(|error| match error {
                LimitError::Acquire(error) => error,
                // Without a deadline, no script gives this reply.
                error @ LimitError::TimedOut { .. } => AcquireError::Rejected {
                    name,
                    rejection: Rejection::Other {
                        detail: error.to_string(),
                    },
                },
            })
        }
    }

    pub(crate) async fn try_acquire(mut self) -> Result<Attempt, AcquireError> {
        self.checked()?;
        let options = AcquireOptions::new();
        let asked = self
            .handle
            .try_acquire(&self.sync, &options, Lease::default().length());
        Ok(match asked.await? {
            Some(hold) => Attempt::Granted(Grant::new(hold, self.permits, self.facts())),
            None => {
                self.tell_limited();
                Attempt::Limited(self.facts().limited())
            }
        })
    }
}

/// Rejects a request to a bucket whose limit was made of a quota that no bucket can keep.
pub(crate) fn too_fast(limits: &[Limit]) -> Option<Rejection> {
    let limit = limits.iter().find(|limit| !limit.quota.fits_a_bucket())?;
    let rule = format!("quota {}: {MOST_PERMITS}", limit.quota);
    Some(Rejection::InvalidOption { rule })
}

/// Rejects a request for zero permits, or for more than `most`.
pub(crate) fn wanted(permits: u32, most: u32) -> Option<Rejection> {
    let rule = if permits == 0 {
        "0 permits: a request asks for 1 or more".to_owned()
    } else if permits > most {
        format!("{permits} permits: the bucket holds {most}")
    } else {
        return None;
    };
    Some(Rejection::InvalidOption { rule })
}
