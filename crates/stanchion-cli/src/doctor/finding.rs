//! One result of one check, and how it is shown.

use serde::Serialize;

use crate::output;
use crate::table::{Tone, wrapped};

/// Severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Ok,
    /// The check could not be made.
    Skip,
    /// Works, and will not always.
    Warn,
    /// Locks do not work, or may be lost while everything looks well.
    Fail,
}

impl Level {
    const fn word(self) -> (&'static str, Tone) {
        match self {
            Self::Ok => ("ok  ", Tone::Good),
            Self::Skip => ("skip", Tone::Dim),
            Self::Warn => ("warn", Tone::Warn),
            Self::Fail => ("FAIL", Tone::Bad),
        }
    }
}

/// One result.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    /// The check, in one word.
    pub(crate) check: &'static str,
    /// The server, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<String>,
    pub(crate) what: String,
    /// Advice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) advice: Option<String>,
}

impl Finding {
    fn new(level: Level, check: &'static str, what: String, advice: Option<String>) -> Self {
        Self {
            level,
            check,
            server: None,
            what,
            advice,
        }
    }

    pub(crate) fn ok(check: &'static str, what: impl Into<String>) -> Self {
        Self::new(Level::Ok, check, what.into(), None)
    }

    pub(crate) fn skip(
        check: &'static str,
        what: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self::new(Level::Skip, check, what.into(), Some(advice.into()))
    }

    pub(crate) fn warn(
        check: &'static str,
        what: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self::new(Level::Warn, check, what.into(), Some(advice.into()))
    }

    pub(crate) fn fail(
        check: &'static str,
        what: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self::new(Level::Fail, check, what.into(), Some(advice.into()))
    }

    pub(crate) fn of_server(mut self, server: Option<&str>) -> Self {
        self.server = server.map(str::to_owned);
        self
    }

    /// Writes the finding: the level and the text, and the advice below them.
    pub(crate) fn lines(&self, width: Option<usize>, colour: bool) -> Vec<String> {
        let (word, tone) = self.level.word();
        let at = self
            .server
            .as_deref()
            .map_or_else(String::new, |at| format!(" ({at})"));
        let what = format!("{}: {}{at}", self.check, self.what);
        let room = width.map_or(usize::MAX, |width| width.saturating_sub(8).max(20));
        let mut lines = Vec::new();
        for (number, line) in wrapped(&what, room).iter().enumerate() {
            let head = if number == 0 {
                tone.paint(word, colour)
            } else {
                "    ".into()
            };
            lines.push(format!("{head} {line}"));
        }
        let advice = self.advice.iter().flat_map(|advice| wrapped(advice, room));
        for (number, line) in advice.enumerate() {
            let mark = if number == 0 { "->" } else { "  " };
            lines.push(format!("     {mark} {line}"));
        }
        lines
    }

    pub(crate) fn show(&self, json: bool, width: Option<usize>) -> std::io::Result<()> {
        if json {
            return output::json_line(self);
        }
        let colour = output::may_colour(&std::io::stdout());
        output::line(&self.lines(width, colour).join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::wide;

    #[test]
    fn a_finding_fits_the_terminal_and_says_what_to_do() {
        let finding = Finding::fail(
            "eviction",
            "maxmemory-policy is allkeys-lru: locks may be evicted",
            "CONFIG SET maxmemory-policy noeviction",
        );
        let lines = finding.lines(Some(80), false);
        assert_eq!(
            lines,
            [
                "FAIL eviction: maxmemory-policy is allkeys-lru: locks may be evicted",
                "     -> CONFIG SET maxmemory-policy noeviction",
            ]
        );
        for width in 28..100 {
            assert!(
                finding
                    .lines(Some(width), false)
                    .iter()
                    .all(|line| wide(line) <= width)
            );
        }
    }
}
