//! A hold without a process: detached from its guard, to be adopted by another process, or by this one after a restart.

use std::fmt;
use std::str::FromStr;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use serde::{Deserialize, Serialize};
use stanchion_transport::Printable;

use super::handle::Hold;
use crate::error::{AcquireError, Rejection, RenewError};
use crate::lease::Lease;
use crate::name::Name;
use crate::token::FencingToken;
use crate::wire_owner::WireOwner;

/// Bytes of a name that are escaped in a ticket: it is one word, in any shell's quotes, and in a URL's path.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'%')
    .add(b'\'')
    .add(b'"')
    .add(b'\\')
    .add(b'`')
    .add(b'$');

/// The first word of a ticket, with the version of its form.
const FORM: &str = "stanchion1";

/// A hold that was detached from its guard, as a line of text. It lasts until its lease ends, unless somebody adopts it.
///
/// Whoever has it can take the hold over, once: keep it as you would keep the guard. It contains no secret that opens anything else.
/// Serialized it is its text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct HoldTicket {
    kind: String,
    owner: String,
    token: Option<FencingToken>,
    lease: Lease,
    name: Vec<u8>,
}

/// A text that is no ticket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{:?} is not the ticket of a hold: {rule}", Printable::new(text))]
#[non_exhaustive]
pub struct InvalidTicket {
    /// The text; a long one is truncated.
    pub text: String,
    /// The rule that it breaks.
    pub rule: &'static str,
}

/// A ticket that was not adopted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdoptError {
    /// The hold of this ticket has ended: its lease ran out, it was adopted before, or taken by force. Somebody else may hold.
    #[error("the hold of this ticket for {name} has ended")]
    Gone {
        /// The name that was held.
        name: Name,
    },
    /// It is the ticket of something else. Nothing was sent.
    #[error("this ticket is for the {kind} {theirs}, not for the {ours}")]
    Other {
        /// The kind that the ticket is for.
        kind: String,
        /// The name that the ticket is for.
        theirs: String,
        /// The kind and name that were to adopt it.
        ours: String,
    },
    /// The server refused, or cannot be reached. After [`AcquireError::Ambiguous`] it may have been adopted, and is being released.
    #[error(transparent)]
    Failed(#[from] AcquireError),
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

    /// The owner that the server stores as the holder until it is adopted.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The fencing token of the hold until it is adopted; the one that adopts it gets a larger one.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.token
    }

    /// The lease of the hold. It ran from the detaching.
    #[must_use]
    pub fn lease(&self) -> Lease {
        self.lease
    }

    /// Returns the owner, if this is the ticket of a hold of that kind and name.
    pub(crate) fn is_for(&self, kind: &str, name: &Name) -> Result<WireOwner, AdoptError> {
        let kind = word(kind);
        if self.kind != kind || self.name != name.as_bytes() {
            return Err(AdoptError::Other {
                kind: self.kind.clone(),
                theirs: Printable::new(&self.name).to_string(),
                ours: format!("{kind} {name}"),
            });
        }
        Ok(WireOwner::stored(&self.owner))
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
            "{FORM}/{}/{}/{token}/{}/{}",
            self.kind,
            self.owner,
            self.lease.millis(),
            percent_encode(&self.name, ESCAPED)
        )
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
        let mut parts = text.splitn(6, '/');
        let mut next = || {
            parts
                .next()
                .ok_or_else(|| fail("it has six parts, with slashes between them"))
        };
        if next()? != FORM {
            return Err(fail("it begins with stanchion1/"));
        }
        let (kind, owner) = (next()?, next()?);
        if kind.is_empty() || !kind.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') {
            return Err(fail("its kind is a word, as lock"));
        }
        let is_owner = owner.split_once(':').is_some_and(|(client, number)| {
            client.len() == 36 && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
        });
        if !is_owner {
            return Err(fail("its owner is <uuid>:<number>"));
        }
        let number = |part: &str, rule| part.parse::<u64>().map_err(|_| fail(rule));
        let token = number(next()?, "its token is a number")?;
        let lease = number(next()?, "its lease is a number of milliseconds")?;
        let lease = Lease::new(std::time::Duration::from_millis(lease))
            .map_err(|_| fail("its lease is 10 ms to 30 days"))?;
        let name: Vec<u8> = percent_decode_str(next()?).collect();
        if name.is_empty() {
            return Err(fail("it has a name"));
        }
        Ok(Self {
            kind: kind.to_owned(),
            owner: owner.to_owned(),
            token: FencingToken::new(token),
            lease,
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
    /// Ends this hold here without releasing it, renewed a last time for `lease` (by default for what it has), and returns its ticket.
    ///
    /// # Errors
    /// [`RenewError`]; then the hold is being released, if this was its last guard.
    pub async fn detach(self, lease: Option<Lease>) -> Result<HoldTicket, RenewError> {
        if let Some(rule) = self.shared_by() {
            return Err(RenewError::Rejected {
                name: self.name().clone(),
                rejection: Rejection::InvalidOption { rule },
            });
        }
        let lease = match lease {
            Some(lease) => {
                self.renew_for(lease).await?;
                lease
            }
            None => {
                self.renew().await?;
                self.lease()
            }
        };
        let ticket = HoldTicket {
            kind: word(self.kind().name()),
            owner: self.wire_owner().as_str().to_owned(),
            token: self.fencing_token(),
            lease,
            name: self.name().as_bytes().to_vec(),
        };
        self.leave();
        Ok(ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(name: &[u8]) -> HoldTicket {
        HoldTicket {
            kind: "fair_lock".into(),
            owner: format!("{}:42", uuid::Uuid::nil()),
            token: FencingToken::new(7),
            lease: Lease::default(),
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
    fn a_text_that_is_no_ticket_is_refused_with_the_rule() {
        let good = ticket(b"x").to_string();
        for (text, rule) in [
            ("", "begins with"),
            ("stanchion2/lock", "begins with"),
            ("stanchion1/lock", "six parts"),
            (&good.replace("fair_lock", "Lock!"), "its kind"),
            (&good.replace(":42", ":x"), "its owner"),
            (&good.replace("/7/", "/-7/"), "its token"),
            (&good.replace("/30000/", "/1/"), "its lease"),
            (good.strip_suffix('x').unwrap(), "a name"),
        ] {
            let error = text.parse::<HoldTicket>().unwrap_err();
            assert!(error.to_string().contains(rule), "{error}");
        }
    }
}
