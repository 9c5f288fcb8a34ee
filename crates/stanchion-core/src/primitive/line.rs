//! The keys and channels of a queue of processes. Its scripts are in `lua/line.lua`.

use std::sync::Arc;

use super::Handle;
use crate::name::Name;

/// The keys and channels of one name's queue.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Line {
    /// The key of the queue.
    pub line: Vec<u8>,
    /// The key of the notes about the queue.
    pub wake: Vec<u8>,
    /// Redisson's channel of the name.
    pub base: Vec<u8>,
    /// The channel of this client.
    pub channel: Arc<[u8]>,
    /// `PUBLISH` or `SPUBLISH`.
    pub publish: &'static str,
}

impl Line {
    /// Makes the queue of the lock `name` as the client of `handle` uses it.
    #[must_use]
    pub fn of(handle: &Handle, name: &Name) -> Self {
        let [line, wake] = ["stanchion_line", "stanchion_wake"];
        Self::of_family(handle, name, "redisson_lock__channel", line, wake)
    }

    /// Makes the queue of `name` in another family, from the prefixes of Redisson's channel and of the two keys.
    #[must_use]
    pub fn of_family(handle: &Handle, name: &Name, channel: &str, line: &str, wake: &str) -> Self {
        let base = name.prefixed(channel);
        let client = handle.id().to_string();
        Self {
            // `x` and `{x}` are two locks that share only the channels. The owner in a message shows to which lock it belongs.
            line: name.prefixed_alone(line),
            wake: name.prefixed_alone(wake),
            channel: [&base, b":".as_slice(), client.as_bytes()].concat().into(),
            base,
            publish: handle.publish_command(),
        }
    }

    /// The uuid of this client.
    #[must_use]
    pub fn client(&self) -> &[u8] {
        // The channel is `base:uuid`.
        self.channel.get(self.base.len() + 1..).unwrap_or_default()
    }
}
