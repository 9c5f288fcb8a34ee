//! The keys of one semaphore.

use stanchion_core::primitive::{Handle, Operation};
use stanchion_core::{InvalidName, Name};

/// The keys and the channel of a semaphore of either kind.
#[derive(Debug)]
pub(crate) struct Keys {
    /// The number of free permits.
    pub(crate) name: Name,
    pub(crate) channel: Vec<u8>,
    /// The held permits: the ledger of plain ones, or the leases.
    pub(crate) held: Vec<u8>,
    pub(crate) line: Vec<u8>,
    /// The holders that kept their permits through a whole turn of the first in line.
    pub(crate) slow: Vec<u8>,
    /// The total of plain permits, where it is known. Leased permits need none: the name again.
    pub(crate) total: Vec<u8>,
    pub(crate) publish: &'static str,
}

impl Keys {
    pub(crate) fn plain(handle: &Handle, name: impl AsRef<[u8]>) -> Result<Self, InvalidName> {
        let name = handle.client().name(name)?;
        let ledger = name.prefixed("stanchion_permits");
        let total = name.prefixed("stanchion_semaphore_total");
        Ok(Self::new(handle, name, ledger, total))
    }

    pub(crate) fn leased(handle: &Handle, name: impl AsRef<[u8]>) -> Result<Self, InvalidName> {
        let name = handle.client().name(name)?;
        let leases = name.suffixed("timeout");
        let total = name.as_bytes().to_vec();
        Ok(Self::new(handle, name, leases, total))
    }

    fn new(handle: &Handle, name: Name, held: Vec<u8>, total: Vec<u8>) -> Self {
        Self {
            channel: name.prefixed("redisson_sc"),
            held,
            line: name.prefixed("stanchion_semaphore_line"),
            slow: name.prefixed("stanchion_semaphore_slow"),
            total,
            publish: handle.publish_command(),
            name,
        }
    }

    /// Returns the key that stores the result of an operation.
    pub(crate) fn once(&self, operation: &Operation) -> Vec<u8> {
        let mut key = self.name.prefixed("stanchion_once");
        key.push(b':');
        key.extend_from_slice(operation.id.as_str().as_bytes());
        key
    }
}
