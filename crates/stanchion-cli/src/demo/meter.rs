//! The number of commands that a `memory://` server has executed.

use stanchion::embedded::Engine;

/// Keeps the engine, and counts from its own start: an engine may live on from the demonstration before. Create it before the clients,
/// so that it counts all their commands.
#[derive(Debug)]
pub(super) struct CommandMeter {
    engine: Engine,
    before: u64,
}

impl CommandMeter {
    /// The meter of a `memory://` URL. `None` for a real server, which would also count commands of other clients.
    pub(super) fn of(url: &str) -> Option<Self> {
        let namespace = url.strip_prefix("memory://")?.trim_end_matches('/');
        let engine = Engine::named(namespace);
        let before = engine.stats().commands;
        Some(Self { engine, before })
    }

    pub(super) fn commands(&self) -> u64 {
        self.engine.stats().commands - self.before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn commands_of_before_are_not_counted() {
        let url = "memory://meter-test";
        let client = stanchion::Client::connect(url).await.unwrap();
        let lock = stanchion::Lock::new(&client, "job").unwrap();
        drop(lock.status().await.unwrap());
        let meter = CommandMeter::of(url).unwrap();
        assert_eq!(meter.commands(), 0);
        drop(lock.status().await.unwrap());
        assert!(meter.commands() > 0);
        assert!(CommandMeter::of("redis://127.0.0.1").is_none());
    }
}
