//! Messages to those who hold: that a hold was taken by force, and the request to give it back.
//!
//! A client listens on one channel of its own, from the moment when it has held something for a second; in a cluster on one for each
//! slot in which it holds for longer than a renewal interval. An acquire costs nothing for it; a primitive whose holds are long
//! [begins at once](crate::primitive::Hold::listen). The channel begins with what
//! [`Core::notice`] returns and ends with the client's uuid, so who tells needs to know the holder's owner alone.
//!
//! A message is a hint. On `gone` the holder asks the server (P5: it is lost when the server says so, never by hearsay), on `ask` the
//! guard shows the request. What nobody hears the next renewal finds out.

use std::sync::Arc;
use std::time::Duration;

use crate::description::Tenure;
use crate::error::{QueryError, Rejection};
use crate::hold::state::HoldState;
use crate::name::Name;
use crate::shared::Core;
use crate::watchdog;
use stanchion_transport::{Call, Moment, Placement, Script};

static ASK: Script<1, 4> =
    Script::new("core/ask", crate::noticing!(include_str!("../lua/ask.lua")));

/// The time for which a process holds before its client listens: short holds cost no subscription. A little less than the longest
/// sleep of the timetable, which looks.
const HELD_FOR: Duration = Duration::from_millis(900);

/// The longest reason of a request, in bytes.
const LONGEST_REASON: usize = 200;

/// A request to give a hold back. The holder decides.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReleaseRequest {
    /// The reason that was given: at most 200 bytes, without control characters. Anybody who may publish can send it.
    pub reason: String,
}

/// Answer to a request for release: the number of those who were asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Asked {
    /// The number of holders, at most 1024; 0: it is free.
    pub holders: u32,
    /// The number of processes that have heard it. A process hears it once it has held for a second (in a cluster for a third of
    /// its lease). Redisson's processes do not.
    pub heard: u32,
}

/// A message to those who hold.
#[derive(Debug, PartialEq, Eq)]
enum Notice<'a> {
    /// These were taken by force.
    Gone(Vec<&'a str>),
    /// Any that listens on this channel may have been.
    SomeGone,
    /// These are asked for.
    Asked(Vec<&'a str>, ReleaseRequest),
}

impl<'a> Notice<'a> {
    /// Reads a message; `None` if it is none of these.
    fn read(payload: &'a [u8]) -> Option<Self> {
        if payload == b"gone" {
            return Some(Self::SomeGone);
        }
        let mut parts = payload.splitn(3, |byte| *byte == b' ');
        let (word, numbers) = (parts.next()?, std::str::from_utf8(parts.next()?).ok()?);
        let numbers = numbers.split(',').collect();
        match word {
            b"gone" => Some(Self::Gone(numbers)),
            b"ask" => {
                let reason = String::from_utf8_lossy(parts.next().unwrap_or_default());
                let reason = legible(&reason);
                Some(Self::Asked(numbers, ReleaseRequest { reason }))
            }
            _ => None,
        }
    }
}

/// Makes what a foreign process has sent fit for a terminal and a log.
fn legible(reason: &str) -> String {
    let mut text = String::new();
    for c in reason.chars() {
        let c = if c.is_control() { ' ' } else { c };
        if text.len() + c.len_utf8() > LONGEST_REASON {
            break;
        }
        text.push(c);
    }
    text
}

impl Core {
    /// Returns the beginning of the channel on which each client is told of its holds of `name`. In a cluster it is in the slot of
    /// the name: a script may publish there alone.
    pub(crate) fn notice(&self, name: &Name) -> Vec<u8> {
        let mut channel = match self.placement {
            Placement::Slots => name.slot_key("stanchion_notice"),
            _ => b"stanchion_notice".to_vec(),
        };
        channel.push(b':');
        channel
    }

    fn own_channel(&self, name: &Name) -> Vec<u8> {
        let id = self.id.to_string();
        [self.notice(name), id.into_bytes()].concat()
    }

    /// Listens for messages about `hold`, from now on and at least until it is renewed again.
    pub(crate) fn listen_for(&self, hold: &HoldState) {
        let until = hold.valid_until() + hold.terms.lease.length();
        let name = hold.sync.name();
        if let Some(channel) = hold.sync.notices() {
            self.subscriptions.hear(&channel, until);
        } else if self.placement == Placement::Slots {
            self.subscriptions.hear(&self.own_channel(name), until);
        } else if self.subscriptions.may_hear_for_ever() {
            // One channel for all names, so it is kept.
            self.subscriptions
                .hear(&self.own_channel(name), Moment::FAR);
        }
    }

    /// Begins to listen when a hold has lasted for a while. Called by the timetable's task, at least once a second while anything
    /// is held. Not in a cluster, where it would look at all holds each time: there the first renewal begins it.
    pub(crate) fn listen_if_held(&self) {
        if self.placement == Placement::Slots || !self.subscriptions.may_hear_for_ever() {
            return;
        }
        let now = self.clock.now();
        let lasting = |hold: &HoldState| {
            hold.sync.tenure() == Tenure::Leased
                && hold.sync.notices().is_none()
                && now.since(hold.began()) >= HELD_FOR
        };
        let holds = self.timetable.holds();
        if let Some(hold) = holds.iter().find(|hold| lasting(hold)) {
            self.listen_for(hold);
        }
    }

    /// Handles a message to those who hold. Spawns what waits for the server.
    pub(crate) fn noticed(self: &Arc<Self>, channel: &[u8], payload: &[u8]) {
        let Some(notice) = Notice::read(payload) else {
            return;
        };
        for hold in self.timetable.holds() {
            let number = hold.owner.number();
            match &notice {
                Notice::SomeGone if hold.sync.notices().as_deref() == Some(channel) => {}
                Notice::Gone(numbers) if numbers.contains(&number) => {}
                Notice::Asked(numbers, request) if numbers.contains(&number) => {
                    hold.request(request.clone());
                    continue;
                }
                _ => continue,
            }
            let core = Arc::clone(self);
            self.runner
                .serve(async move { watchdog::verify(&core, &hold).await });
        }
    }

    /// The script that asks the holders of `name` to give it back. `modal`: it is a read-write lock.
    ///
    /// # Errors
    /// The reason breaks a rule.
    pub(crate) fn ask(&self, name: &Name, reason: &str, modal: bool) -> Result<Call, QueryError> {
        if reason.len() > LONGEST_REASON || reason.chars().any(char::is_control) {
            let rule = format!(
                "a reason has at most {LONGEST_REASON} bytes and no control characters; this one has {}: {:?}",
                reason.len(),
                legible(reason)
            );
            let rejection = Rejection::InvalidOption { rule };
            return Err(QueryError::Rejected { rejection });
        }
        let publish = stanchion_transport::Messages::of(self.placement).publish_command();
        Ok(ASK.call(
            [name.as_bytes()],
            [
                self.notice(name).as_slice().into(),
                publish.into(),
                u64::from(modal).into(),
                reason.into(),
            ],
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_are_read_and_anything_else_is_none() {
        assert_eq!(Notice::read(b"gone"), Some(Notice::SomeGone));
        assert_eq!(Notice::read(b"gone 7"), Some(Notice::Gone(vec!["7"])));
        assert_eq!(
            Notice::read(b"gone 7,12"),
            Some(Notice::Gone(vec!["7", "12"]))
        );
        let asked = |payload| match Notice::read(payload) {
            Some(Notice::Asked(numbers, request)) => Some((numbers, request.reason)),
            _ => None,
        };
        assert_eq!(
            asked(b"ask 7 the migration waits"),
            Some((vec!["7"], "the migration waits".into()))
        );
        assert_eq!(asked(b"ask 7"), Some((vec!["7"], String::new())));
        assert_eq!(asked(b"ask 7 a\x1b[2Jb\nc").unwrap().1, "a [2Jb c");
        assert_eq!(asked(b"ask 7 \xff").unwrap().1, "\u{fffd}");
        let long = [b"ask 7 ".as_slice(), "é".repeat(300).as_bytes()].concat();
        assert_eq!(asked(&long).unwrap().1.len(), 200);
        for odd in [&b""[..], b"lost 7", b"ask", b"\xff \xff", b"gone \xff"] {
            assert_eq!(Notice::read(odd), None, "{odd:?}");
        }
    }
}
