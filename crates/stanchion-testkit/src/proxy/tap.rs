//! Pairing of replies with requests on one connection.

use std::collections::VecDeque;

use crate::resp::{self, NotResp};

use super::Then;

/// A reply that is still due.
#[derive(Debug)]
enum Expected {
    /// A single reply.
    Reply(Option<Then>),
    /// The confirmations of a (un)subscribe command: `left` of them, or an unknown number.
    Confirmations {
        left: Option<usize>,
        started: bool,
        swallow: Option<Then>,
    },
}

/// The treatment of one complete frame from the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    /// Dropped; more of the same reply follows.
    Swallow,
    /// Dropped, and this happens now.
    SwallowThen(Then),
}

/// The replies one connection is waiting for, in order.
#[derive(Debug, Default)]
pub(super) struct Tap {
    expected: VecDeque<Expected>,
    /// True once the connection has subscribed: from then on RESP2 messages are plain arrays.
    subscribed: bool,
}

impl Tap {
    /// Records a request that is passed on now; with `swallow` its reply is to be dropped.
    pub(super) fn sent(&mut self, args: &[Vec<u8>], swallow: Option<Then>) {
        let name = args[0].to_ascii_lowercase();
        let bare = name
            .strip_prefix(b"p")
            .or_else(|| name.strip_prefix(b"s"))
            .unwrap_or(&name);
        let named = Some(args.len() - 1).filter(|n| *n > 0);
        let is_subscribe = name == b"subscribe" || bare == b"subscribe";
        let is_unsubscribe = name == b"unsubscribe" || bare == b"unsubscribe";
        self.subscribed |= is_subscribe;
        self.expected.push_back(if is_subscribe || is_unsubscribe {
            Expected::Confirmations {
                left: named,
                started: false,
                swallow,
            }
        } else {
            Expected::Reply(swallow)
        });
    }

    /// Decides the treatment of a complete frame from the server.
    pub(super) fn received(&mut self, frame: &[u8]) -> Result<Verdict, NotResp> {
        match self.kind(frame)? {
            Kind::Message => Ok(Verdict::Pass),
            Kind::Subscribed => {
                self.drop_finished();
                Ok(self.confirmed())
            }
            Kind::Unsubscribed => Ok(self.confirmed()),
            Kind::Reply => Ok(self.replied()),
        }
    }

    fn kind(&self, frame: &[u8]) -> Result<Kind, NotResp> {
        let is_push = frame[0] == b'>';
        let may_be_message = is_push || (self.subscribed && frame[0] == b'*');
        if !may_be_message {
            return Ok(Kind::Reply);
        }
        let texts = resp::texts(frame)?;
        let word = texts.first().map(Vec::as_slice).unwrap_or_default();
        Ok(match word {
            b"subscribe" | b"psubscribe" | b"ssubscribe" => Kind::Subscribed,
            b"unsubscribe" | b"punsubscribe" | b"sunsubscribe" => Kind::Unsubscribed,
            b"message" | b"pmessage" | b"smessage" => Kind::Message,
            _ if is_push => Kind::Message,
            _ => Kind::Reply,
        })
    }

    fn confirmed(&mut self) -> Verdict {
        let Some(Expected::Confirmations {
            left,
            started,
            swallow,
        }) = self.expected.front_mut()
        else {
            // The server ended a subscription without a request, as when a slot moves.
            return Verdict::Pass;
        };
        *started = true;
        let swallow = *swallow;
        *left = left.map(|n| n - 1);
        let more = left.is_some_and(|n| n > 0);
        if *left == Some(0) {
            self.expected.pop_front();
        }
        match swallow {
            None => Verdict::Pass,
            Some(_) if more => Verdict::Swallow,
            Some(then) => Verdict::SwallowThen(then),
        }
    }

    fn replied(&mut self) -> Verdict {
        self.drop_finished();
        let swallow = match self.expected.pop_front() {
            Some(Expected::Reply(swallow) | Expected::Confirmations { swallow, .. }) => swallow,
            // Output of MONITOR.
            None => None,
        };
        swallow.map_or(Verdict::Pass, Verdict::SwallowThen)
    }

    /// Removes an unsubscribe from everything, whose number of confirmations is unknown, once another frame arrives.
    fn drop_finished(&mut self) {
        while let Some(Expected::Confirmations {
            left: None,
            started: true,
            ..
        }) = self.expected.front()
        {
            self.expected.pop_front();
        }
    }
}

enum Kind {
    Reply,
    Subscribed,
    Unsubscribed,
    Message,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(tap: &mut Tap, text: &str, swallow: Option<Then>) {
        let args: Vec<_> = text.split(' ').map(|a| a.as_bytes().to_vec()).collect();
        tap.sent(&args, swallow);
    }

    fn got(tap: &mut Tap, frame: &str) -> Verdict {
        tap.received(frame.replace(' ', "\r\n").as_bytes()).unwrap()
    }

    const RESET: Verdict = Verdict::SwallowThen(Then::Reset);

    #[test]
    fn replies_are_counted_and_pushes_are_not() {
        let mut tap = Tap::default();
        sent(&mut tap, "HELLO 3", None);
        sent(&mut tap, "GET k", Some(Then::Reset));
        sent(&mut tap, "PING", None);
        assert_eq!(got(&mut tap, "%1 +proto :3 "), Verdict::Pass);
        assert_eq!(got(&mut tap, ">2 +message +x "), Verdict::Pass);
        assert_eq!(got(&mut tap, "$1 v "), RESET);
        assert_eq!(got(&mut tap, "+PONG "), Verdict::Pass);
    }

    #[test]
    fn a_subscription_has_as_many_confirmations_as_channels() {
        for array in ["*", ">"] {
            let mut tap = Tap::default();
            sent(&mut tap, "SUBSCRIBE a b", None);
            sent(&mut tap, "PING", Some(Then::Reset));
            let frame = |word: &str| format!("{array}3 +{word} +a :1 ");
            assert_eq!(got(&mut tap, &frame("subscribe")), Verdict::Pass);
            assert_eq!(got(&mut tap, &frame("message")), Verdict::Pass);
            assert_eq!(got(&mut tap, &frame("subscribe")), Verdict::Pass);
            assert_eq!(got(&mut tap, "+PONG "), RESET, "{array}");
        }
    }

    #[test]
    fn all_confirmations_of_a_swallowed_subscription_are_kept() {
        let mut tap = Tap::default();
        sent(&mut tap, "SSUBSCRIBE a b", Some(Then::Reset));
        assert_eq!(got(&mut tap, "*3 +ssubscribe +a :1 "), Verdict::Swallow);
        assert_eq!(got(&mut tap, "*3 +ssubscribe +b :2 "), RESET);
    }

    #[test]
    fn a_refused_subscription_has_one_error() {
        let mut tap = Tap::default();
        sent(&mut tap, "SSUBSCRIBE a b", None);
        sent(&mut tap, "PING", Some(Then::Reset));
        assert_eq!(got(&mut tap, "-MOVED "), Verdict::Pass);
        assert_eq!(got(&mut tap, "+PONG "), RESET);
    }

    #[test]
    fn an_unsubscribe_from_everything_ends_with_the_next_reply() {
        let mut tap = Tap::default();
        sent(&mut tap, "SUBSCRIBE a b", None);
        sent(&mut tap, "UNSUBSCRIBE", None);
        sent(&mut tap, "SUBSCRIBE c", None);
        sent(&mut tap, "PING", Some(Then::Reset));
        let unsubscribed = ["unsubscribe", "unsubscribe", "subscribe"];
        for word in ["subscribe", "subscribe"].iter().chain(&unsubscribed) {
            assert_eq!(got(&mut tap, &format!("*3 +{word} +a :1 ")), Verdict::Pass);
        }
        assert_eq!(got(&mut tap, "+PONG "), RESET);
    }

    #[test]
    fn an_array_that_looks_like_a_message_is_a_reply_without_subscription() {
        let mut tap = Tap::default();
        sent(&mut tap, "LRANGE k 0 -1", Some(Then::Reset));
        assert_eq!(got(&mut tap, "*1 +message "), RESET);
    }
}
