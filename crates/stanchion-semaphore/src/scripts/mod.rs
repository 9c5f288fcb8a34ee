//! The scripts, and the descriptions of semaphores that call them.

pub(crate) mod leased;
pub(crate) mod plain;
pub(crate) mod pool;

use stanchion_client::primitive::{Arg, Hint, Reason, Reply, Request, Role, Sign};

use crate::keys::Keys;

/// Reads the rest of a busy reply, after the server's time: whether the request is in the line or was skipped, and
/// the role of this process as a relay of Redisson's releases.
fn hint(rest: &[Reply]) -> Hint {
    let number = |at: usize| rest.get(at).and_then(Reply::as_int);
    Hint::Waits {
        sign: match number(0) {
            Some(1) => Sign::InLine,
            Some(2) => Sign::Passed,
            _ => Sign::None,
        },
        role: Role::read(number(1)),
    }
}

/// Returns the argument `client`: the uuid of the client, if a message can wake it.
fn client<'a>(keys: &'a Keys, request: &Request<'_>) -> Arg<'a> {
    let wakes = request.waits && !request.approach.polls;
    if wakes {
        keys.crowd.client.as_str()
    } else {
        ""
    }
    .into()
}

/// Returns the argument `flags`: see plain/acquire.lua.
fn flags(request: &Request<'_>) -> u64 {
    let wakes = request.waits && !request.approach.polls;
    let reason = match request.approach.reason {
        Reason::Told => 1,
        Reason::Reply => 8,
        _ => 0,
    };
    let others = u64::from(wakes && request.approach.others);
    reason + hears(request) + 4 * others + 16 * u64::from(request.approach.surplus)
}

/// Returns the argument `flags` of a hand-off: see plain/hand_off.lua.
fn waiting(request: &Request<'_>) -> u64 {
    let approach = &request.approach;
    hears(request) + 4 * u64::from(approach.others && !approach.polls)
}

fn hears(request: &Request<'_>) -> u64 {
    2 * u64::from(request.approach.hears)
}

/// Returns the argument `waits`: whether the request waits when it is refused.
fn waits(request: &Request<'_>) -> u64 {
    u64::from(request.waits) + u64::from(request.waits && request.first)
}

/// The text of a script with the functions for waiters in the place of its line `-- @crowd.lua`; `$file`: more of them.
macro_rules! crowded {
    ($text:expr $(, $file:literal)*) => {
        stanchion_client::woven!(
            $text,
            stanchion_client::primitive::LuaPart::new(
                "-- @crowd.lua\n",
                concat!(
                    include_str!("../../lua/pool/line.lua"),
                    include_str!("../../lua/pool/crowd.lua"),
                    $(include_str!(concat!("../../lua/", $file))),*
                )
            )
        )
    };
}
pub(crate) use crowded;

/// Builds a script. In front are functions that it shares with other scripts.
macro_rules! script {
    ($name:literal, $($file:literal)+ => crowded $(with $more:literal)*) => {
        stanchion_client::primitive::Script::new(
            $name,
            $crate::scripts::crowded!(concat!($(include_str!(concat!("../../lua/", $file))),+) $(, $more)*),
        )
    };
    ($name:literal, $($file:literal)+) => {
        stanchion_client::primitive::Script::new(
            $name,
            concat!($(include_str!(concat!("../../lua/", $file))),+),
        )
    };
}
pub(crate) use script;
