//! The listeners of each channel, and delivery of messages.

use std::collections::{BTreeSet, HashMap};

use super::{Server, SessionId};
use crate::reply::{Protocol, Reply};

/// The two families of channels. The same name in both is two channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Plain,
    Shard,
}

impl Family {
    /// Returns the prefix of `message`, `subscribe` and `unsubscribe` on the wire.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Shard => "s",
        }
    }
}

/// A message to one listener: its session, the channel, the payload.
pub(crate) type Published = (SessionId, Vec<u8>, Vec<u8>);

/// The listeners of each channel of one family.
#[derive(Clone, Debug, Default)]
pub(crate) struct Subscriptions {
    by_channel: HashMap<Vec<u8>, BTreeSet<SessionId>>,
}

impl Subscriptions {
    pub(crate) fn listeners(&self, channel: &[u8]) -> usize {
        self.by_channel.get(channel).map_or(0, BTreeSet::len)
    }

    pub(crate) fn channels(&self) -> Vec<&[u8]> {
        let mut channels: Vec<_> = self.by_channel.keys().map(Vec::as_slice).collect();
        channels.sort_unstable();
        channels
    }

    #[cfg(feature = "explore")]
    pub(crate) fn connections(&self, channel: &[u8]) -> impl Iterator<Item = SessionId> {
        let listeners = self.by_channel.get(channel);
        listeners.into_iter().flatten().copied()
    }

    pub(crate) fn add(&mut self, channel: &[u8], session: SessionId) {
        let listeners = self.by_channel.entry(channel.to_vec()).or_default();
        listeners.insert(session);
    }

    pub(crate) fn remove(&mut self, channel: &[u8], session: SessionId) {
        if let Some(listeners) = self.by_channel.get_mut(channel) {
            listeners.remove(&session);
            if listeners.is_empty() {
                self.by_channel.remove(channel);
            }
        }
    }

    pub(crate) fn remove_session(&mut self, session: SessionId) {
        self.by_channel.retain(|_, listeners| {
            listeners.remove(&session);
            !listeners.is_empty()
        });
    }
}

impl Server {
    pub(crate) fn subscriptions(&self, family: Family) -> &Subscriptions {
        match family {
            Family::Plain => &self.channels,
            Family::Shard => &self.shard_channels,
        }
    }

    /// Subscribes. Returns the number of channels for the confirmation.
    pub(crate) fn subscribe(&mut self, id: SessionId, family: Family, channel: &[u8]) -> usize {
        let Some(session) = self.sessions.get_mut(&id) else {
            return 0;
        };
        let (own, all) = match family {
            Family::Plain => (&mut session.channels, &mut self.channels),
            Family::Shard => (&mut session.shard_channels, &mut self.shard_channels),
        };
        own.insert(channel.to_vec());
        all.add(channel, id);
        own.len()
    }

    pub(crate) fn unsubscribe(&mut self, id: SessionId, family: Family, channel: &[u8]) -> usize {
        let Some(session) = self.sessions.get_mut(&id) else {
            return 0;
        };
        let (own, all) = match family {
            Family::Plain => (&mut session.channels, &mut self.channels),
            Family::Shard => (&mut session.shard_channels, &mut self.shard_channels),
        };
        own.remove(channel);
        all.remove(channel, id);
        own.len()
    }

    /// Sends a message to every listener. Returns their number.
    pub(crate) fn publish(&mut self, family: Family, channel: &[u8], message: &[u8]) -> usize {
        let is_lost = self.switches.take_lost_message();
        let repeated = self.switches.repeated_messages;
        let Self {
            channels,
            shard_channels,
            sessions,
            to_wake,
            outbox,
            ..
        } = self;
        let all = match family {
            Family::Plain => channels,
            Family::Shard => shard_channels,
        };
        let Some(listeners) = all.by_channel.get(channel) else {
            return 0;
        };
        if is_lost {
            return listeners.len();
        }
        if let Some(outbox) = outbox {
            let message = |&to| (to, channel.to_vec(), message.to_vec());
            outbox.extend(listeners.iter().map(message));
            return listeners.len();
        }
        let push = Reply::Push(vec![
            Reply::bulk(format!("{}message", family.prefix())),
            Reply::bulk(channel),
            Reply::bulk(message),
        ]);
        // Encoded once for each protocol in use, not once for each listener.
        let mut encoded: [Vec<u8>; 2] = Default::default();
        for id in listeners {
            let Some(session) = sessions.get(id) else {
                continue;
            };
            let bytes = &mut encoded[usize::from(session.protocol == Protocol::Resp3)];
            if bytes.is_empty() {
                push.encode(session.protocol, bytes);
            }
            let mut pipe = session.connection.lock();
            pipe.send_bytes(bytes);
            if let Some(delay) = repeated {
                pipe.send_copy(bytes, delay);
            }
            to_wake.extend(pipe.take_reader());
        }
        listeners.len()
    }
}
