//! The object of a wait, and the right to an entry, as plain values.

use stanchion_client::local_queue::{Owed, Parts, Want};
use stanchion_client::primitive::Sharing;

/// A synchronizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) sharing: Sharing,
    /// The server keeps a queue of processes.
    pub(crate) in_line: bool,
    pub(crate) is_fact: bool,
}

impl Want for Wish {
    fn sharing(&self) -> Sharing {
        self.sharing
    }

    fn is_in_line(&self) -> bool {
        self.in_line
    }

    fn is_fact(&self) -> bool {
        self.is_fact
    }

    fn fence(&self) -> &[u8] {
        b"-"
    }

    fn is_handed(&self, held: &Self) -> bool {
        self.sharing == held.sharing
    }

    fn shares_entry(&self, other: &Self) -> bool {
        self.sharing == other.sharing
    }

    fn continues_entry(&self, _: &Self) -> bool {
        false
    }
}

/// The right to an entry.
#[derive(Clone, Debug)]
pub(crate) struct Right(pub(crate) Wish, pub(crate) String);

impl<P: Parts<Want = Wish, Owner = String>> Owed<P> for Right {
    fn want(&self) -> &Wish {
        &self.0
    }

    fn owner(&self) -> &String {
        &self.1
    }

    fn is_unanswered(&self) -> bool {
        false
    }

    fn pass_to(&self, _: &Self) -> Self {
        self.clone()
    }
}
