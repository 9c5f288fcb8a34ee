//! Permit ids.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use stanchion_client::{Error, WireOwner};

/// The number of bytes of an id.
const BYTES: usize = 16;

/// The id of a leased permit: 16 bytes, shown as 32 hexadecimal digits as Redisson shows them.
///
/// A Java process can release the permit by it, and [`LeasedDanger::reclaim`](crate::LeasedDanger::reclaim) returns one
/// that a Java process has acquired.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PermitId([u8; BYTES]);

/// A text that is not a permit id.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InvalidPermitId {
    /// The text as given.
    pub text: String,
}

impl fmt::Display for InvalidPermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "invalid permit id {:?}: it has 32 hexadecimal digits",
            self.text
        )
    }
}

impl std::error::Error for InvalidPermitId {}

impl From<InvalidPermitId> for Error {
    fn from(invalid: InvalidPermitId) -> Self {
        Self::primitive(invalid)
    }
}

impl PermitId {
    /// Returns the bytes as the server stores them.
    ///
    /// ```
    /// # use stanchion_semaphore::PermitId;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let id: PermitId = "00ff0102030405060708090a0b0c0d0e".parse()?; // from Java
    /// assert_eq!(id.as_bytes().len(), 16);
    /// assert_eq!(id.as_bytes()[..3], [0x00, 0xff, 0x01]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; BYTES] {
        &self.0
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Returns the id of permit number `index` of the hold of `owner`.
    ///
    /// The id is derived, so a resent request names the same permits and no state is needed. A wire owner is never used
    /// twice, so its ids are not either.
    pub(crate) fn of(owner: &WireOwner, index: u32) -> Self {
        Self::of_text(owner.as_str(), index)
    }

    /// Returns whether this is one of the `permits` permits that `owner` acquired in one call. `Client::survey` shows owners.
    ///
    /// ```
    /// # use stanchion_semaphore::PermitId;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let id: PermitId = "00ff0102030405060708090a0b0c0d0e".parse()?; // from Java: no owner of stanchion's
    /// assert!(!id.is_of("7c9e6679-7425-80de-944b-e07fc1f90ae7:42", 3));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_of(&self, owner: &str, permits: u32) -> bool {
        (0..permits).any(|index| Self::of_text(owner, index) == *self)
    }

    fn of_text(owner: &str, index: u32) -> Self {
        let mut hash = sha1_smol::Sha1::from(owner);
        hash.update(b":");
        hash.update(itoa::Buffer::new().format(index).as_bytes());
        let mut id = [0; BYTES];
        id.copy_from_slice(&hash.digest().bytes()[..BYTES]);
        Self(id)
    }

    /// Returns the ids of all permits of the hold of `owner`, concatenated.
    pub(crate) fn joined(owner: &WireOwner, count: u32) -> Vec<u8> {
        let mut ids = Vec::with_capacity(BYTES * count as usize);
        for index in 0..count {
            ids.extend(Self::of(owner, index).0);
        }
        ids
    }
}

impl fmt::Display for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PermitId({self})")
    }
}

impl FromStr for PermitId {
    type Err = InvalidPermitId;

    fn from_str(text: &str) -> Result<Self, InvalidPermitId> {
        let invalid = || InvalidPermitId {
            text: text.to_owned(),
        };
        // `from_str_radix` would accept a sign.
        if text.len() != 2 * BYTES || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(invalid());
        }
        let number = u128::from_str_radix(text, 16).map_err(|_| invalid())?;
        Ok(Self(number.to_be_bytes()))
    }
}

impl Serialize for PermitId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_is_shown() {
        let text = "00ff0102030405060708090a0b0c0d0e";
        let id: PermitId = text.parse().unwrap();
        assert_eq!(id.as_bytes()[..3], [0, 0xff, 1]);
        assert_eq!(id.to_string(), text);
        assert_eq!(text.to_uppercase().parse::<PermitId>().unwrap(), id);
        let plus = format!("+{}", &text[1..]);
        for odd in ["", "00ff", plus.as_str(), &"g".repeat(32), &"0".repeat(33)] {
            let error = odd.parse::<PermitId>().unwrap_err();
            assert!(error.to_string().contains("32 hexadecimal digits"), "{odd}");
        }
    }
}
