//! The layout of the live display.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Gauge, Padding, Paragraph, Sparkline, Wrap};

use super::board::{Board, State};
use super::summary::{grouped, headline, millis};
use super::{DemoArgs, LETTERS};
use crate::entry::{self, Entry};
use crate::screen;

const NUMBERS_WIDTH: u16 = 30;
/// The width below which the chart is below the numbers.
const WIDE: u16 = 64;
/// The width of the border and its padding.
const BORDER: u16 = 4;
const HOLDING: Color = Color::Green;
const WAITING: Color = Color::Yellow;
/// The names that are shown, at most.
const MOST_NAMES: u16 = 3;

/// The heights of headline, progress bar, gap, numbers and chart, gap, holder, clients, legend, gap, names.
fn heights(args: &DemoArgs, width: u16) -> [u16; 10] {
    // With their titles.
    let names = 1 + args.primitive.names(args.names).min(MOST_NAMES);
    if width >= WIDE + BORDER {
        [1, 1, 1, 6, 1, 1, 3, 2, 1, names]
    } else {
        [3, 1, 1, 9, 1, 2, 3, 3, 1, names]
    }
}

/// The parts that a low terminal does without, in this order, and what is left of each. The numbers stay: the overlaps are among them.
const LESS: [(usize, u16); 8] = [
    (9, 0),
    (8, 0),
    (3, 6),
    (4, 0),
    (2, 0),
    (7, 0),
    (5, 1),
    (0, 1),
];

/// The heights on a screen of this size, inside its border.
fn heights_within(args: &DemoArgs, area: Rect) -> [u16; 10] {
    let mut heights = heights(args, area.width);
    let room = area.height.saturating_sub(2);
    let mut missing = heights.iter().sum::<u16>().saturating_sub(room);
    for (part, least) in LESS {
        let less = missing.min(heights[part].saturating_sub(least));
        heights[part] -= less;
        missing -= less;
    }
    heights
}

/// The height of the display on a terminal of that width, with its border.
pub(super) fn height(args: &DemoArgs, width: u16) -> u16 {
    2 + heights(args, width).iter().sum::<u16>()
}

/// The numbers, and the chart to the right of them or below them.
fn columns(area: Rect) -> (Rect, Rect) {
    if area.width >= WIDE {
        let columns = [Constraint::Length(NUMBERS_WIDTH), Constraint::Min(10)];
        let [numbers, chart] = Layout::horizontal(columns).spacing(2).areas(area);
        (numbers, chart)
    } else {
        let [numbers, chart] =
            Layout::vertical([Constraint::Length(6), Constraint::Min(0)]).areas(area);
        (numbers, chart)
    }
}

/// One frame's facts.
pub(super) struct View<'a> {
    pub(super) args: &'a DemoArgs,
    pub(super) board: &'a Board,
    /// Grants per second, oldest first.
    pub(super) rates: &'a [u64],
    pub(super) names: &'a [Entry],
    pub(super) left: Duration,
}

impl View<'_> {
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let block = Block::bordered()
            .border_type(BorderType::Rounded)
            .border_style(Style::new().fg(Color::DarkGray))
            .padding(Padding::horizontal(1))
            .title(Line::from(" stanchion demo ").bold().fg(Color::Cyan))
            .title(Line::from(" q stops ").dim().right_aligned());
        let inner = block.inner(frame.area());
        frame.render_widget(block, frame.area());
        let rows = heights_within(self.args, frame.area()).map(Constraint::Length);
        let [
            head,
            progress,
            _,
            middle,
            _,
            holder,
            clients,
            legend,
            _,
            names,
        ] = Layout::vertical(rows).areas(inner);
        let (numbers, chart) = columns(middle);
        let wrapped = |text: &str| Paragraph::new(text.to_owned()).wrap(Wrap { trim: true });
        frame.render_widget(wrapped(&headline(self.args)), head);
        frame.render_widget(self.progress(), progress);
        frame.render_widget(Paragraph::new(self.numbers()), numbers);
        self.chart(frame, chart);
        let holders = Paragraph::new(self.holders()).wrap(Wrap { trim: true });
        frame.render_widget(holders, holder);
        frame.render_widget(Paragraph::new(self.clients(clients.width)), clients);
        let explained = Paragraph::new(self.legend()).wrap(Wrap { trim: true });
        frame.render_widget(explained, legend);
        frame.render_widget(Paragraph::new(self.names(names)), names);
    }

    /// The names as `top` shows them.
    fn names(&self, area: Rect) -> Vec<Line<'static>> {
        let width = usize::from(area.width).max(20);
        let (blocks, tones) = entry::live(self.names, ["LONGEST", "HELD"], width);
        let titles = blocks.titles.map(|titles| Line::raw(titles).dim());
        let rows = blocks.rows.into_iter().zip(tones);
        let rows = rows.flat_map(|(lines, tone)| {
            let style = screen::style(tone, true);
            lines.into_iter().map(move |line| Line::styled(line, style))
        });
        titles
            .into_iter()
            .chain(rows)
            .take(area.height.into())
            .collect()
    }

    /// The meaning of the signs, and the pace that limits the grants.
    fn legend(&self) -> Line<'static> {
        Line::from(vec![
            Span::styled("● ", Style::new().fg(HOLDING)),
            Span::raw("holds  ").dim(),
            Span::styled("○ ", Style::new().fg(WAITING)),
            Span::raw("waits  · rests   ").dim(),
            Span::raw(self.args.primitive.pace()).dim(),
        ])
    }

    fn progress(&self) -> Gauge<'static> {
        let all = self.args.duration().as_secs_f64();
        let left = self.left.as_secs_f64();
        Gauge::default()
            .use_unicode(true)
            .gauge_style(Style::new().fg(Color::Cyan).bg(Color::Black))
            .ratio((1.0 - left / all).clamp(0.0, 1.0))
            .label(format!("{left:.1} s left"))
    }

    fn numbers(&self) -> Vec<Line<'static>> {
        let counts = self.board.counts();
        let waits = self.board.waits();
        let waiting = self
            .board
            .states()
            .iter()
            .filter(|s| **s == State::Waiting)
            .count();
        let bad = counts.stale_tokens + counts.lost + counts.errors;
        let number = |label: &str, value: String, style: Style| {
            Line::from(vec![
                Span::raw(format!("{label:<10}")).dim(),
                Span::styled(format!("{value:>16}"), style),
            ])
        };
        let plain = Style::new().add_modifier(Modifier::BOLD);
        let judged = |count: u64| plain.fg(if count == 0 { Color::Green } else { Color::Red });
        vec![
            number("grants", grouped(counts.grants), plain),
            number(
                "overlaps",
                counts.overlaps.to_string(),
                judged(counts.overlaps),
            ),
            if self.board.is_out_of_reach() {
                number("server", "OUT OF REACH".into(), plain.fg(Color::Red))
            } else {
                number("faults", bad.to_string(), judged(bad))
            },
            number("waiting", waiting.to_string(), plain.fg(WAITING)),
            number("wait p50", millis(waits.p50), plain),
            number("wait p99", millis(waits.p99), plain),
        ]
    }

    fn chart(&self, frame: &mut Frame<'_>, area: Rect) {
        let [caption, bars] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(area);
        let now = self.rates.last().copied().unwrap_or_default();
        let text = Line::from(vec![
            Span::raw(grouped(now)).bold(),
            Span::raw(" grants per second").dim(),
        ]);
        frame.render_widget(Paragraph::new(text), caption);
        let shown = self.rates.len().saturating_sub(usize::from(bars.width));
        let chart = Sparkline::default()
            .data(self.rates[shown..].iter().copied())
            .style(Style::new().fg(Color::Cyan));
        frame.render_widget(chart, bars);
    }

    /// The last holder of each lock. They change faster than the eye: a frame shows one of many.
    fn holders(&self) -> Line<'static> {
        let green = Style::new().fg(HOLDING);
        let mut spans = vec![Span::raw(format!("{:<9} ", self.args.primitive.did())).dim()];
        match self.board.last_grants().as_slice() {
            [Some((worker, client, token))] => {
                let who = format!("worker {} of client {}", worker + 1, LETTERS[*client]);
                spans.push(Span::styled(who, green));
                let token = token.map(|token| format!("   token {token}"));
                spans.extend(token.map(|token| Span::raw(token).dim()));
            }
            many => {
                let short = |grant: &Option<(usize, usize, _)>| match grant {
                    Some((worker, client, _)) => format!("{}{}  ", LETTERS[*client], worker + 1),
                    None => "-  ".into(),
                };
                spans.extend(many.iter().map(|grant| Span::styled(short(grant), green)));
            }
        }
        Line::from(spans)
    }

    /// A row of workers for each client.
    fn clients(&self, width: u16) -> Vec<Line<'static>> {
        let states = self.board.states();
        let room = usize::from(width.saturating_sub(16)) / 2;
        (0..self.board.clients)
            .map(|client| {
                let mine = || states.iter().skip(client).step_by(self.board.clients);
                let mut spans = vec![Span::raw(format!("client {}  ", LETTERS[client])).dim()];
                spans.extend(mine().take(room).map(|state| match state {
                    State::Holding => Span::styled("● ", Style::new().fg(HOLDING)),
                    State::Waiting => Span::styled("○ ", Style::new().fg(WAITING)),
                    State::Resting => Span::raw("· ").dim(),
                }));
                let hidden = mine().count().saturating_sub(room);
                if hidden > 0 {
                    spans.push(Span::raw(format!("+{hidden}")).dim());
                }
                Line::from(spans)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::holder::HolderSeen;
    use crate::look::Kind;
    use crate::people::People;
    use crate::{Cli, Command};

    #[test]
    fn every_width_shows_names_holders_and_waiters() {
        let Command::Demo(args) = Cli::parse_from(["stanchion", "demo", "--names", "2"]).command
        else {
            panic!("it is demo");
        };
        let mut entry = Entry::at_rest(b"lock-1", Some(Kind::Lock));
        let owner = "9f1c0000-0000-4000-8000-000000000001:7";
        entry.holder = Some(HolderSeen::new(owner, 1, &People::default()));
        entry.waiting = Some(37);
        let names = [entry, Entry::at_rest(b"lock-2", Some(Kind::Lock))];
        let shown = |width, height| {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            let view = View {
                args: &args,
                board: &Board::new(12, 3, 2, 1),
                rates: &[1, 2],
                names: &names,
                left: Duration::from_secs(3),
            };
            terminal.draw(|frame| view.draw(frame)).unwrap();
            terminal.backend().to_string()
        };
        for (width, height) in [(40, 24), (40, 16), (80, 14)] {
            let shown = shown(width, height);
            for text in ["grants", "overlaps", "faults", "waiting", "client"] {
                assert!(shown.contains(text), "{text} at {width}x{height}:\n{shown}");
            }
        }
        for width in [40, 80, 120] {
            let shown = shown(width, height(&args, width));
            for text in [
                "lock-1",
                "lock-2",
                "java",
                "WAITING",
                "37",
                "grants per second",
            ] {
                assert!(shown.contains(text), "{text} at {width}:\n{shown}");
            }
        }
    }
}
