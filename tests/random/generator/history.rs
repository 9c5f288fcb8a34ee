//! A log of events with times, printed with a finding and compared between two runs.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

/// The number of events that are kept for a report.
const KEPT: usize = 400;

#[derive(Debug, Default)]
pub(crate) struct History {
    events: VecDeque<(Duration, String)>,
    count: u64,
    digest: u64,
}

impl History {
    pub(crate) fn push(&mut self, at: Duration, event: String) {
        for byte in event.bytes().chain(at.as_micros().to_le_bytes()) {
            // FNV-1a: equal histories have equal digests on every machine.
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.count += 1;
        self.events.push_back((at, event));
        if self.events.len() > KEPT {
            self.events.pop_front();
        }
    }

    /// The number of events and their digest, which are equal for equal histories.
    pub(crate) fn digest(&self) -> (u64, u64) {
        (self.count, self.digest)
    }

    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        for (at, event) in &self.events {
            // OK: writing to a String cannot fail.
            let _ = writeln!(text, "    {:>9.3} s  {event}", at.as_secs_f64());
        }
        text
    }
}
