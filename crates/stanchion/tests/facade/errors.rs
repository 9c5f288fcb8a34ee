//! `stanchion::Error` is any error of a public call: `?` converts each error type of the facade.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use stanchion::barrier::{BarrierError, BrokenBy, InvalidBarrier};
use stanchion::error::*;
use stanchion::jobs::InvalidTick;
use stanchion::limiter::{InvalidQuota, LimitError, Limited};
use stanchion::multilock::InvalidMembers;
use stanchion::redlock::{InvalidNodes, RedLockError};
use stanchion::semaphore::InvalidPermitId;
use stanchion::{Client, CyclicBarrier, Error, Quota, RateLimiter, RedLock};

/// The last part of the path of `T`.
fn name_of<T: ?Sized>() -> String {
    let path = std::any::type_name::<T>();
    let path = path.split('<').next().unwrap_or(path);
    path.rsplit("::").next().unwrap_or(path).to_owned()
}

/// Returns the names of these types, each of which `?` converts.
macro_rules! converted {
    ($($error:ty,)*) => {{
        fn converts<E: std::error::Error + Into<Error>>() {}
        $(converts::<$error>();)*
        [$(name_of::<$error>()),*]
    }};
}

/// Returns the names of these types, which no call returns alone.
macro_rules! parts {
    ($($error:ty,)*) => {{
        fn is_error<E: std::error::Error>() {}
        $(is_error::<$error>();)*
        [$(name_of::<$error>()),*]
    }};
}

/// The error types of the API of the crates that the facade shows: `api/` lists them.
fn all() -> BTreeSet<String> {
    let api = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../api");
    let mut names = BTreeSet::new();
    for file in std::fs::read_dir(api).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let errors = text.lines().filter_map(|line| {
            let (start, of) = line
                .split_once(" Error for ")
                .or_else(|| line.strip_prefix("impl Error for ").map(|of| ("impl", of)))?;
            start.starts_with("impl").then_some(of)
        });
        for error in errors {
            let path = error.split(['<', ' ']).next().unwrap();
            names.insert(path.rsplit("::").next().unwrap().to_owned());
        }
    }
    names
}

#[test]
fn every_error_of_a_call_converts() {
    let mut known: Vec<String> = converted![
        AcquireError,
        AdoptError,
        BarrierError,
        ConfigError,
        ConnectError,
        InvalidBarrier,
        InvalidDuration,
        InvalidLease,
        InvalidMembers,
        InvalidName,
        InvalidNodes,
        InvalidPermitId,
        InvalidQuota,
        InvalidTick,
        InvalidTicket,
        LeaseLost,
        LimitError,
        QueryError,
        RedLockError,
        ReleaseError,
        RenewError,
        Error,
    ]
    .into();
    #[cfg(feature = "blocking")]
    known.extend(converted![
        stanchion::blocking::BlockingError,
        stanchion::blocking::BlockingError<RenewError>,
    ]);
    // A part of an error, or a value that says why.
    known.extend(parts![
        BrokenBy,
        Limited,
        LostReason,
        NameRule,
        Outage,
        Rejection,
        ServerRejection,
    ]);
    // The error of a layer contains the error of the service behind it, of any type.
    known.push("LayerError".into());
    known.push("BlockingError".into());
    let known: BTreeSet<String> = known.into_iter().collect();
    assert_eq!(all(), known);
}

#[tokio::test]
async fn the_question_mark_works_in_every_function() {
    async fn program(quota: u32) -> Result<(), Error> {
        let client = Client::connect("memory://errors").await?;
        let _quota = Quota::per_second(quota)?;
        let barrier = CyclicBarrier::new(&client, "b", 2)?;
        barrier.wait_timeout(Duration::ZERO).await?;
        Ok(())
    }
    let none = program(0).await.unwrap_err();
    let Error::Primitive(inner) = &none else {
        panic!("{none:?}")
    };
    assert!(inner.is::<InvalidQuota>());
    assert_eq!(
        none.to_string(),
        "invalid quota 0/1s: a quota has 1 permit or more"
    );
    let late = program(1).await.unwrap_err();
    assert!(
        matches!(late, Error::Acquire(AcquireError::TimedOut { .. })),
        "{late:?}"
    );
}

/// The reason of a limiter and of a RedLock is in the text, also after the conversion.
#[tokio::test]
async fn an_error_says_the_same_after_its_conversion() {
    let mut nodes = Vec::new();
    for node in 0..3 {
        let url = format!("memory://errors-{node}");
        nodes.push(Client::connect(url).await.unwrap());
    }
    let hour = Duration::from_secs(3600);
    let quota = Quota::new(1, hour).unwrap();
    let limiter = RateLimiter::new(&nodes[0], "api", quota).unwrap();
    let _ = limiter.acquire().await.unwrap();
    let limited = limiter.acquire_timeout(Duration::ZERO).await.unwrap_err();
    let text = limited.to_string();
    assert!(text.contains("limited: 0 of 1 permits left"), "{text}");
    assert_eq!(Error::from(limited).to_string(), text);
    let lock = RedLock::new(&nodes, "job").unwrap();
    let _held = lock.acquire().await.unwrap();
    let busy = lock.acquire_timeout(Duration::ZERO).await.unwrap_err();
    let text = busy.to_string();
    assert!(text.contains("node 0: held by somebody else"), "{text}");
    assert_eq!(Error::from(busy).to_string(), text);
}

#[cfg(feature = "blocking")]
#[tokio::test]
async fn a_blocking_call_converts_with_its_own_errors() {
    use stanchion::blocking::{Blocking as _, BlockingError};
    let inside: Error = Client::connect("memory://errors")
        .blocking()
        .unwrap_err()
        .into();
    let Error::Primitive(inner) = &inside else {
        panic!("{inside:?}")
    };
    assert!(inner.is::<BlockingError>());
    let failed = BlockingError::Failed(stanchion::Lease::new(Duration::ZERO).unwrap_err());
    assert!(matches!(failed.into(), Error::Lease(_)));
}
