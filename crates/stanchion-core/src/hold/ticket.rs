//! A hold that is detached from its guard, so that another process can adopt it, or this process after a restart.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use serde::{Deserialize, Serialize};
use stanchion_transport::Printable;

use uuid::Uuid;

use super::claim::Claim;
use super::debt::Debt;
use super::handle::Hold;
use super::release::end;
use super::renew::in_time;
use super::state::HoldState;
use super::sweep::tend_after;
use crate::description::{End, Verdict};
use crate::error::{AdoptError, InvalidTicket, LostReason, Rejection, RenewError};
use crate::field::detach_field;
use crate::hold::holds::Holds;
use crate::lease::Lease;
use crate::name::Name;
use crate::observe::span;
use crate::token::FencingToken;
use crate::wire::Retries;
use crate::wire_owner::WireOwner;
use stanchion_transport::{Failure, Moment, Path, Persistent};

/// Bytes of a name that are escaped in a ticket. They make a ticket one word, safe in any shell's quotes and in a URL's path.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'%')
    .add(b'\'')
    .add(b'"')
    .add(b'\\')
    .add(b'`')
    .add(b'$');

/// The first word of a ticket, with the version of the format.
const FORM: &str = "stanchion2";

/// The number of hexadecimal digits in a ticket's secret.
const SECRET: usize = 32;

/// A hold that was detached from its guard, as a line of text. The hold lasts until its lease ends, unless a client adopts it.
///
/// The ticket contains a secret. The server stores a digest of the secret as the owner of the hold, so a ticket
/// cannot be made from data that the server shows. Any client that has the ticket can take over the hold, once: keep
/// the ticket as you would keep the guard. The secret gives no other access. `Debug` does not show the secret.
/// The serialized form of a ticket is its text.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct HoldTicket {
    kind: String,
    /// The client that detached the hold.
    client: Uuid,
    secret: String,
    /// Derived from `client` and `secret`.
    owner: WireOwner,
    token: Option<FencingToken>,
    lease: Lease,
    /// The end that `max_hold` sets, server time in µs; 0 without one.
    until: u64,
    name: Vec<u8>,
}

impl HoldTicket {
    /// The name that is held, with the key prefix of the client that held it.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The kind of the synchronizer, as in metrics: `lock`, `fair_lock`.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The owner that the server stores as the holder until a client adopts the hold.
    #[must_use]
    pub fn owner(&self) -> &str {
        self.owner.as_str()
    }

    /// The fencing token of the hold until it is adopted. The client that adopts the hold gets a larger one.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.token
    }

    /// The lease of the hold, which began when the hold was detached.
    #[must_use]
    pub fn lease(&self) -> Lease {
        self.lease
    }

    /// Returns the owner, if this ticket is for a hold of that kind and name.
    pub(crate) fn is_for(&self, kind: &str, name: &Name) -> Result<WireOwner, AdoptError> {
        let kind = word(kind);
        if self.kind != kind || self.name != name.as_bytes() {
            return Err(AdoptError::Other {
                kind: self.kind.clone(),
                theirs: Printable::new(&self.name).to_string(),
                ours: format!("{kind} {name}"),
            });
        }
        Ok(self.owner.clone())
    }

    /// The end that the `max_hold` of the detached hold sets (P10).
    pub(crate) fn until(&self, core: &Holds, name: &Name) -> Moment {
        match self.until {
            0 => Moment::FAR,
            until => core.moment_of(name, until),
        }
    }
}

/// The name of a kind as one word.
fn word(kind: &str) -> String {
    kind.replace(' ', "_")
}

impl fmt::Display for HoldTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.map_or(0, FencingToken::get);
        write!(
            f,
            "{FORM}/{}/{}:{}/{token}/{}/{}/{}",
            self.kind,
            self.client,
            self.secret,
            self.lease.millis(),
            self.until,
            percent_encode(&self.name, ESCAPED)
        )
    }
}

impl fmt::Debug for HoldTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldTicket")
            .field("kind", &self.kind)
            .field("name", &String::from_utf8_lossy(&self.name))
            .field("owner", &self.owner)
            .field("token", &self.token)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

impl FromStr for HoldTicket {
    type Err = InvalidTicket;

    fn from_str(text: &str) -> Result<Self, InvalidTicket> {
        let fail = |rule| InvalidTicket {
            text: text.chars().take(200).collect(),
            rule,
        };
        let text = text.trim();
        let mut parts = text.splitn(7, '/');
        let mut next = || {
            parts
                .next()
                .ok_or_else(|| fail("it has seven parts, with slashes between them"))
        };
        if next()? != FORM {
            return Err(fail("it begins with stanchion2/"));
        }
        let (kind, owner) = (next()?, next()?);
        if kind.is_empty() || !kind.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') {
            return Err(fail("its kind is a word, as lock"));
        }
        let owner = owner.split_once(':').and_then(|(client, secret)| {
            let hex = secret.len() == SECRET && secret.bytes().all(|b| b.is_ascii_hexdigit());
            Some((client.parse::<Uuid>().ok()?, Some(secret).filter(|_| hex)?))
        });
        let Some((client, secret)) = owner else {
            return Err(fail("its owner is <uuid>:<32 hexadecimal digits>"));
        };
        let number = |part: &str, rule| part.parse::<u64>().map_err(|_| fail(rule));
        let token = number(next()?, "its token is a number")?;
        let lease = number(next()?, "its lease is a number of milliseconds")?;
        let lease = Lease::new(std::time::Duration::from_millis(lease))
            .map_err(|_| fail("its lease is 10 ms to 30 days"))?;
        let until = number(next()?, "its end is a number of microseconds")?;
        let name: Vec<u8> = percent_decode_str(next()?).collect();
        if name.is_empty() {
            return Err(fail("it has a name"));
        }
        Ok(Self {
            kind: kind.to_owned(),
            client,
            secret: secret.to_owned(),
            owner: WireOwner::sealed(&client, secret),
            token: FencingToken::new(token),
            lease,
            until,
            name,
        })
    }
}

impl From<HoldTicket> for String {
    fn from(ticket: HoldTicket) -> Self {
        ticket.to_string()
    }
}

impl TryFrom<String> for HoldTicket {
    type Error = InvalidTicket;

    fn try_from(text: String) -> Result<Self, InvalidTicket> {
        text.parse()
    }
}

impl Hold {
    /// Ends this hold here without releasing it. Returns the ticket with which a client can take over the hold within
    /// `lease` (by default the usual one).
    ///
    /// # Errors
    /// [`RenewError`]; then the hold is being released, if this was its last guard.
    pub async fn detach(self, lease: Option<Lease>) -> Result<HoldTicket, RenewError> {
        let state = self.into_state();
        let span = span!("detach", state.sync);
        let hold = Arc::clone(&state);
        let work = async move { Detached::from(&hold, lease).await };
        // `begun`: the guard is consumed, so the work continues even if the future is never polled again.
        let work = Persistent::begun(&state.core.runner, state.traced(span, work));
        Ok(in_time(state, work).await?.into_ticket())
    }
}

/// A hold that the server keeps for a ticket. Unless the ticket is taken, the drop releases the hold (P3): the caller may have left.
#[derive(Debug)]
struct Detached {
    debt: Debt,
    ticket: HoldTicket,
}

impl Detached {
    /// Moves a hold, whose last guard was consumed, to the owner of a new ticket.
    ///
    /// P1: this function keeps the turn from the check to the end, so the owner cannot re-enter in between.
    async fn from(state: &Arc<HoldState>, lease: Option<Lease>) -> Result<Self, RenewError> {
        let mut count = state.turn().await;
        if *count > 1 {
            let rule = format!(
                "held {} times by its owner: only a hold that was not re-entered can be detached",
                *count
            );
            // The guard was consumed, so its count is given up, as after any other failure.
            drop(count);
            drop(Hold::another(state));
            return Err(RenewError::Rejected {
                name: state.sync.name().clone(),
                rejection: Rejection::InvalidOption { rule },
            });
        }
        // P5: the hold ends here before the server passes it on.
        *count = 0;
        end(state)?;
        let sent = state.core.clock.now();
        let passed = Self::pass(state, lease.unwrap_or(state.terms.lease)).await;
        if passed.is_err() {
            // The sweep begins before the next waiter sends its request, because the hold may still exist.
            state.debt.sweep();
        } else if sent < state.debt.claim().until() {
            // R2: an earlier acquire of this owner may still run after the hold has ended. P1: this release is not recorded. A server that
            // loses the detach still has this owner, which then keeps the name until its lease ends.
            state.debt.sweep_unrecorded();
        }
        // The server keeps the hold. The waiters send a request now, and the refusal says when the lease ends.
        state.queue.freed(state, End::Unknown);
        passed
    }

    /// Sends the request until it is answered or the hold has expired.
    async fn pass(state: &Arc<HoldState>, lease: Lease) -> Result<Self, RenewError> {
        let (core, name) = (&state.core, state.sync.name());
        let secret = core.secret();
        let owner = WireOwner::sealed(&core.id, &secret);
        let longest = state.terms.asked_for(lease);
        let debt = Debt::of(owner.clone(), Arc::clone(core), &state.sync, longest);
        let mut retries = Retries::default();
        loop {
            let sent = core.clock.now();
            if sent >= state.valid_until() {
                return Err(state.lease_lost(LostReason::Expired).into());
            }
            let limit = core.limit(name, sent);
            // Each try has the same two owners, by which the script recognises an earlier run (R7).
            let request = limit.request(&owner, state.asked(lease, sent));
            let call = detach_field(name, &state.debt.owner, &request);
            match core.call(Path::Direct, &call).await {
                Ok(reply) => match Verdict::read(&reply) {
                    Some(Verdict::Granted(_)) => {
                        // From here on the hold is a leftover, until the ticket is taken.
                        debt.unanswered(core.clock.now());
                        if request.lease < state.debt.claim().lease() {
                            // P4: no message tells the waiters that the hold ends earlier than they know.
                            tend_after(core, &state.sync, request.lease.length());
                        }
                        let end = state.latest_end();
                        let ticket = HoldTicket {
                            kind: word(state.sync.kind().name()),
                            client: core.id,
                            secret,
                            owner,
                            token: state.token(),
                            lease: end.map_or(lease, |end| lease.within(sent, end)),
                            until: end.map_or(0, |end| core.server_micros(core.slot_of(name), end)),
                            name: name.as_bytes().to_vec(),
                        };
                        return Ok(Self { debt, ticket });
                    }
                    Some(Verdict::Late) => core.synchronise(Path::Direct, name).await,
                    _ => return Err(state.lease_lost(LostReason::Gone).into()),
                },
                Err(Failure::Rejected(rejection)) => {
                    return Err(RenewError::Rejected {
                        name: name.clone(),
                        rejection: rejection.into(),
                    });
                }
                Err(Failure::Unanswered(outage)) => {
                    debt.unanswered(limit.ends_by);
                    state.failed(&outage);
                }
                Err(Failure::NotNow(outage)) => state.failed(&outage),
            }
            core.recover(state.valid_until(), &mut retries).await;
        }
    }

    /// Takes the ticket. From then on only the end of the lease, or a client that adopts the hold, ends it.
    fn into_ticket(self) -> HoldTicket {
        let _ = self.debt.record(Claim::take);
        self.ticket
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(name: &[u8]) -> HoldTicket {
        HoldTicket {
            kind: "fair_lock".into(),
            client: Uuid::nil(),
            secret: "0123456789abcdef0123456789abcdef".into(),
            owner: WireOwner::sealed(&Uuid::nil(), "0123456789abcdef0123456789abcdef"),
            token: FencingToken::new(7),
            lease: Lease::default(),
            until: 1_800_000_000_000_000,
            name: name.to_vec(),
        }
    }

    #[test]
    fn any_name_survives_as_one_word() {
        for name in [
            &b"orders"[..],
            b"a/b c%d",
            b"{x}\n\0\xff",
            "gr\u{fc}n".as_bytes(),
        ] {
            let ticket = ticket(name);
            let text = ticket.to_string();
            assert!(!text.contains(char::is_whitespace), "{text}");
            assert_eq!(text.parse(), Ok(ticket.clone()));
            let json = serde_json::to_string(&ticket).unwrap();
            assert_eq!(serde_json::from_str::<HoldTicket>(&json).unwrap(), ticket);
        }
    }

    #[test]
    fn debug_does_not_show_the_secret() {
        let ticket = ticket(b"orders");
        let text = format!("{ticket:?}");
        assert!(
            text.contains("orders") && text.contains(ticket.owner()),
            "{text}"
        );
        assert!(!text.contains(&ticket.secret), "{text}");
    }

    #[test]
    fn a_text_that_is_no_ticket_is_refused_with_the_rule() {
        let good = ticket(b"x").to_string();
        for (text, rule) in [
            ("", "begins with"),
            ("stanchion1/lock", "begins with"),
            ("stanchion2/lock", "seven parts"),
            (&good.replace("fair_lock", "Lock!"), "its kind"),
            (&good.replace(":01234", ":42"), "its owner"),
            (&good.replace(":01234", ":0123x"), "its owner"),
            (&good.replace("/7/", "/-7/"), "its token"),
            (&good.replace("/30000/", "/1/"), "its lease"),
            (&good.replace("/18000", "/x"), "its end"),
            (good.strip_suffix('x').unwrap(), "a name"),
        ] {
            let error = text.parse::<HoldTicket>().unwrap_err();
            assert!(error.to_string().contains(rule), "{error}");
        }
    }
}
