//! A kind of synchronizer: its scripts and properties.

use std::fmt::Debug;

use stanchion_client::primitive::Sharing;
use stanchion_explorer::Call;

/// The scripts of a synchronizer, and the properties that the client knows. `Debug` distinguishes kinds of processes.
pub(crate) trait Kind: Copy + Debug + PartialEq + 'static {
    /// True if a grant by message is a call to confirm it, and a hold has no lease: plain permits.
    const CONFIRMS: bool = false;
    /// Redisson's channel of each name.
    const BASES: &'static [&'static str] = &["base"];

    fn sharing(&self) -> Sharing;
    /// The counter of the tokens, `-` for none.
    fn fence(&self) -> &'static str {
        "-"
    }
    fn acquire(&self, ask: &Ask) -> Call;
    /// `leaves`: `1` to give up the entry in the queue, too; otherwise `0`.
    fn release(&self, owner: &str, leaves: &str) -> Call;
    fn renew(&self, owner: &str, not_after: &str) -> Call;
    /// `sentry`: the uuid of the process if it is the relay and Redisson has released, or ``.
    fn tend(&self, sentry: &str) -> Call;
    /// Releases for one owner and acquires for another of the same process; `None` if the kind has no hand-off.
    fn hand_off(&self, _from: &str, _to: &str, _not_after: &str) -> Option<Call> {
        None
    }
    /// Releases for one owner and makes the first request of another of the same process; `None` if the kind has no such script.
    fn release_and_acquire(&self, _from: &str, _ask: &Ask) -> Option<Call> {
        None
    }
    /// The name in whose local queue a waiter begins.
    fn first_name(&self) -> usize {
        0
    }
    /// Returns whether a client of Redisson's uses the name, too.
    fn is_beside_redisson(&self) -> bool {
        false
    }
    /// Returns whether it wants several names, all or none.
    fn is_of_several(&self) -> bool {
        false
    }
    /// Returns whether the server keeps an entry for each waiter, not for each process.
    fn keeps_waiters(&self) -> bool {
        self.sharing() == Sharing::Queued
    }
    fn is_handed_off(&self) -> bool {
        self.hand_off("", "", "").is_some()
    }
}

/// The parameters of a request.
#[derive(Default)]
pub(crate) struct Ask {
    pub(crate) owner: String,
    pub(crate) word: String,
    pub(crate) not_after: String,
    /// The start of the acquire.
    pub(crate) began: String,
    /// The arrival of its entry, 0 without one.
    pub(crate) arrived: u64,
    /// True if the subscription to messages is confirmed.
    pub(crate) hears: bool,
}

/// Makes the call of a script.
pub(crate) fn call(script: &'static str, keys: &[&str], args: &[&str]) -> Call {
    let [keys, args] = [keys, args].map(|texts| texts.iter().map(|&it| it.to_owned()).collect());
    Call { script, keys, args }
}
