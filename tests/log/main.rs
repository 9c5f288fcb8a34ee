//! Tests of the log: outages, refused subscriptions, stored quotas and spans. No log and no error shows a secret.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod notices;
mod outages;
mod permits;
mod quota;
mod secrets;
mod spans;

use std::io;
use std::sync::{Arc, Mutex};

/// A log in memory.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }

    fn writer(&self) -> impl Fn() -> Self + Send + Sync + 'static {
        let log = self.clone();
        move || log.clone()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
