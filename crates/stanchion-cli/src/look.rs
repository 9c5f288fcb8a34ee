//! Detecting the kind of a name, reading its status, and the facts that every command needs.

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use stanchion::fair::{FairHolder, FairLockStatus};
use stanchion::rwlock::RwLockStatus;
use stanchion::semaphore::{LeasedStatus, SemaphoreStatus};
use stanchion::{
    Client, CountDownLatch, FairLock, LeasedSemaphore, Lock, QueryError, Rejection, RwLock,
    Semaphore,
};
use tokio::task::JoinSet;

use crate::exit::{self, Failure, Library};
use crate::kinds::{self, Facts};
use crate::wording::printable;

/// The kind of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    Lock,
    Fair,
    Rwlock,
    /// Redisson's RSemaphore.
    Semaphore,
    /// Permits with leases, as `run --permits` takes them.
    LeasedSemaphore,
    Latch,
    Election,
    Job,
    RateLimiter,
    TokenBucket,
    Barrier,
    DoubleBarrier,
}

impl Kind {
    /// The kind in one short word, for tables.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Fair => "fair",
            Self::Rwlock => "rwlock",
            Self::Semaphore => "semaphore",
            Self::LeasedSemaphore => "permits",
            Self::Latch => "latch",
            Self::Election => "election",
            Self::Job => "job",
            Self::RateLimiter => "limiter",
            Self::TokenBucket => "bucket",
            Self::Barrier => "barrier",
            Self::DoubleBarrier => "double",
        }
    }

    /// The kind of the word that processes use for it.
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        Some(match word {
            "lock" | "multilock" => Self::Lock,
            "fair lock" => Self::Fair,
            "rwlock_read" | "rwlock_write" => Self::Rwlock,
            "semaphore" => Self::Semaphore,
            "leased_semaphore" => Self::LeasedSemaphore,
            "latch" => Self::Latch,
            "election" | LOOKS_ON => Self::Election,
            "job" => Self::Job,
            "rate_limiter" => Self::RateLimiter,
            "token_bucket" => Self::TokenBucket,
            "barrier" | "barrier_round" => Self::Barrier,
            "double_barrier" | "double_barrier_round" => Self::DoubleBarrier,
            _ => return None,
        })
    }

    /// Returns whether the kind has the holder of a lock: one hash, and so one lock, whichever derived keys exist.
    pub(crate) const fn is_a_lock(self) -> bool {
        matches!(self, Self::Lock | Self::Fair | Self::Election | Self::Job)
    }

    /// Returns whether the kind has no holder of the whole name, so that it cannot be released by force.
    pub(crate) const fn is_shared_out(self) -> bool {
        !self.is_a_lock() && !matches!(self, Self::Rwlock)
    }
}

/// The word for calls that observe a leader: they wait for news, and do not acquire anything.
const LOOKS_ON: &str = "observer";

/// Returns whether calls of this word wait to acquire something.
pub(crate) fn is_wait(word: &str) -> bool {
    word != LOOKS_ON
}

/// The status of a name on the server.
#[derive(Debug)]
pub(crate) enum Seen {
    /// A lock, or a fair lock with an empty queue: they look the same.
    Lock(FairLockStatus),
    Fair(FairLockStatus),
    Rwlock(RwLockStatus),
    Semaphore(SemaphoreStatus),
    Leased(LeasedStatus),
    Latch(u64),
    /// A kind of the folder `kinds`.
    Told(Box<Facts>),
    /// A number of unknown meaning.
    Number(i64),
}

impl Seen {
    /// The owners of a lock or a read-write lock; empty for a kind that is not held as a whole.
    pub(crate) fn owners(&self) -> Vec<String> {
        let mut owners: Vec<String> = match self {
            Self::Lock(status) | Self::Fair(status) => {
                let holder = status.holder.iter();
                holder.map(|holder| holder.owner.clone()).collect()
            }
            Self::Rwlock(status) => {
                let all = status.writer.iter().chain(&status.readers);
                all.map(|holder| holder.owner.clone()).collect()
            }
            Self::Told(facts) => {
                let holders = facts.holders.iter();
                holders.map(|holder| holder.owner.clone()).collect()
            }
            Self::Semaphore(_) | Self::Leased(_) | Self::Latch(_) | Self::Number(_) => Vec::new(),
        };
        owners.sort_unstable();
        owners
    }

    /// The holder of a lock that is exclusive.
    pub(crate) const fn holder(&self) -> Option<&FairHolder> {
        match self {
            Self::Lock(status) | Self::Fair(status) => status.holder.as_ref(),
            _ => None,
        }
    }

    /// The rest of the lease of a lock or a read-write lock that is held.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        match self {
            Self::Rwlock(status) if status.is_held() => status.remaining,
            Self::Told(facts) => facts.holders.first()?.left,
            _ => self.holder()?.remaining,
        }
    }

    /// The number of waiting processes, if the kind has such a number and the user may read it.
    pub(crate) const fn waiting(&self) -> Option<u64> {
        match self {
            Self::Lock(status) | Self::Fair(status) => status.waiting_processes,
            Self::Rwlock(status) => status.waiting_processes,
            Self::Semaphore(status) => status.waiting_processes,
            Self::Leased(status) => status.waiting_processes,
            Self::Told(facts) => facts.waiting,
            Self::Latch(_) | Self::Number(_) => None,
        }
    }

    /// True if an acquire would have to wait now.
    pub(crate) fn is_held(&self) -> bool {
        match self {
            Self::Lock(status) | Self::Fair(status) => status.is_held(),
            Self::Rwlock(status) => status.is_held(),
            Self::Semaphore(status) => status.available <= 0,
            Self::Leased(status) => status.available <= 0,
            Self::Latch(count) => *count > 0,
            Self::Told(facts) => facts.held,
            Self::Number(number) => *number <= 0,
        }
    }
}

/// The number of names that are read concurrently. Their requests share a connection, and the server's other users wait for a few of
/// them at most.
const AT_ONCE: usize = 64;

/// Runs many futures, [`AT_ONCE`] at a time, and returns the results in order. Cancel safe: unfinished ones are dropped.
pub(crate) async fn ask_all<T, F>(questions: impl IntoIterator<Item = F>) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut asked: JoinSet<(usize, T)> = JoinSet::new();
    let mut answers: Vec<Option<T>> = Vec::new();
    let mut questions = questions.into_iter();
    loop {
        while asked.len() < AT_ONCE
            && let Some(question) = questions.next()
        {
            let at = answers.len();
            answers.push(None);
            asked.spawn(async move { (at, question.await) });
        }
        match asked.join_next().await {
            None => return answers.into_iter().flatten().collect(),
            Some(Ok((at, answer))) => answers[at] = Some(answer),
            // No task is aborted, so this task has panicked: a defect. The panic continues in the caller.
            Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

fn is_something_else<T>(result: &Result<T, QueryError>) -> bool {
    matches!(
        result,
        Err(QueryError::Rejected {
            rejection: Rejection::WrongType { .. } | Rejection::Other { .. }
        })
    )
}

/// Reads the status as `kind`, or detects the kind.
pub(crate) async fn look(
    client: &Client,
    name: &[u8],
    kind: Option<Kind>,
) -> Result<Seen, Failure> {
    // An error of a status does not say of which name it is.
    let named = |failure: Failure| match failure.code() {
        exit::CONFIG => {
            let name = printable(name);
            Failure::new(exit::CONFIG, format_args!("{name}: {failure}"))
        }
        _ => failure,
    };
    look_unnamed(client, name, kind).await.map_err(named)
}

async fn look_unnamed(client: &Client, name: &[u8], kind: Option<Kind>) -> Result<Seen, Failure> {
    match kind {
        None => guess(client, name).await,
        Some(Kind::Lock) => {
            // The fair lock's status covers a lock too, but the lock's own status has the right error message.
            let lock = Lock::new(client, name).map_err(Library)?;
            let fair = FairLock::new(client, name).map_err(Library)?;
            let (lock, fair) = tokio::join!(lock.status(), fair.status());
            let waiting = lock.map_err(Library)?.waiting_processes;
            Ok(Seen::Lock(counted(fair.map_err(Library)?, waiting)))
        }
        Some(Kind::Fair) => {
            let fair = FairLock::new(client, name).map_err(Library)?;
            Ok(Seen::Fair(fair.status().await.map_err(Library)?))
        }
        Some(Kind::Rwlock) => {
            let lock = RwLock::new(client, name).map_err(Library)?;
            Ok(Seen::Rwlock(lock.status().await.map_err(Library)?))
        }
        Some(Kind::Semaphore) => {
            let semaphore = Semaphore::new(client, name).map_err(Library)?;
            Ok(Seen::Semaphore(semaphore.status().await.map_err(Library)?))
        }
        Some(Kind::LeasedSemaphore) => {
            let semaphore = LeasedSemaphore::new(client, name).map_err(Library)?;
            Ok(Seen::Leased(semaphore.status().await.map_err(Library)?))
        }
        Some(Kind::Latch) => {
            let latch = CountDownLatch::new(client, name).map_err(Library)?;
            Ok(Seen::Latch(latch.count().await.map_err(Library)?))
        }
        Some(kind) => told(client, name, kind).await,
    }
}

/// Returns the failure for a name that is not a semaphore, with its real kind.
pub(crate) async fn not_permits(client: &Client, name: &str, error: QueryError) -> Failure {
    if !matches!(
        error,
        QueryError::Rejected {
            rejection: Rejection::WrongType { .. }
        }
    ) {
        return Library(error).into();
    }
    let what = match look(client, name.as_bytes(), None).await {
        Ok(Seen::Lock(_)) => "a lock".to_owned(),
        Ok(Seen::Fair(_)) => "a fair lock".to_owned(),
        Ok(Seen::Rwlock(_)) => "a read-write lock".to_owned(),
        Ok(Seen::Told(facts)) => format!("of the kind {}", facts.kind.word()),
        _ => return Library(error).into(),
    };
    let message = format!("{name} is {what} and has no permits: give each its own name");
    Failure::new(exit::CONFIG, message)
}

async fn told(client: &Client, name: &[u8], kind: Kind) -> Result<Seen, Failure> {
    match kinds::read(client, name, kind).await? {
        Some(facts) => Ok(Seen::Told(Box::new(facts))),
        None => Err(Failure::new(exit::CONFIG, "an unknown kind")),
    }
}

/// As [`look`], in a separate task.
pub(crate) fn look_by_itself(
    client: &Client,
    name: &[u8],
    kind: Option<Kind>,
) -> impl Future<Output = Result<Seen, Failure>> + Send + use<> {
    let (client, name) = (client.clone(), name.to_vec());
    async move { look(&client, &name, kind).await }
}

/// The status of a lock, with the number of waiters in its own line instead of the fair lock's queue.
fn counted(mut status: FairLockStatus, waiting: Option<u64>) -> FairLockStatus {
    status.waiting_processes = waiting;
    status
}

/// Detects the kind: first a limiter, because its hash is no lock; then a lock, because its derived keys show the exact kind.
async fn guess(client: &Client, name: &[u8]) -> Result<Seen, Failure> {
    if let Some(limiter) = kinds::limiter::look(client, name).await? {
        return Ok(Seen::Told(Box::new(limiter)));
    }
    let seen = guess_lock(client, name).await?;
    let Seen::Lock(status) = &seen else {
        return Ok(seen);
    };
    match kinds::beside_a_lock(client, name, status.is_held()).await? {
        Some(kind) => told(client, name, kind).await,
        None => Ok(seen),
    }
}

async fn guess_lock(client: &Client, name: &[u8]) -> Result<Seen, Failure> {
    let fair = FairLock::new(client, name).map_err(Library)?.status().await;
    if !is_something_else(&fair) {
        let status = fair.map_err(Library)?;
        return Ok(if status.queue_len > 0 {
            Seen::Fair(status)
        } else {
            let lock = Lock::new(client, name).map_err(Library)?.status().await;
            let waiting = lock.ok().and_then(|lock| lock.waiting_processes);
            Seen::Lock(counted(status, waiting))
        });
    }
    let rwlock = RwLock::new(client, name).map_err(Library)?.status().await;
    if !is_something_else(&rwlock) {
        return Ok(Seen::Rwlock(rwlock.map_err(Library)?));
    }
    let leased = LeasedSemaphore::new(client, name).map_err(Library)?;
    let leased = leased.status().await;
    if is_something_else(&leased) {
        // Not a kind of stanchion's: the first error explains why.
        return Err(fair.map(drop).map_err(Library).err().map_or_else(
            || Failure::new(exit::CONFIG, "an unknown kind"),
            Failure::from,
        ));
    }
    let leased = leased.map_err(Library)?;
    if !leased.permits.is_empty() {
        return Ok(Seen::Leased(leased));
    }
    let plain = Semaphore::new(client, name).map_err(Library)?;
    let plain = plain.status().await.map_err(Library)?;
    Ok(if plain.holders.is_empty() {
        Seen::Number(leased.available)
    } else {
        Seen::Semaphore(plain)
    })
}
