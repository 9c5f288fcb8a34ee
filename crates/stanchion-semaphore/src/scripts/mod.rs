//! The scripts, and how the descriptions of semaphores call them.

pub(crate) mod leased;
pub(crate) mod plain;
pub(crate) mod pool;

use stanchion_core::primitive::{Hint, Reply};

/// What a busy reply says beyond its number: that the request stands in line.
fn place_in_line(rest: &[Reply]) -> Hint {
    let mut hint = Hint::default();
    hint.queued = !rest.is_empty();
    hint
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
