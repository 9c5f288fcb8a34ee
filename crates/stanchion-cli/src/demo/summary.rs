//! The closing table, and its facts as JSON.

use std::time::Duration;

use serde::Serialize;

use super::DemoArgs;
use super::board::Board;
use super::primitive::Primitive;

/// The result of a demonstration.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    primitive: Primitive,
    url: String,
    workers: u16,
    clients: usize,
    names: u16,
    seconds: f64,
    grants: u64,
    grants_per_second: f64,
    overlaps: u64,
    stale_tokens: u64,
    wait_p50_ms: f64,
    wait_p99_ms: f64,
    wait_max_ms: f64,
    grants_after_same_client: u64,
    grants_after_other_client: u64,
    /// The grants of the worker with the fewest and of the worker with the most.
    grants_per_worker: (u64, u64),
    lost_leases: u64,
    /// Known for `memory://` only.
    commands_per_grant: Option<f64>,
    /// The time for which the server could not be reached.
    outage_seconds: f64,
    errors: u64,
    last_error: Option<String>,
}

impl Summary {
    pub(super) fn new(
        args: &DemoArgs,
        board: &Board,
        took: Duration,
        commands: Option<u64>,
    ) -> Self {
        let counts = board.counts();
        let waits = board.waits();
        let of_workers = board.grants_of_workers();
        let millis = |wait: Duration| round(wait.as_secs_f64() * 1e3, 3);
        Self {
            primitive: args.primitive,
            url: stanchion::ServerUrl::from(args.url.as_str()).to_string(),
            workers: args.workers,
            clients: board.clients,
            names: args.primitive.names(args.names),
            seconds: round(took.as_secs_f64(), 3),
            grants: counts.grants,
            grants_per_second: round(ratio(counts.grants, took.as_secs_f64()), 1),
            overlaps: counts.overlaps,
            stale_tokens: counts.stale_tokens,
            wait_p50_ms: millis(waits.p50),
            wait_p99_ms: millis(waits.p99),
            wait_max_ms: millis(waits.max),
            grants_after_same_client: counts.same_client,
            grants_after_other_client: counts.other_client,
            grants_per_worker: (
                of_workers.iter().min().copied().unwrap_or_default(),
                of_workers.iter().max().copied().unwrap_or_default(),
            ),
            lost_leases: counts.lost,
            commands_per_grant: commands
                .filter(|_| counts.grants > 0)
                .map(|commands| round(ratio(commands, as_float(counts.grants)), 2)),
            outage_seconds: round(board.outage().as_secs_f64(), 1),
            errors: counts.errors,
            last_error: board.last_error(),
        }
    }

    /// Returns whether there was no overlap, no stale token, no lost lease and no error.
    pub(super) fn is_good(&self) -> bool {
        let bad = [
            self.overlaps,
            self.stale_tokens,
            self.lost_leases,
            self.errors,
        ];
        bad.iter().all(|count| *count == 0)
    }

    /// The closing table, for lines of at most `columns`.
    pub(super) fn table(&self, colour: bool, columns: usize) -> String {
        let paint = |code: &str, text: String| {
            if colour {
                format!("\x1b[{code}m{text}\x1b[0m")
            } else {
                text
            }
        };
        let count = |bad: u64| paint(if bad == 0 { "1;32" } else { "1;31" }, bad.to_string());
        let passed = self.grants_after_same_client + self.grants_after_other_client;
        let share = |part: u64| {
            let percent = 100.0 * ratio(part, as_float(passed));
            format!("{} ({percent:.0}%)", grouped(part))
        };
        let (fewest, most) = self.grants_per_worker;
        let mut rows = vec![
            ("grants", grouped(self.grants)),
            (
                "grants per second",
                format!("{:.0}", self.grants_per_second),
            ),
            ("overlaps", count(self.overlaps)),
            ("tokens that did not grow", count(self.stale_tokens)),
            ("lost leases", count(self.lost_leases)),
            ("errors", count(self.errors)),
            (
                "wait p50 / p99 / max",
                format!(
                    "{:.1} / {:.1} / {:.1} ms",
                    self.wait_p50_ms, self.wait_p99_ms, self.wait_max_ms
                ),
            ),
            ("from the same client", share(self.grants_after_same_client)),
            ("from another client", share(self.grants_after_other_client)),
            (
                "fewest / most by a worker",
                format!("{} / {}", grouped(fewest), grouped(most)),
            ),
        ];
        if let Some(commands) = self.commands_per_grant {
            rows.push(("commands per grant", format!("{commands:.2}")));
        }
        if self.outage_seconds > 0.0 {
            let outage = format!("for {:.1} s", self.outage_seconds);
            rows.push(("server out of reach", paint("1;33", outage)));
        }
        let mut lines: Vec<String> = rows
            .into_iter()
            .map(|(label, value)| {
                if 30 + visible(&value) > columns {
                    format!("  {label}\n      {value}")
                } else {
                    format!("  {label:<26}  {value}")
                }
            })
            .collect();
        let verdict = if self.is_good() {
            paint("1;32", self.primitive.verdict().into())
        } else if self.overlaps > 0 {
            paint("1;31", self.primitive.alarm().into())
        } else {
            paint("1;31", "Something went wrong; nobody overlapped.".into())
        };
        let head = format!(
            "\n{} workers in {} clients, {}, {:.1} s on {}",
            self.workers,
            self.clients,
            self.primitive.prize(self.names),
            self.seconds,
            self.url
        );
        lines.insert(0, paint("1", wrapped(&head, columns)));
        lines.insert(1, wrapped(self.primitive.pace(), columns));
        lines.extend(
            self.last_error
                .iter()
                .map(|e| format!("  last error                  {e}")),
        );
        lines.push(verdict);
        lines.join("\n")
    }
}

/// The first line of the demonstration.
pub(super) fn headline(args: &DemoArgs) -> String {
    let workers = args.workers;
    let prize = args.primitive.prize(args.primitive.names(args.names));
    let url = stanchion::ServerUrl::from(args.url.as_str());
    let contend = match args.primitive {
        Primitive::Latch => "wait",
        _ => "contend for",
    };
    format!("{workers} workers {contend} {prize} on {url}")
}

/// The number of columns of `text`, without its colours.
fn visible(text: &str) -> usize {
    let mut parts = text.split('\x1b');
    let plain = parts.next().unwrap_or_default().chars().count();
    let coloured = parts.filter_map(|part| part.split_once('m'));
    plain
        + coloured
            .map(|(_, text)| text.chars().count())
            .sum::<usize>()
}

/// Breaks `text` between words into lines of at most `columns`.
fn wrapped(text: &str, columns: usize) -> String {
    let mut out = String::new();
    let mut used = 0;
    for (number, word) in text.split(' ').enumerate() {
        let length = word.trim_start().chars().count();
        if number > 0 && used + 1 + length > columns {
            out.push('\n');
            used = 0;
        } else if number > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += length;
    }
    out
}

/// A duration in milliseconds, one digit after the point.
pub(super) fn millis(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}

/// A number with its thousands apart.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of a minute are far below 2^53"
)]
fn as_float(count: u64) -> f64 {
    count as f64
}

fn ratio(part: u64, whole: f64) -> f64 {
    if whole > 0.0 {
        as_float(part) / whole
    } else {
        0.0
    }
}

fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("one two three", 7), "one two\nthree");
        assert_eq!(wrapped("one two three", usize::MAX), "one two three");
        assert_eq!(visible("a\x1b[1;32m0\x1b[0mb"), 3);
        assert_eq!(wrapped("\nunbreakable two", 4), "\nunbreakable\ntwo");
    }

    #[test]
    fn thousands_stand_apart() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1 000"),
            (1_234_567, "1 234 567"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }
}
