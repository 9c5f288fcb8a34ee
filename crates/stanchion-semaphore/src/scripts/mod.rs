//! The scripts, and how the descriptions of semaphores call them.

pub(crate) mod leased;
pub(crate) mod plain;
pub(crate) mod pool;

use stanchion_core::primitive::{Hint, Reply, Request};

/// What a busy reply says beyond its number: that the request stands in line, or is passed over.
fn place_in_line(rest: &[Reply]) -> Hint {
    let sign = rest.first().and_then(Reply::as_int);
    let mut hint = Hint::default();
    hint.queued = sign == Some(1);
    hint.passed = sign == Some(2);
    hint
}

/// What the request does when it is refused, as the scripts read it.
fn waits(request: &Request<'_>) -> u64 {
    u64::from(request.waits) + u64::from(request.waits && request.first)
}

/// A script, with the functions in front that it shares with others.
macro_rules! script {
    ($name:literal, $($file:literal)+) => {
        stanchion_core::primitive::Script::new(
            $name,
            concat!($(include_str!(concat!("../../lua/", $file))),+),
        )
    };
}
pub(crate) use script;
