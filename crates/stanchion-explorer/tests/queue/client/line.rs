//! The local queues of a process by name, and their subscriptions; and the relay of Redisson's releases.

use std::fmt::{self, Debug};

use stanchion_client::local_queue::Queue;
use stanchion_client::primitive::{Reason, Role};
use stanchion_explorer::Output;

use super::model::Model;
use super::{Client, Kind, Step, TEND};

/// The local queue of a name.
#[derive(Clone)]
pub(super) struct Line<K: Kind> {
    pub(super) subscribed: Subscribed,
    /// True if a message came while there was no waiter.
    pub(super) unheard: bool,
    pub(super) queue: Queue<Model<K>>,
}

impl<K: Kind> Default for Line<K> {
    fn default() -> Self {
        Self {
            subscribed: Subscribed::No,
            unheard: false,
            queue: Queue::default(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subscribed {
    No,
    Sent,
    Confirmed,
}

impl<K: Kind> Debug for Line<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.subscribed, self.unheard, &self.queue).fmt(f)
    }
}

impl<K: Kind> Client<K> {
    pub(super) fn subscription(&self) -> Output {
        Output::Subscribe(self.channel())
    }

    /// The second channel of a relay.
    pub(super) fn mark() -> String {
        format!("{}:stanchion", K::BASES[0])
    }

    /// Becomes the relay, or stops being it. A relay stays subscribed: the subscription of a client lasts for 3 s.
    pub(super) fn play(&mut self, step: &mut Step, role: Role) {
        let channels = [K::BASES[0].to_owned(), Self::mark()];
        match (role, self.relays) {
            (Role::Take, Subscribed::No) => {
                self.relays = Subscribed::Sent;
                step.outputs.extend(channels.map(Output::Subscribe));
            }
            (Role::Leave, Subscribed::Confirmed) => {
                self.relays = Subscribed::No;
                let channels = channels.into_iter().rev();
                step.outputs.extend(channels.map(Output::Unsubscribe));
            }
            _ => {}
        }
    }

    /// A message on Redisson's channel: after a release of Redisson's the relay serves the queue.
    pub(super) fn message_for_all(&mut self, step: &mut Step, payload: &str) {
        let is_redissons = payload.len() < 2 || !payload.starts_with('0');
        if is_redissons && !self.waiters.is_empty() {
            self.send(step, TEND, 0, self.kind.tend(self.uuid));
        }
    }

    /// The name of the channel for messages to this process.
    pub(super) fn name_on(channel: &str) -> usize {
        let base = channel.split(':').next();
        let name = K::BASES.iter().position(|it| Some(*it) == base);
        name.unwrap_or_default()
    }

    /// The subscription for the present name was cut.
    pub(super) fn disconnected(&mut self, step: &mut Step) {
        if self.here().subscribed == Subscribed::No {
            return;
        }
        step.outputs.push(self.subscription());
        let before = std::mem::replace(&mut self.here().subscribed, Subscribed::Sent);
        if before == Subscribed::Confirmed {
            self.event(step, |it, cx| {
                it.here().queue.admit(cx, Reason::Resubscribed);
            });
        }
    }
}
