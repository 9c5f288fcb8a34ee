//! Operations that both kinds of semaphore share.

use std::sync::Arc;
use std::time::Duration;

use stanchion_client::primitive::{
    Call, Handle, Hold, Operation, ReadOptions as _, Reply, Resend, Synchronizer, unexpected,
};
use stanchion_client::{AcquireError, AcquireOptions, IdleExpiry, Outage, QueryError, Rejection};

use crate::keys::{Ephemeral, Keys};
use crate::scripts::pool;

/// The largest number of permits: Java's has 32 bits.
const MOST: u32 = i32::MAX.unsigned_abs();

/// A semaphore of either kind: its keys and its client.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) handle: Handle,
    pub(crate) keys: Arc<Keys>,
}

impl Pool {
    pub(crate) fn new(handle: Handle, keys: Keys) -> Self {
        Self {
            handle,
            keys: Arc::new(keys),
        }
    }

    /// The same for an ephemeral semaphore, which is created when it is missing and ends after a time without use.
    pub(crate) fn ephemeral(self, permits: u32, expiry: IdleExpiry) -> Self {
        let keys = Keys {
            ephemeral: Some(Ephemeral { permits, expiry }),
            ..(*self.keys).clone()
        };
        Self::new(self.handle, keys)
    }

    /// The number of permits with which this handle creates a missing semaphore; 0 if it creates none.
    pub(crate) fn unmade(&self) -> u32 {
        self.keys.ephemeral.map_or(0, |it| it.permits)
    }

    pub(crate) async fn init(&self, permits: u32) -> Result<bool, QueryError> {
        let permits = countable(permits)?;
        self.once(|operation| pool::init(&self.keys, permits, operation))
            .await
            .map(|set| set == 1)
    }

    pub(crate) async fn add(&self, permits: u32) -> Result<i64, QueryError> {
        let by = i64::from(countable(permits)?);
        self.once(|operation| pool::adjust(&self.keys, by, operation))
            .await
    }

    pub(crate) async fn reduce(&self, permits: u32) -> Result<i64, QueryError> {
        let by = -i64::from(countable(permits)?);
        self.once(|operation| pool::adjust(&self.keys, by, operation))
            .await
    }

    pub(crate) async fn drain(&self) -> Result<u32, QueryError> {
        let taken = self
            .once(|operation| pool::drain(&self.keys, operation))
            .await?;
        u32::try_from(taken).map_err(|_| unexpected(&Reply::Int(taken)))
    }

    pub(crate) async fn delete(&self) -> Result<bool, QueryError> {
        let call = pool::delete(&self.keys);
        let reply = self.handle.query(&call, Resend::Never).await?;
        Ok(reply == Reply::Int(1))
    }

    /// Sends an operation that takes effect once and returns its result, even when requests or replies are lost (P6).
    pub(crate) async fn once(
        &self,
        call: impl FnOnce(&Operation) -> Call,
    ) -> Result<i64, QueryError> {
        countable(self.unmade())?;
        let operation = self.handle.operation().await?;
        let call = call(&operation);
        let reply = self.handle.operate(&operation, &call).await?;
        let reply = self
            .handle
            .finished(reply, || pool::tend(&self.keys, false));
        match reply.as_array().unwrap_or_default() {
            [Reply::Int(1), Reply::Int(result)] => Ok(*result),
            [Reply::Int(-1), _] => Err(QueryError::Unavailable {
                outage: Outage::Unanswered {
                    detail: "the request reached the server too late, and was not done".into(),
                },
            }),
            _ => Err(unexpected(&reply)),
        }
    }

    /// Acquires the permits that `sync` describes, with `options`.
    pub(crate) async fn acquire(
        &self,
        sync: Result<Arc<dyn Synchronizer>, Rejection>,
        options: &AcquireOptions,
        lease: Duration,
    ) -> Result<Hold, AcquireError> {
        let sync = self.checked(sync, options)?;
        self.handle.acquire(&sync, options, lease).await
    }

    pub(crate) async fn try_acquire(
        &self,
        sync: Result<Arc<dyn Synchronizer>, Rejection>,
        options: &AcquireOptions,
        lease: Duration,
    ) -> Result<Option<Hold>, AcquireError> {
        let sync = self.checked(sync, options)?;
        self.handle.try_acquire(&sync, options, lease).await
    }

    fn checked(
        &self,
        sync: Result<Arc<dyn Synchronizer>, Rejection>,
        options: &AcquireOptions,
    ) -> Result<Arc<dyn Synchronizer>, AcquireError> {
        let sync = if options.has_owner() {
            Err(invalid(
                "owner: permits are not re-entered, every acquire takes others".into(),
            ))
        } else {
            counted(self.unmade()).and(sync)
        };
        sync.map_err(|rejection| AcquireError::Rejected {
            name: self.keys.name.clone(),
            rejection,
        })
    }
}

/// Returns the options of a call that waits for at most `timeout`.
pub(crate) fn within(timeout: Duration) -> AcquireOptions {
    AcquireOptions::new().timeout(timeout)
}

/// Checks the number of permits of a request.
pub(crate) fn wanted(permits: u32, most: u32) -> Result<u32, Rejection> {
    if (1..=most).contains(&permits) {
        Ok(permits)
    } else {
        Err(invalid(format!(
            "{permits} permits: a request asks for 1 to {most}"
        )))
    }
}

/// Returns the largest number of plain permits of one request.
pub(crate) const fn most() -> u32 {
    MOST
}

pub(crate) fn countable(permits: u32) -> Result<u32, QueryError> {
    counted(permits).map_err(|rejection| QueryError::Rejected { rejection })
}

fn counted(permits: u32) -> Result<u32, Rejection> {
    if permits <= MOST {
        Ok(permits)
    } else {
        let rule = format!("{permits} permits: a semaphore has at most {MOST}, as Redisson's");
        Err(invalid(rule))
    }
}

fn invalid(rule: String) -> Rejection {
    Rejection::InvalidOption { rule }
}
