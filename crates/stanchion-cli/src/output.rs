//! Writing to the terminal: JSON lines, colour.

use std::io::{self, IsTerminal, Write as _};
use std::time::Duration;

use serde::Serialize;

/// Returns whether `stream` may be coloured: it is a terminal, and `NO_COLOR` (<https://no-color.org>) is not set.
pub(crate) fn may_colour(stream: &impl IsTerminal) -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !refused && !dumb
}

/// Writes `text` and a newline to standard output. A closed pipe is no error.
pub(crate) fn line(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Writes `value` as one line of JSON to standard output.
pub(crate) fn json_line(value: &impl Serialize) -> io::Result<()> {
    line(&serde_json::to_string(value)?)
}

/// Whole milliseconds.
pub(crate) fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
