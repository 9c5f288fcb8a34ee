//! The server's wall clock: real or given by the caller, and steppable.

use std::time::Duration;

/// The source of time of one engine.
pub(crate) struct Clock {
    source: Box<dyn Fn() -> Duration + Send + Sync>,
    stepped_ms: i64,
}

/// One reading of the clock. A command sees one reading, and a whole script too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Now {
    pub(crate) micros: i64,
}

impl Now {
    pub(crate) fn millis(self) -> i64 {
        self.micros.div_euclid(1000)
    }
}

impl Clock {
    pub(crate) fn wall() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the server's wall clock: the one place that reads the machine's"
        )]
        let source = || {
            std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .unwrap_or_default()
        };
        Self::new(source)
    }

    pub(crate) fn new(source: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self {
            source: Box::new(source),
            stepped_ms: 0,
        }
    }

    pub(crate) fn now(&self) -> Now {
        let micros = i64::try_from((self.source)().as_micros()).unwrap_or(i64::MAX / 2);
        Now {
            micros: micros.saturating_add(self.stepped_ms.saturating_mul(1000)),
        }
    }

    pub(crate) fn step(&mut self, millis: i64) {
        self.stepped_ms = self.stepped_ms.saturating_add(millis);
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clock")
            .field("stepped_ms", &self.stepped_ms)
            .finish_non_exhaustive()
    }
}
