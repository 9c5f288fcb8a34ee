//! The number of commands that a `memory://` server has executed.

use stanchion::embedded::Engine;

/// Keeps the engine, and counts from the start. Create it before the clients, so that it counts all commands.
#[derive(Debug)]
pub(super) struct CommandMeter(Engine);

impl CommandMeter {
    /// The meter of a `memory://` URL. `None` for a real server, which would also count commands of other clients.
    pub(super) fn of(url: &str) -> Option<Self> {
        let namespace = url.strip_prefix("memory://")?.trim_end_matches('/');
        Some(Self(Engine::named(namespace)))
    }

    pub(super) fn commands(&self) -> u64 {
        self.0.stats().commands
    }
}
