//! The messages about the entry of this process in a queue on the server: see `docs/protocol.md#messages`.

use std::time::Duration;

use crate::description::{Granted, Heard};
use crate::token::FencingToken;

/// Reads a message about an entry of this process. After one that is not understood, the first waiter sends a request.
#[must_use]
pub fn hear(payload: &[u8]) -> Heard<'_> {
    read(payload).unwrap_or(Heard::Free)
}

fn read(payload: &[u8]) -> Option<Heard<'_>> {
    // The counter is the last part, and a name may have spaces.
    let mut parts = std::str::from_utf8(payload).ok()?.splitn(6, ' ');
    let number = |text: Option<&str>| text?.parse::<u64>().ok();
    let (word, owner) = (parts.next()?, parts.next()?);
    let heard = match word {
        "G" => Heard::Granted(Granted {
            owner,
            token: FencingToken::new(number(parts.next())?),
            now: number(parts.next())?,
            lease: Duration::from_millis(number(parts.next())?),
            fence: parts.next()?,
        }),
        "N" => Heard::Head(owner, Duration::from_millis(number(parts.next())?)),
        "P" => Heard::Try(owner, Duration::from_millis(number(parts.next())?)),
        _ => return None,
    };
    parts.next().is_none().then_some(heard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_not_understood_wakes_the_first() {
        let granted = Heard::Granted(Granted {
            owner: "u:7",
            token: FencingToken::new(9),
            now: 5,
            lease: Duration::from_millis(1500),
            fence: "the counter",
        });
        assert_eq!(hear(b"G u:7 9 5 1500 the counter"), granted);
        let head = Heard::Head("u:7", Duration::from_secs(30));
        assert_eq!(hear(b"N u:7 30000"), head);
        assert_eq!(hear(b"P u:7 0"), Heard::Try("u:7", Duration::ZERO));
        for odd in [
            &b"A"[..],
            b"",
            b"0",
            b"G u:7 9 5 1500",
            b"G u:7 x 5 1500 -",
            b"N u:7 -1",
            b"N 30000",
            b"P u:7 x",
            b"\xff",
        ] {
            assert_eq!(hear(odd), Heard::Free, "{odd:?}");
        }
    }
}
