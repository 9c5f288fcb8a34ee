//! The line on a terminal that shows the progress of a scan.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use tokio::time::Instant;

/// A scan that ends sooner shows no progress.
const PATIENCE: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_millis(200);

/// Shows the progress of a scan on standard error, if that is a terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    terminal: bool,
    next: Instant,
    total: u64,
    shown: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            terminal: io::stderr().is_terminal(),
            ..Self::hidden()
        }
    }

    /// Shows nothing.
    pub(crate) fn hidden() -> Self {
        Self {
            terminal: false,
            next: Instant::now() + PATIENCE,
            total: 0,
            shown: false,
        }
    }

    /// Adds the keys of one more server.
    pub(super) const fn of(&mut self, keys: u64) {
        self.total += keys;
    }

    pub(super) fn show(&mut self, keys: u64, names: usize) {
        let now = Instant::now();
        if !self.terminal || now < self.next {
            return;
        }
        self.next = now + INTERVAL;
        self.shown = true;
        let percent = keys
            .saturating_mul(100)
            .checked_div(self.total)
            .unwrap_or(100)
            .min(100);
        let line = format!("{keys} keys ({percent} %), {names} names; Ctrl-C shows what was found");
        self.write(&line);
    }

    /// Clears the line.
    pub(super) fn end(&mut self) {
        if self.shown {
            self.write("");
        }
    }

    fn write(&self, line: &str) {
        // OK: there is no remedy if the terminal refuses this.
        let _ = write!(io::stderr(), "\r\x1b[K{line}");
        let _ = io::stderr().flush();
    }
}
