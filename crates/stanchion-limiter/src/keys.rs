//! The keys of a rate limiter, and its entries.

use std::sync::Arc;

use stanchion_client::primitive::{About, Handle, Kind, Operation, Sharing};
use stanchion_client::{InvalidName, Name, WireOwner};

/// The length of the id in an entry, in bytes, as in Redisson's entries.
const ID: usize = ID_LENGTH as usize;
const ID_LENGTH: u8 = 16;

/// The beginning of the ids of stanchion's entries. It distinguishes them from Redisson's entries in a log.
const MARK: &[u8] = b"stn0";

/// The keys of one rate limiter, as one client uses them.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) name: Name,
    value: Vec<u8>,
    own_value: Vec<u8>,
    log: Vec<u8>,
    own_log: Vec<u8>,
    written: Vec<u8>,
    own_written: Vec<u8>,
    pub(crate) channel: Arc<[u8]>,
    pub(crate) publish: &'static str,
    once: Vec<u8>,
}

impl Keys {
    pub(crate) fn new(handle: &Handle, name: impl AsRef<[u8]>) -> Result<Self, InvalidName> {
        // `x` and `{x}` would share the counter and the log, but not the quota.
        let name = handle.name_that_shares_nothing(name)?;
        let client = handle.id().to_string();
        let of_client = |key: &[u8]| [key, b":", client.as_bytes()].concat();
        let (value, log) = (name.suffixed("value"), name.suffixed("permits"));
        let written = name.prefixed("stanchion_limiter_written");
        Ok(Self {
            own_value: of_client(&value),
            own_log: of_client(&log),
            own_written: of_client(&name.prefixed("stanchion_limiter_own")),
            value,
            log,
            written,
            channel: name.prefixed("stanchion_limiter").into(),
            publish: handle.publish_command(),
            once: name.prefixed("stanchion_once"),
            name,
        })
    }

    /// All five keys, in Redisson's order.
    pub(crate) fn all(&self) -> [&[u8]; 5] {
        let name = self.name.as_bytes();
        [name, &self.value, &self.own_value, &self.log, &self.own_log]
    }

    /// All five keys, and the two with the times of the last writes to the logs.
    pub(crate) fn with_written(&self) -> [&[u8]; 7] {
        let [name, value, own_value, log, own_log] = self.all();
        let (written, own_written) = (&self.written, &self.own_written);
        [name, value, own_value, log, own_log, written, own_written]
    }

    pub(crate) fn logs(&self) -> [&[u8]; 2] {
        [&self.log, &self.own_log]
    }

    /// Returns the key that records that an operation has run.
    pub(crate) fn once(&self, operation: &Operation) -> Vec<u8> {
        let id = operation.id.as_str().as_bytes();
        [self.once.as_slice(), b":", id].concat()
    }
}

/// The entry of a request: the length of its id, the id, and the permits, as Redisson writes them.
///
/// The id is derived from the owner, so a resent request finds its entry. No wire owner is used twice, so no id is either.
pub(crate) fn entry(owner: &WireOwner, permits: u32) -> [u8; 1 + ID + 4] {
    let digest = sha1_smol::Sha1::from(owner.as_str()).digest().bytes();
    let (mut entry, mark) = ([0; 1 + ID + 4], MARK.len());
    entry[0] = ID_LENGTH;
    entry[1..=mark].copy_from_slice(MARK);
    entry[1 + mark..=ID].copy_from_slice(&digest[..ID - mark]);
    entry[1 + ID..].copy_from_slice(&permits.to_le_bytes());
    entry
}

/// The keys of a token bucket.
#[derive(Debug)]
pub(crate) struct BucketKeys {
    pub(crate) name: Name,
    pub(crate) bucket: Vec<u8>,
    /// A channel without messages, because a bucket publishes nothing.
    pub(crate) channel: Arc<[u8]>,
}

impl BucketKeys {
    pub(crate) fn new(handle: &Handle, name: impl AsRef<[u8]>) -> Result<Self, InvalidName> {
        let name = handle.name(name)?;
        Ok(Self {
            bucket: name.prefixed_alone("stanchion_bucket"),
            channel: name.prefixed("stanchion_limiter").into(),
            name,
        })
    }
}

/// The properties of a request for so many permits.
pub(crate) fn about(kind: &'static str, name: &Name, channel: &Arc<[u8]>, permits: u32) -> About {
    About {
        sharing: Sharing::Permits(permits),
        is_leased: false,
        ..About::new(Kind::new(kind), name.clone(), Arc::clone(channel))
    }
}
