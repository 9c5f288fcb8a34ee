//! The scripts, and the descriptions of semaphores that call them.

pub(crate) mod leased;
pub(crate) mod plain;
pub(crate) mod pool;

use stanchion_core::primitive::{Hint, Reply, Request};

/// Reads the sign that follows the number in a busy reply: the request is in line, or is passed over.
fn place_in_line(rest: &[Reply]) -> Hint {
    let sign = rest.first().and_then(Reply::as_int);
    match sign {
        Some(1) => Hint::InLine,
        Some(2) => Hint::Passed,
        _ => Hint::None,
    }
}

/// Returns the argument `waits`, by which a script knows whether a refused request goes on waiting.
fn waits(request: &Request<'_>) -> u64 {
    u64::from(request.waits) + u64::from(request.waits && request.first)
}

/// Builds a script, with the functions in front that it shares with others.
macro_rules! script {
    ($name:literal, $($file:literal)+) => {
        stanchion_core::primitive::Script::new(
            $name,
            concat!($(include_str!(concat!("../../lua/", $file))),+),
        )
    };
}
pub(crate) use script;
