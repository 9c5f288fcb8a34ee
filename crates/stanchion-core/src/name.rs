//! Names, and the rules by which keys and channels are derived from them.

use std::fmt;
use std::sync::Arc;

use stanchion_transport::{Placement, Printable, slot_of, tag_of};

/// The longest name, in bytes, prefix included.
pub const MAX_NAME_BYTES: usize = 512;

/// The name of a synchronizer: the key that Redis and Redisson see, the client's key prefix included.
///
/// Names are bytes, 1 to 512 of them. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<[u8]>);

/// A name that cannot be used, and the rule it breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid name {:?}: {rule}", Printable::new(name))]
#[non_exhaustive]
pub struct InvalidName {
    /// The name as given; a long one is truncated.
    pub name: String,
    /// The rule it breaks.
    pub rule: NameRule,
}

/// The rules for names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameRule {
    /// The name is empty.
    #[error("a name has at least 1 byte")]
    Empty,
    /// Longer than [`MAX_NAME_BYTES`] with the key prefix.
    #[error("a name has at most 512 bytes, key prefix included; this one has {bytes}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// On a cluster the keys derived from the name must share its slot; braces in this name separate them.
    #[error(
        "on a cluster every key of a name must be in one slot: use no braces, or exactly one non-empty {{tag}} with nothing odd around it"
    )]
    SplitsSlots,
    /// On a cluster the channel of a count-down latch is wrapped in braces of its own.
    #[error(
        "on a cluster the name of a count-down latch has no braces: Redisson wraps its channel's name in its own"
    )]
    Braces,
    /// By Redisson's rule for derived keys, `{x}` and `x` share the queue of a fair lock, so a grant of one would be taken for a grant of the
    /// other. They share the log of a rate limiter, too.
    #[error(
        "the name of a fair lock or rate limiter is not wholly in braces: it would share keys with the name inside them"
    )]
    SharesQueue,
    /// A `:` ends a namespace, so that no two namespaces share a name.
    #[error("a namespace has no `:`")]
    Namespace,
}

/// The first part of names whose second part others choose, such as the clients of a service.
#[derive(Clone, Debug)]
pub struct Namespace(Arc<str>);

impl Namespace {
    /// Checks `text`.
    ///
    /// # Errors
    /// [`InvalidName`], if `text` contains `:`.
    pub(crate) fn new(text: &str) -> Result<Self, InvalidName> {
        if text.contains(':') {
            return Err(InvalidName::new(text.as_bytes(), NameRule::Namespace));
        }
        Ok(Self(text.into()))
    }

    /// Returns the name `<namespace>:<key>`. Two namespaces have no name in common, because the first `:` ends the namespace.
    #[must_use]
    pub fn of(&self, key: impl AsRef<[u8]>) -> Vec<u8> {
        [self.0.as_bytes(), b":", key.as_ref()].concat()
    }
}

impl InvalidName {
    /// Returns the error for the name `given`.
    pub(crate) fn new(given: &[u8], rule: NameRule) -> Self {
        let shown = String::from_utf8_lossy(given);
        let name = match shown.char_indices().nth(64) {
            Some((end, _)) => format!("{}…", &shown[..end]),
            None => shown.into_owned(),
        };
        Self { name, rule }
    }
}

impl Name {
    /// Checks `prefix` + `name` against the rules of `placement`.
    ///
    /// # Errors
    /// [`InvalidName`] with the rule that it breaks; nothing was sent.
    pub fn new(
        prefix: &str,
        name: impl AsRef<[u8]>,
        placement: Placement,
    ) -> Result<Self, InvalidName> {
        let given = name.as_ref();
        let fail = |rule| Err(InvalidName::new(given, rule));
        if given.is_empty() {
            return fail(NameRule::Empty);
        }
        let bytes = prefix.len() + given.len();
        if bytes > MAX_NAME_BYTES {
            return fail(NameRule::TooLong { bytes });
        }
        let name = Self([prefix.as_bytes(), given].concat().into());
        // One prefix is checked for all: in a name without a tag the whole key is hashed, and `p:` in front changes the slot at every length up to
        // `MAX_NAME_BYTES`.
        if placement == Placement::Slots && slot_of(&name.prefixed("p")) != name.slot() {
            return fail(NameRule::SplitsSlots);
        }
        Ok(name)
    }

    /// The name's bytes: the main key.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The name's cluster slot.
    #[must_use]
    pub fn slot(&self) -> u16 {
        slot_of(&self.0)
    }

    /// `prefix:{N}`, or `prefix:N` when N has a `{` anywhere: Redisson's rule for derived keys and channels.
    #[must_use]
    pub fn prefixed(&self, prefix: &str) -> Vec<u8> {
        derived(prefix, &self.0)
    }

    /// As [`Name::prefixed`], but `x` and `{x}` have two keys: for keys that Redisson does not know.
    #[must_use]
    pub fn prefixed_alone(&self, prefix: &str) -> Vec<u8> {
        if self.is_wrapped() {
            self.prefixed(&format!("{prefix}_braced"))
        } else {
            self.prefixed(prefix)
        }
    }

    /// `prefix{N}`, also when N has braces: Redisson's rule for the channel of a count-down latch.
    #[must_use]
    pub fn braced(&self, prefix: &str) -> Vec<u8> {
        [prefix.as_bytes(), b"{", &self.0, b"}"].concat()
    }

    /// `{N}:suffix`, or `N:suffix` when N has a `{` anywhere: Redisson's rule for keys that begin with the name.
    #[must_use]
    pub fn suffixed(&self, suffix: &str) -> Vec<u8> {
        if self.0.contains(&b'{') {
            [&self.0, b":".as_slice(), suffix.as_bytes()].concat()
        } else {
            [b"{", &*self.0, b"}:", suffix.as_bytes()].concat()
        }
    }

    /// Returns whether it is another name in braces, so that [`Name::prefixed`] derives the same keys from both.
    pub(crate) fn is_wrapped(&self) -> bool {
        match self.0.as_ref() {
            [b'{', inner @ .., b'}'] => !inner.is_empty() && !inner.contains(&b'{'),
            _ => false,
        }
    }

    /// The key of the counter behind the default fencing tokens: one for each hash slot. No TTL: tokens must never start over.
    #[must_use]
    pub fn slot_fence(&self) -> Vec<u8> {
        self.slot_key("stanchion_fence")
    }

    /// `prefix:{tag}`: a key that all names of a hash slot share.
    #[must_use]
    pub fn slot_key(&self, prefix: &str) -> Vec<u8> {
        format!("{prefix}:{{{}}}", tag_of(self.slot())).into_bytes()
    }
}

/// As [`Name::prefixed`], for the bytes of a name from another process.
#[must_use]
pub fn derived(prefix: &str, name: &[u8]) -> Vec<u8> {
    if name.contains(&b'{') {
        [prefix.as_bytes(), b":", name].concat()
    } else {
        [prefix.as_bytes(), b":{", name, b"}"].concat()
    }
}

/// Shows the name as [`Printable`] does: no name can control a terminal or break a line of a log.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Printable::new(&self.0).fmt(f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&Printable::new(&self.0), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rule(name: &[u8], placement: Placement) -> Option<NameRule> {
        Name::new("", name, placement).err().map(|e| e.rule)
    }

    #[test]
    fn length_is_bounded_at_both_ends() {
        assert_eq!(rule(b"", Placement::Anywhere), Some(NameRule::Empty));
        assert_eq!(rule(&[b'x'; 512], Placement::Anywhere), None);
        assert_eq!(
            rule(&[b'x'; 513], Placement::Anywhere),
            Some(NameRule::TooLong { bytes: 513 })
        );
        let with_prefix = Name::new("app:", [b'x'; 510], Placement::Anywhere);
        assert_eq!(
            with_prefix.unwrap_err().rule,
            NameRule::TooLong { bytes: 514 }
        );
    }

    #[test]
    fn odd_braces_are_refused_only_where_slots_matter() {
        for odd in ["a{b", "{}x", "a}b", "{"] {
            assert_eq!(
                rule(odd.as_bytes(), Placement::Slots),
                Some(NameRule::SplitsSlots),
                "{odd}"
            );
            assert_eq!(rule(odd.as_bytes(), Placement::Anywhere), None, "{odd}");
        }
        for fine in ["job", "{t1}:job", "order:{42}:settle"] {
            assert_eq!(rule(fine.as_bytes(), Placement::Slots), None, "{fine}");
        }
    }

    #[test]
    fn the_error_names_the_value_and_the_rule() {
        let text = Name::new("", "", Placement::Anywhere)
            .unwrap_err()
            .to_string();
        assert_eq!(text, "invalid name \"\": a name has at least 1 byte");
    }

    #[test]
    fn derived_keys_follow_the_contains_a_brace_rule() {
        let plain = Name::new("", "job", Placement::Anywhere).unwrap();
        assert_eq!(
            plain.prefixed("redisson_lock__channel"),
            b"redisson_lock__channel:{job}"
        );
        let tagged = Name::new("", "{t1}:job", Placement::Anywhere).unwrap();
        assert_eq!(
            tagged.prefixed("redisson_lock__channel"),
            b"redisson_lock__channel:{t1}:job"
        );
        assert_eq!(plain.suffixed("timeout"), b"{job}:timeout");
        assert_eq!(tagged.suffixed("timeout"), b"{t1}:job:timeout");
    }

    #[test]
    fn a_name_in_braces_shares_what_is_derived_from_the_name_inside() {
        let name = |bytes: &[u8]| Name::new("", bytes, Placement::Anywhere).unwrap();
        for inside in ["job", "a}b", "}"] {
            let wrapped = name(format!("{{{inside}}}").as_bytes());
            assert_eq!(wrapped.prefixed("p"), name(inside.as_bytes()).prefixed("p"));
            assert!(wrapped.is_wrapped() && !name(inside.as_bytes()).is_wrapped());
        }
    }

    proptest! {
        #[test]
        fn names_that_are_not_wrapped_share_nothing(one in "[a{}]{1,6}", other in "[a{}]{1,6}") {
            let name = |text: &str| Name::new("", text, Placement::Anywhere).unwrap();
            let (one, other) = (name(&one), name(&other));
            if one != other && !one.is_wrapped() && !other.is_wrapped() {
                prop_assert_ne!(one.prefixed("p"), other.prefixed("p"));
            }
        }

        #[test]
        fn a_name_accepted_for_a_cluster_keeps_all_its_keys_in_one_slot(bytes in prop::collection::vec(prop_oneof![Just(b'{'), Just(b'}'), any::<u8>()], 1..40)) {
            if let Ok(name) = Name::new("", &bytes, Placement::Slots) {
                for derived in [name.prefixed("redisson_lock__channel"), name.prefixed("redisson_lock_token"), name.suffixed("timeout"), name.slot_fence()] {
                    prop_assert_eq!(slot_of(&derived), name.slot());
                }
            }
        }
    }
}
