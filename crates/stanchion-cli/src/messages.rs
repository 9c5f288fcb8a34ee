//! The sentences of the commands that acquire, release and watch, in one place, so that their wording is reviewed together.
//!
//! A message begins without a capital, has no full stop, and begins with its subject. The parameter `who` is a process
//! (`billing@web-2 pid 4711`), or the short form of an owner without a known process. A number of seconds is written by [`age`], as the options take it.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::wording::{age, printable};

// While waiting.

/// The first line of a command that waits. `why`: the holders, or the reason that they are not known.
pub(crate) fn waiting_for(name: &impl Display, why: Option<&str>) -> String {
    match why {
        Some(why) => format!("waiting for {name} ({why})"),
        None => format!("waiting for {name}"),
    }
}

pub(crate) fn held_by(who: &str, lease: Option<Duration>) -> String {
    format!("held by {who}, {}", lease_left(lease))
}

pub(crate) fn with_queue(held: &str, queued: u64) -> String {
    format!("{held}; {queued} in the queue")
}

pub(crate) fn held_by_readers(readers: u64) -> String {
    format!("held by {readers} readers")
}

pub(crate) fn permits_held(taken: u32, all: i64, first_lease: Option<Duration>) -> String {
    match first_lease {
        Some(left) => format!(
            "{taken} of {all} held, the first lease has {} left",
            age(left)
        ),
        None => format!("{taken} of {all} held"),
    }
}

pub(crate) fn led_by(value: &str) -> String {
    format!("led by {value}")
}

/// The rest of a lease.
pub(crate) fn lease_left(left: Option<Duration>) -> String {
    match left {
        Some(left) => format!("{} left", age(left)),
        None => "which has no end, as no lock of stanchion or Redisson does".into(),
    }
}

// Not acquired.

/// `holders` as the functions above write them.
pub(crate) fn is(name: &impl Display, holders: &str) -> String {
    format!("{name} is {holders}")
}

pub(crate) fn taken(name: &impl Display) -> String {
    format!("{name} is held by another process")
}

pub(crate) fn taken_by_writer(name: &impl Display) -> String {
    format!("{name} is held by a writer")
}

pub(crate) fn all_permits_taken(name: &impl Display) -> String {
    format!("all permits of {name} are held by others")
}

pub(crate) fn led_by_another(name: &impl Display) -> String {
    format!("another candidate leads {name}")
}

pub(crate) fn led_by_none(name: &str) -> String {
    format!("nobody leads {}", printable(name))
}

pub(crate) fn parties_missing(name: &str, parties: u32) -> String {
    format!("not all {parties} parties of {} have come", printable(name))
}

pub(crate) fn gave_up(taken: &str, waited: Duration) -> String {
    format!("{taken}; gave up after {}", age(waited))
}

pub(crate) fn use_option(name: &str, what: &str, option: &str) -> String {
    format!("{} is {what}: use {option}", printable(name))
}

pub(crate) fn no_election(name: &str, what: &str) -> String {
    format!(
        "{} is {what}: give the election its own name",
        printable(name)
    )
}

pub(crate) fn job_rests(name: &str, left: Duration) -> String {
    format!("{name} has run, and rests for {}", age(left))
}

pub(crate) fn job_has_run(name: &str, tick: &impl Display, at: &impl Display) -> String {
    format!("{name} has been run for {tick}, at {at}")
}

pub(crate) fn job_has_run_later(
    name: &str,
    asked: &impl Display,
    last: &impl Display,
    at: &impl Display,
) -> String {
    format!("{name} has run a later moment than {asked}: {last}, at {at}")
}

// The steps of a run.

pub(crate) fn again(failure: &impl Display) -> String {
    format!("{failure}; trying again")
}

pub(crate) fn connected(version: &impl Display) -> String {
    format!("connected to a server of version {version}")
}

pub(crate) fn acquired(name: &str, after: Duration, token: Option<impl Display>) -> String {
    let after = age(after);
    match token {
        Some(token) => format!("acquired {name} after {after}, fencing token {token}"),
        None => format!("acquired {name} after {after}"),
    }
}

/// `run` without a command.
pub(crate) fn holding(name: &str) -> String {
    format!("holding {}: Ctrl-C releases it", printable(name))
}

pub(crate) fn held_by_outer_run(name: &str) -> String {
    format!(
        "{} is held by the `run` that started this command, which keeps it until this command has ended",
        printable(name)
    )
}

pub(crate) fn asked_for(name: &str, reason: &str) -> String {
    match reason {
        "" => format!("release of {name} requested"),
        reason => format!("release of {name} requested: {reason}"),
    }
}

pub(crate) fn lost(name: &str, reason: &impl Display) -> String {
    format!("lost {name}: {reason}")
}

pub(crate) fn left_behind(name: &str, processes: usize, first: &str, pid: i32) -> String {
    let what = match processes {
        1 => format!("a process that it started runs on ({first}, pid {pid})"),
        n => format!("{n} processes that it started run on (such as {first}, pid {pid})"),
    };
    format!("the command has ended, but {what}: {name} stays held until that ends")
}

pub(crate) fn may_not_kill(process: &str, pid: i32) -> String {
    format!("not permitted to kill {process}, pid {pid}: waiting for its end")
}

pub(crate) fn stays_held(name: &str, left: Duration) -> String {
    format!("{name} stays held for {}", age(left))
}

pub(crate) fn not_released(name: &str, lease: Duration) -> String {
    let lease = age(lease);
    format!("could not release {name}: no answer from the server; it expires in at most {lease}")
}

pub(crate) fn next_campaign(pause: Duration) -> String {
    format!("the next campaign in {}", age(pause))
}

pub(crate) fn server_started(url: &str) -> String {
    format!(
        "no URL is given: the lock is for your programs on this machine alone; started a server for them, {url}"
    )
}

pub(crate) fn server_found(url: &str) -> String {
    format!("no URL is given: using your server on this machine, {url}")
}

pub(crate) fn other_permits(name: &str, there: i64, wanted: u32) -> String {
    format!(
        "{name} has {there} permits, not {wanted}: `stanchion permits {name} set {wanted}` changes that"
    )
}

// Releases.

pub(crate) fn released(name: &str) -> String {
    format!("{}: released", printable(name))
}

pub(crate) fn released_from(name: &str, who: &str) -> String {
    format!("{}: released from {who}", printable(name))
}

pub(crate) fn was_free(name: &str) -> String {
    format!("{}: was free", printable(name))
}

pub(crate) fn hold_had_ended(name: &str) -> String {
    format!("{}: this hold had ended", printable(name))
}

pub(crate) fn is_held_by(name: &str, who: &str) -> String {
    format!("{} is held by {who}.", printable(name))
}

/// When the holder of a name that was released by force learns of that, if not by message. A holder renews after a third of its lease, so
/// the rest of the lease bounds the time to its next renewal.
pub(crate) fn holder_learns(left: Duration) -> String {
    let (soon, late) = (age(left / 3), age(left));
    format!(
        "The holder is told. If it is alive and the message does not reach it, it finds out at its next renewal, within {soon}, or \
         if that fails when its lease has ended, within {late}. Until then it continues to work, next to the new holder."
    )
}

/// What a forced release means, before it is confirmed.
pub(crate) fn force_means(left: Option<Duration>) -> String {
    let soon = left.map_or_else(String::new, |left| format!(" (within {})", age(left / 3)));
    format!(
        "The holder is told. If the message does not reach it, it continues to work until its next renewal{soon},\n\
         next to the new holder. Only data whose store checks fencing tokens is protected from both."
    )
}

pub(crate) fn no_terminal() -> &'static str {
    "there is no terminal to ask on: confirm with --yes. Nothing was done"
}

pub(crate) fn holder_changed() -> &'static str {
    "The holder has changed meanwhile."
}

// Events of a name.

pub(crate) fn acquired_by(who: &str) -> String {
    format!("acquired by {who}")
}

pub(crate) fn released_by(who: &str) -> String {
    format!("released by {who}")
}

pub(crate) fn waiting(processes: u64) -> String {
    format!("{processes} waiting")
}

pub(crate) fn left(number: i64) -> String {
    format!("{number} left")
}

pub(crate) fn no_answer(why: &impl Display) -> String {
    format!("the server does not answer: {why}")
}

pub(crate) fn answers_again() -> &'static str {
    "the server answers again"
}

// Lists.

/// A list of what processes publish is empty.
pub(crate) fn nothing_published() -> &'static str {
    "No process has published that it holds or waits for such a name. `stanchion ls --scan` searches every key."
}

pub(crate) fn nothing_found(keys: u64) -> String {
    format!("No names among {keys} keys.")
}

pub(crate) fn scan_stopped(keys: u64) -> String {
    format!("Stopped after {keys} keys: there may be more. --budget sets the time.")
}

/// A list lacks servers that did not answer.
pub(crate) fn partial(servers: &str) -> String {
    format!("partial: {servers}")
}

pub(crate) fn server_is_silent(server: &str, why: &str) -> String {
    format!("{server} does not answer ({why})")
}

pub(crate) fn no_clients() -> &'static str {
    "No process of stanchion is connected, or none may name its connections (+client|setname)."
}

pub(crate) fn may_not_read_published() -> &'static str {
    "this user may not read what processes publish (~stanchion_client*): use ls --scan"
}

// Live.

/// The display is empty.
pub(crate) fn nothing_live() -> &'static str {
    "No process has published that it holds or waits. Names appear after 5 s of a hold, 1 s of a wait."
}

pub(crate) fn no_match() -> &'static str {
    "No name matches the filter."
}

pub(crate) fn no_selection() -> &'static str {
    "No name is selected: up, down, j and k select one."
}

/// The rows of a list that do not fit.
pub(crate) fn more(above: usize, below: usize) -> String {
    match (above, below) {
        (0, below) => format!("{below} more"),
        (above, 0) => format!("{above} above"),
        (above, below) => format!("{above} above, {below} more"),
    }
}

// The exporter.

pub(crate) fn serves_metrics(address: SocketAddr) -> String {
    format!("metrics are at http://{address}/metrics")
}

pub(crate) fn cannot_listen(address: SocketAddr, error: &io::Error) -> String {
    format!("{address} cannot be listened on: {error}")
}

pub(crate) fn survey_failed(failure: &impl Display) -> String {
    format!("the survey failed, and is repeated: {failure}")
}

pub(crate) fn surveys_again() -> &'static str {
    "the server is surveyed again"
}

/// The keys of `top`.
pub(crate) const KEYS_OF_TOP: [&str; 9] = [
    "up, k  down, j    select a name; also Page Up, Page Down, Home, End",
    "Enter             everything about the selected name",
    "f                 take the lock from its holder, after a question",
    "s                 sort by waiters, longest wait, age of the hold, name",
    "/                 show names and holders that contain a text",
    "Esc               show all again, or end",
    "q, Ctrl-C         end",
    "",
    "Any key goes back.",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_the_options_take_them() {
        let long = Duration::from_secs(372);
        assert_eq!(
            gave_up("job is held", long),
            "job is held; gave up after 6m12s"
        );
        assert_eq!(crate::duration::parse(&age(long)), Ok(long));
    }
}
