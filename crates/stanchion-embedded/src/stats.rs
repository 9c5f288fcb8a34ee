//! Counters of an engine's work, for tests that count round trips and messages.

use std::collections::BTreeMap;

/// Counters of one engine since it was created. [`Engine::execute`](crate::Engine::execute) is not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Commands executed for connections. A script counts once, with all commands that it calls.
    pub commands: u64,
    /// The same number by command name, in lower case.
    pub by_command: BTreeMap<String, u64>,
    /// Messages published by connections and their scripts, including those without a receiver.
    pub published: u64,
    /// Connections open now.
    pub connections: usize,
    /// Subscriptions (channels and shard channels, summed over the connections) open now.
    pub subscriptions: usize,
}

impl Stats {
    /// Returns the number of times `command` was executed; the name in any case.
    #[must_use]
    pub fn count(&self, command: &str) -> u64 {
        let name = command.to_ascii_lowercase();
        self.by_command.get(&name).copied().unwrap_or_default()
    }
}

impl Stats {
    pub(crate) fn count_command(&mut self, name: &str) {
        self.commands += 1;
        match self.by_command.get_mut(name) {
            Some(count) => *count += 1,
            None => {
                self.by_command.insert(name.to_owned(), 1);
            }
        }
    }
}
