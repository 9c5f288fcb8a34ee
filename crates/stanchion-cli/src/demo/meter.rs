//! How many commands a `memory://` server has had to execute.

use stanchion::embedded::Engine;

/// Keeps the engine, and counts from when it was made. Made before the clients, so that nothing is missed.
#[derive(Debug)]
pub(super) struct CommandMeter(Engine);

impl CommandMeter {
    /// `None`: a real server, where counting would be everybody's commands.
    pub(super) fn of(url: &str) -> Option<Self> {
        let namespace = url.strip_prefix("memory://")?.trim_end_matches('/');
        Some(Self(Engine::named(namespace)))
    }

    pub(super) fn commands(&self) -> u64 {
        self.0.stats().commands
    }
}
