//! The identity of one hold on the server.

use std::borrow::Borrow;
use std::fmt;
use std::io::Write as _;
use std::sync::Arc;

use sha1_smol::Sha1;
use stanchion_transport::Printable;
use uuid::Uuid;

/// The owner that Redis stores as the holder: `<client uuid>:<number>`.
///
/// A wire owner is used for one outermost hold of one name and never again. So a late request can never touch a newer
/// hold (rule R1 of `docs/protocol.md`).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct WireOwner(Arc<str>);

impl WireOwner {
    pub(crate) fn new(client: &Uuid, number: u64) -> Self {
        // Room for the uuid, the colon and the longest `u64`. On the stack, because every acquire makes one.
        let mut text = [0; 36 + 1 + 20];
        let mut rest = &mut text[..];
        // OK: there is room for any number, and all bytes written are ASCII.
        let _ = write!(rest, "{client}:{number}");
        let left = rest.len();
        let text = str::from_utf8(&text[..text.len() - left]).unwrap_or_default();
        Self(text.into())
    }

    /// The owner of a hold that `client` has detached: a digest of `secret`, which does not reveal the secret.
    pub(crate) fn sealed(client: &Uuid, secret: &str) -> Self {
        let digest = Sha1::from(secret).digest().bytes();
        let number = digest[..8]
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        // From 2^62 on, which no client's counter reaches: no secret gives the owner of a hold that was not detached. Below 2^63, as Java's.
        Self::new(client, number >> 2 | 1 << 62)
    }

    /// An owner as a server stores it.
    pub(crate) fn stored(text: &str) -> Self {
        Self(text.into())
    }

    /// The text as stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The number behind the uuid.
    #[must_use]
    pub(crate) fn number(&self) -> &str {
        self.0.split_once(':').map_or("", |(_, number)| number)
    }

    /// The uuid of the owner's client.
    #[must_use]
    pub fn client(&self) -> &str {
        self.0.split_once(':').map_or("", |(client, _)| client)
    }
}

/// Lets a map of owners be searched by text. The derived hash is that of the text, as this requires.
impl Borrow<str> for WireOwner {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Shows the owner as [`Printable`] does, because any program may have written the text of another client's owner.
impl fmt::Display for WireOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Printable::new(&*self.0).fmt(f)
    }
}

impl fmt::Debug for WireOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[test]
fn every_number_has_room() {
    let client = Uuid::nil();
    for number in [0, 9, 10, u64::MAX] {
        let owner = WireOwner::new(&client, number);
        assert_eq!(owner.as_str(), format!("{client}:{number}"));
        assert_eq!(owner.client(), client.to_string());
    }
}

#[test]
fn a_sealed_owner_has_a_number_that_no_client_counts_up_to() {
    let (client, other) = (Uuid::nil(), Uuid::max());
    let owner = WireOwner::sealed(&client, "a secret");
    let number: i64 = owner.number().parse().unwrap_or_default();
    assert!(number >= 1 << 62, "{number}");
    assert_eq!(owner.client(), client.to_string());
    assert_eq!(
        WireOwner::sealed(&other, "a secret").number(),
        owner.number()
    );
    assert_ne!(WireOwner::sealed(&client, "another"), owner);
}
