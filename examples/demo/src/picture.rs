//! The picture: the state of each task, the ways of the last wake-ups, and the counts.

use std::time::Duration;

use stanchion_embedded::Engine;
use stanchion_lock::{Client, ServerUrl};
use tokio::time::Instant;

use crate::board::{Board, Counts, Grant, LISTED, Route, State, Task};
use crate::{Args, CLIENTS, TASKS_PER_CLIENT, is_terminal};

const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "1;31";
const GREEN: &str = "1;32";
const YELLOW: &str = "33";

pub(crate) struct Picture<'a> {
    board: &'a Board,
    clients: &'a [Client],
    end: Instant,
    heading: String,
    /// Of a `memory://` URL, with the commands and messages before. A real server would also count those of other clients.
    engine: Option<(Engine, u64, u64)>,
    /// A picture, drawn again and again, instead of lines.
    live: bool,
    colour: bool,
    /// The number of lines that the picture has on the screen, or the number of grants that have their line.
    shown: usize,
    seconds: u64,
}

impl<'a> Picture<'a> {
    pub(crate) fn new(args: &Args, board: &'a Board, clients: &'a [Client], end: Instant) -> Self {
        let live = !args.plain && is_terminal();
        let heading = format!(
            "{} tasks in {} clients contend for one {} on {}.\n\
             A client stands for a process. {}",
            Task::all().count(),
            CLIENTS.len(),
            args.kind.noun(),
            ServerUrl::from(args.url.as_str()),
            args.kind.rule(),
        );
        Self {
            board,
            clients,
            end,
            heading,
            engine: args.url.strip_prefix("memory://").map(|namespace| {
                let engine = Engine::named(namespace.trim_end_matches('/'));
                let stats = engine.stats();
                (engine, stats.commands, stats.published)
            }),
            live,
            colour: live && std::env::var_os("NO_COLOR").is_none(),
            shown: 0,
            seconds: 0,
        }
    }

    /// What is written at this moment: the picture again, or the lines that are new.
    pub(crate) fn next(&mut self, now: Instant) -> String {
        if self.live {
            return self.drawn(now);
        }
        let counts = self.board.counts();
        let mut text = String::new();
        if self.shown == 0 && self.seconds == 0 {
            text = format!("{}\nSlow motion:\n", self.heading);
            self.seconds = 1;
        }
        let grants = self.board.last();
        let slow = usize::try_from(counts.grants - counts.fast).unwrap_or(usize::MAX);
        if counts.fast == 0 {
            let new = slow.saturating_sub(self.shown).min(grants.len());
            for grant in grants[..new].iter().rev() {
                text += &format!("{}\n", self.grant(grant));
            }
            self.shown = slow;
        } else if now > self.board.slow_until + Duration::from_secs(self.seconds) {
            self.seconds += 1;
            text += &format!("{}\n", self.totals(&counts, now).join("  "));
        }
        text
    }

    /// The result: the last picture stays, and the judgement follows.
    pub(crate) fn result(&mut self, now: Instant) -> String {
        let counts = self.board.counts();
        let mut text = if self.live {
            self.drawn(now)
        } else {
            let lines = [self.routes(&counts), self.totals(&counts, now)];
            format!("\n{}\n", lines.concat().join("\n"))
        };
        if let Some(error) = &counts.last_error {
            text += &format!("  last error: {error}\n");
        }
        text += &if counts.overlaps > 0 {
            self.paint(RED, "Two tasks were inside that exclude each other.")
        } else if !counts.is_good() {
            self.paint(RED, "Nothing overlapped, but something went wrong.")
        } else {
            self.paint(
                GREEN,
                "Nothing overlapped, and every token was larger than the one before.",
            )
        };
        text + "\n"
    }

    /// The picture over the one before. Its lines are cut, not wrapped; the cursor is hidden while it moves.
    fn drawn(&mut self, now: Instant) -> String {
        let lines = self.lines(now);
        let up = match self.shown {
            0 => String::new(),
            lines => format!("\x1b[{lines}A"),
        };
        self.shown = lines.len();
        let body = lines.join("\x1b[K\n");
        format!("\x1b[?25l\x1b[?7l{up}{body}\x1b[K\n\x1b[?7h\x1b[?25h")
    }

    fn lines(&self, now: Instant) -> Vec<String> {
        let counts = self.board.counts();
        let mut lines: Vec<String> = self.heading.lines().map(str::to_owned).collect();
        lines.extend([String::new(), self.pace(now)]);
        lines.extend(self.tasks());
        lines.extend([String::new(), "The last grants:".to_owned()]);
        let grants = self.board.last();
        lines
            .extend((0..LISTED).map(|n| grants.get(n).map_or_else(String::new, |g| self.grant(g))));
        lines.push(String::new());
        lines.extend(self.routes(&counts));
        lines.extend(self.totals(&counts, now));
        lines
    }

    fn pace(&self, now: Instant) -> String {
        let seconds = |until: Instant| (until - now).as_secs_f64();
        if !self.clients.iter().all(Client::is_connected) && now < self.end {
            return self.paint(RED, "The server is out of reach.");
        }
        let text = if now >= self.end {
            "The end".to_owned()
        } else if now < self.board.slow_until {
            let left = seconds(self.board.slow_until);
            format!("Slow motion for {left:.1} s, then full speed")
        } else {
            let left = seconds(self.end);
            format!("Full speed for {left:.1} s: holds and rests of up to 3 ms")
        };
        self.paint(BOLD, &text)
    }

    /// A column for each client.
    fn tasks(&self) -> Vec<String> {
        let states = self.board.states();
        let sign = |state| match state {
            State::Holds => self.paint(GREEN, "■ holds"),
            State::Waits => self.paint(YELLOW, "○ waits"),
            State::Rests => self.paint(DIM, "· rests"),
        };
        let titles: String = CLIENTS.iter().map(|c| format!("  client {c:<8}")).collect();
        let rows = (0..TASKS_PER_CLIENT).map(|row| {
            let mine = Task::all().skip(row).step_by(TASKS_PER_CLIENT);
            mine.map(|task| format!("  {task} {}     ", sign(states[task.index()])))
                .collect()
        });
        [titles].into_iter().chain(rows).collect()
    }

    /// How the lock came to a task.
    fn grant(&self, grant: &Grant) -> String {
        let task = grant.task;
        let client = |task: Task| CLIENTS[task.client()];
        let (from, way, delay) = match grant.route {
            Route::Inside(from, delay) => {
                let way = format!("inside {}, without a message", client(task));
                (format!("{from} →"), way, Some(delay))
            }
            Route::Message(from, delay) => {
                let way = format!("message from {} to {}", client(from), client(task));
                (format!("{from} →"), way, Some(delay))
            }
            Route::Free => (String::new(), "did not wait for a release".to_owned(), None),
        };
        let delay = delay.map_or_else(String::new, |d| format!("after {}", millis(d)));
        let token = grant
            .token
            .map_or_else(String::new, |t| format!("token {t}"));
        format!(
            "{from:>6} {task}  {way:<28}  {delay:<14}  {}",
            self.paint(DIM, &token)
        )
    }

    /// The grants by the way of the wake-up.
    fn routes(&self, counts: &Counts) -> Vec<String> {
        let ways = [
            "Passed inside a client, without a message",
            "Passed to another client, by a message",
        ];
        let rows = ways.iter().zip(&counts.passed).map(|(way, passed)| {
            let mut sorted: Vec<_> = passed.delays.iter().copied().collect();
            sorted.sort_unstable();
            let median = sorted.get(sorted.len() / 2).map_or_else(String::new, |d| {
                format!(", median {} after the release", millis(*d))
            });
            format!("{:<43} {:>5}{median}", format!("{way}:"), passed.times)
        });
        rows.collect()
    }

    fn totals(&self, counts: &Counts, now: Instant) -> Vec<String> {
        let fast = (now - self.board.slow_until).as_secs_f64();
        let rate = if fast > 0.0 {
            ratio(counts.fast, fast)
        } else {
            0.0
        };
        let costs = self.engine.as_ref().map(|(engine, commands, published)| {
            let stats = engine.stats();
            let each = |count: u64| ratio(count, ratio(counts.grants, 1.0).max(1.0));
            let (commands, messages) = (
                each(stats.commands - commands),
                each(stats.published - published),
            );
            format!(", each {commands:.2} commands and {messages:.2} messages")
        });
        let judged =
            |count: u64| self.paint(if count == 0 { GREEN } else { RED }, &count.to_string());
        vec![
            format!(
                "Grants: {}, {rate:.0} a second at full speed{}",
                counts.grants,
                costs.unwrap_or_default()
            ),
            format!(
                "Overlaps: {}  stale tokens: {}  errors: {}",
                judged(counts.overlaps),
                judged(counts.stale_tokens),
                judged(counts.errors)
            ),
        ]
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

fn millis(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of some minutes are far below 2^53"
)]
fn ratio(part: u64, whole: f64) -> f64 {
    part as f64 / whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use stanchion_lock::FencingToken;

    #[test]
    fn the_picture_fits_a_terminal_of_80_columns_and_24_lines() {
        let (now, mut heights) = (Instant::now(), Vec::new());
        for kind in [Kind::Lock, Kind::Fair, Kind::RwLock] {
            let args = Args {
                kind,
                seconds: 12,
                url: "memory://demo".to_owned(),
                plain: false,
            };
            let end = now + Duration::from_secs(12);
            let board = Board::new(now + Duration::from_secs(6));
            let mut picture = Picture::new(&args, &board, &[], end);
            picture.colour = false;
            for step in [0, 5, 9, 12] {
                for task in Task::all() {
                    board.waits(task);
                    board.enters(task, false, FencingToken::new(1_800_000_000_000_000 + step));
                    board.leaves(task, false);
                }
                let lines = picture.lines(now + Duration::from_secs(step));
                for line in &lines {
                    assert!(line.chars().count() <= 80, "{line}");
                }
                heights.push(lines.len());
            }
        }
        heights.dedup();
        assert!(matches!(*heights, [height] if height <= 23), "{heights:?}");
    }
}
