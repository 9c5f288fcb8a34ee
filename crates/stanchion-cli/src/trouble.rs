//! Faults of names, with meaning and advice. Shown by `ls`, `inspect` and `doctor`.

use std::time::Duration;

use serde::ser::{Serialize, SerializeStruct as _, Serializer};

use crate::look::Kind;
use crate::table::Tone;
use crate::wording::age;

/// Something about a name that an operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A hold without an end.
    NoTtl,
    /// The server shows no connection of the holder's client.
    HolderGone,
    /// There are derived keys of more than one kind.
    TwoKinds(Vec<Kind>),
    /// A lock with several fields, which neither stanchion nor Redisson has written.
    ManyFields(u64),
    /// The queue of a fair lock without live waiters.
    OrphanQueue(u64),
    /// Redisson has dated entries of a rate limiter this far in the future.
    ClockAhead(Duration),
    /// The server of the name does not answer.
    NoAnswer,
    /// The rules for names do not allow this name on this server.
    Unusable(String),
}

/// `{"check":"no-ttl","meaning":"…"}`, for every trouble alike.
impl Serialize for Trouble {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut line = serializer.serialize_struct("Trouble", 2)?;
        line.serialize_field("check", self.word())?;
        line.serialize_field("meaning", &self.meaning())?;
        line.end()
    }
}

impl Trouble {
    /// The check that finds it, in one word.
    pub(crate) const fn word(&self) -> &'static str {
        match self {
            Self::NoTtl => "no-ttl",
            Self::HolderGone => "holder-gone",
            Self::TwoKinds(_) => "two-kinds",
            Self::ManyFields(_) => "many-fields",
            Self::OrphanQueue(_) => "orphan-queue",
            Self::ClockAhead(_) => "clock-ahead",
            Self::NoAnswer => "no-answer",
            Self::Unusable(_) => "unusable-name",
        }
    }

    /// In few words, for a table.
    pub(crate) fn brief(&self) -> String {
        match self {
            Self::NoTtl => "no TTL".into(),
            Self::HolderGone => "holder not seen".into(),
            Self::TwoKinds(_) => "two kinds".into(),
            Self::ManyFields(fields) => format!("{fields} fields"),
            Self::OrphanQueue(_) => "free, dead queue".into(),
            Self::ClockAhead(ahead) => format!("clock {} ahead", age(*ahead)),
            Self::NoAnswer => "no answer".into(),
            Self::Unusable(_) => "unusable name".into(),
        }
    }

    /// Meaning.
    pub(crate) fn meaning(&self) -> String {
        match self {
            Self::NoTtl => "held without a TTL: no lease ends it".into(),
            Self::HolderGone => "the server shows no connection of its holder".into(),
            Self::TwoKinds(kinds) => {
                let kinds: Vec<String> = kinds.iter().map(|kind| kind.word().to_owned()).collect();
                format!(
                    "used as {}: they do not exclude each other",
                    kinds.join(" and ")
                )
            }
            Self::ManyFields(fields) => {
                format!(
                    "a hash with {fields} fields: no lock of stanchion or Redisson has more than one"
                )
            }
            Self::OrphanQueue(places) => format!(
                "nobody holds, and no process in its queue of {places} has sent a request for 150 s"
            ),
            Self::ClockAhead(ahead) => format!(
                "Redisson has taken permits by a clock that is {} ahead: they come back so much late, and it gives back others' too early",
                age(*ahead)
            ),
            Self::NoAnswer => {
                "its server does not answer: this is what processes have published".into()
            }
            Self::Unusable(rule) => format!("no synchronizer can have this name here: {rule}"),
        }
    }

    /// Advice.
    pub(crate) fn advice(&self, name: &str) -> String {
        match self {
            Self::NoTtl => {
                format!("if no process of its holder lives: stanchion force-release {name}")
            }
            Self::HolderGone => {
                format!(
                    "it is free when its lease has ended; at once, if the holder has really ended: stanchion force-release {name}"
                )
            }
            Self::TwoKinds(_) => "give each kind a name of its own".into(),
            Self::ManyFields(_) => "find the program that writes it; choose another name".into(),
            Self::OrphanQueue(_) => {
                "the next fair acquire removes it; Redisson's waiters leave by their deadlines"
                    .into()
            }
            Self::ClockAhead(_) => {
                "set the clocks of all machines with Redisson by NTP, slewing and not stepping"
                    .into()
            }
            Self::NoAnswer => "see the server; the name is read again when it answers".into(),
            Self::Unusable(_) => "choose another name".into(),
        }
    }

    pub(crate) const fn tone(&self) -> Tone {
        match self {
            Self::NoTtl | Self::TwoKinds(_) | Self::ManyFields(_) => Tone::Bad,
            _ => Tone::Warn,
        }
    }
}
