//! Messages to holders: a hold was taken by force, or a client requests that it is given back.
//!
//! A client subscribes to one channel of its own once it has held something for a second. In a cluster it subscribes to one channel for each slot in
//! which it holds for longer than a renewal interval. An acquire does not pay for this; a primitive with long holds [subscribes at
//! once](crate::primitive::Hold::listen). The channel begins with the result of [`Wire::notice`](crate::wire::Wire::notice) and ends with the client's uuid, so a sender needs
//! only the holder's owner.
//!
//! A message is a hint. After `gone` the holder checks with the server (P5: a hold is lost when the server says so, never because of a message).
//! After `ask` the guard shows the request. If `gone` is not received, the next renewal finds the loss.

use crate::error::{QueryError, Rejection};
use crate::hold::holds::Holds;
use crate::hold::request::ReleaseRequest;
use crate::name::Name;
use crate::watchdog;
use stanchion_transport::{Call, Script};

static ASK: Script<1, 4> =
    Script::new("core/ask", crate::noticing!(include_str!("../lua/ask.lua")));

/// The longest reason of a request, in bytes.
const LONGEST_REASON: usize = 200;

/// The reply to a request for release: the numbers of holders and of processes that the request reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Asked {
    /// The number of holders, at most 1024; 0 if the name is free.
    pub holders: u32,
    /// The number of processes that received the request. A process is subscribed once it has held for a second (in a cluster for a third of its
    /// lease). Redisson's processes are not.
    pub heard: u32,
}

/// A message to holders.
#[derive(Debug, PartialEq, Eq)]
enum Notice<'a> {
    /// The holds with these numbers were taken by force.
    Gone(Vec<&'a str>),
    /// Any hold that uses this channel may have been taken by force.
    SomeGone,
    /// The release of the holds with these numbers is requested.
    Asked(Vec<&'a str>, ReleaseRequest),
}

impl<'a> Notice<'a> {
    /// Reads a message; `None` for any other payload.
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

/// Makes text from a foreign process safe for a terminal and a log.
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

impl Holds {
    /// Handles a message to holders. Spawns the part that waits for the server.
    pub(crate) fn noticed(&self, channel: &[u8], payload: &[u8]) {
        let Some(notice) = Notice::read(payload) else {
            return;
        };
        for hold in self.live_holds() {
            let number = hold.debt.owner.number();
            match &notice {
                Notice::SomeGone if hold.sync.about().notices.as_deref() == Some(channel) => {}
                Notice::Gone(numbers) if numbers.contains(&number) => {}
                Notice::Asked(numbers, request) if numbers.contains(&number) => {
                    hold.request(request.clone());
                    continue;
                }
                _ => continue,
            }
            let Some(core) = self.client.upgrade() else {
                return;
            };
            self.runner
                .serve(async move { _ = watchdog::verify(&core, &hold).await });
        }
    }

    /// The script that sends the holders of `name` a request for release. `modal`: the name is a read-write lock.
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
