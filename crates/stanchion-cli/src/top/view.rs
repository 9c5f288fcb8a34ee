//! Drawing `top`: the server and the pattern, the table or one name, and the keys.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::state::{Mode, Question, Sort, State};
use crate::entry;
use crate::messages;
use crate::screen;
use crate::table::{self, Tone, wide};
use crate::wording::{age, printable};

/// Text around the table that does not come from keys.
pub(super) struct View<'a> {
    pub(super) server: &'a str,
    pub(super) every: Duration,
    /// Since the last poll that succeeded.
    pub(super) looked: Duration,
    pub(super) colour: bool,
}

/// The height of messages and of an outage.
const MOST: usize = 3;

impl View<'_> {
    pub(super) fn draw(&self, state: &mut State, frame: &mut Frame<'_>) {
        let width = usize::from(frame.area().width);
        let head = self.head(state, width);
        let foot = self.foot(state, width);
        let height =
            |lines: &[Line<'_>]| Constraint::Length(u16::try_from(lines.len()).unwrap_or(u16::MAX));
        let rows = [
            height(&head),
            Constraint::Length(1),
            Constraint::Min(1),
            height(&foot),
        ];
        let [top, _, middle, bottom] = Layout::vertical(rows).areas(frame.area());
        frame.render_widget(Paragraph::new(head), top);
        let body = match &mut state.mode {
            Mode::Pane {
                key, seen, from, ..
            } => {
                let lines = match seen {
                    Some(inspected) => inspected.lines(Some(width.max(20)), false),
                    None => vec![format!("{}: asking …", printable(key))],
                };
                *from = (*from).min(lines.len().saturating_sub(usize::from(middle.height)));
                lines.into_iter().skip(*from).map(Line::from).collect()
            }
            Mode::Help => {
                let keys = messages::KEYS_OF_TOP.iter();
                keys.flat_map(|line| match *line {
                    "" => vec![String::new()],
                    line => table::wrapped(line, width.max(20)),
                })
                .map(Line::from)
                .collect()
            }
            _ => self.list(state, middle),
        };
        frame.render_widget(Paragraph::new(body), middle);
        frame.render_widget(Paragraph::new(foot), bottom);
    }

    fn style(&self, tone: Tone) -> Style {
        screen::style(tone, self.colour)
    }

    fn head(&self, state: &State, width: usize) -> Vec<Line<'static>> {
        let sums = state.sums();
        let every = age(self.every);
        let title = table::cut(&format!("stanchion top  {}", self.server), width);
        let mut lines = vec![Line::styled(title, Style::new().bold())];
        let parts = [
            plural(sums.names as u64, "name"),
            plural(sums.holders, "holder"),
            plural(sums.waiting, "waiter"),
            format!(
                "looked {} ago",
                age(Duration::from_secs(self.looked.as_secs()).max(Duration::from_millis(1)))
            ),
            format!("every {every}"),
            format!("by {}", state.sort.word()),
        ];
        lines.extend(packed(&parts, width).into_iter().map(Line::from));
        if let Some(why) = &state.outage {
            let bad = self.style(Tone::Bad).bold();
            let told = table::wrapped(&printable(why.as_bytes()), width.max(1));
            let told = told.into_iter().take(MOST);
            lines.extend(told.map(|line| Line::styled(line, bad)));
        }
        lines
    }

    /// The rows that fit, around the one that is selected.
    fn list(&self, state: &mut State, area: Rect) -> Vec<Line<'static>> {
        let shown = state.shown();
        if shown.is_empty() {
            let why = match state.filter.is_empty() {
                true => messages::nothing_live(),
                false => messages::no_match(),
            };
            let lines = table::wrapped(why, usize::from(area.width).max(1));
            let dim = self.style(Tone::Dim);
            return lines
                .into_iter()
                .map(|line| Line::styled(line, dim))
                .collect();
        }
        let width = usize::from(area.width).max(20);
        let shown = shown.iter().copied();
        let (blocks, tones) = entry::live(shown, least_wanted(state.sort), width);
        let selected = state.position();
        let titled = usize::from(blocks.titles.is_some());
        let room = usize::from(area.height).saturating_sub(titled);
        let heights: Vec<usize> = blocks.rows.iter().map(Vec::len).collect();
        // The last line then shows the number of rows that do not fit.
        let overflows = heights.iter().sum::<usize>() > room;
        let room = room.saturating_sub(usize::from(overflows));
        state.top = first(&heights, selected, state.top, room);
        let dim = self.style(Tone::Dim);
        let titles = blocks.titles.map(|titles| Line::styled(titles, dim));
        let rows = blocks.rows.into_iter().zip(tones).enumerate();
        let rows = rows.skip(state.top).flat_map(|(at, (lines, tone))| {
            let mut style = self.style(tone);
            if selected == Some(at) {
                style = style.reversed();
            }
            lines.into_iter().map(move |line| Line::styled(line, style))
        });
        let lines = titles.into_iter().chain(rows);
        let mut lines: Vec<_> = lines
            .take(usize::from(area.height).min(titled + room))
            .collect();
        if overflows {
            let below = heights.len() - state.top - fitting(&heights[state.top..], room);
            lines.push(Line::styled(messages::more(state.top, below), dim));
        }
        lines
    }

    fn foot(&self, state: &State, width: usize) -> Vec<Line<'static>> {
        let dim = self.style(Tone::Dim);
        let keys = |keys: &[&str]| -> Vec<Line<'static>> {
            let lines = packed(keys, width).into_iter();
            lines.map(|line| Line::styled(line, dim)).collect()
        };
        let mut lines = Vec::new();
        if let Some(message) = &state.message {
            let told = table::wrapped(message, width.max(1)).into_iter();
            lines.extend(told.take(MOST).map(Line::from));
        }
        match &state.mode {
            Mode::Ask(question) => {
                let style = self.style(Tone::Bad).bold();
                let asked = asked(question, width).into_iter();
                lines.extend(asked.map(|line| Line::styled(line, style)));
            }
            Mode::Filter => {
                let typed = format!("/{}_", printable(state.filter.as_bytes()));
                lines.push(Line::from(table::cut(&typed, width)));
                lines.extend(keys(&["Enter keeps it", "Esc shows all"]));
            }
            Mode::Pane { .. } => lines.extend(keys(&["Esc back", "up/down scroll", "Ctrl-C quit"])),
            Mode::Help => {}
            Mode::List => {
                if !state.filter.is_empty() {
                    let kept = format!("/{}  Esc shows all", printable(state.filter.as_bytes()));
                    lines.push(Line::from(table::cut(&kept, width)));
                }
                lines.extend(keys(&[
                    "q quit",
                    "s sort",
                    "/ filter",
                    "up/down select",
                    "Enter inspect",
                    "f force-release",
                    "? keys",
                ]));
            }
        }
        lines
    }
}

/// The columns that a narrow terminal leaves out first; the column that gives the order stays.
const fn least_wanted(sort: Sort) -> [&'static str; 2] {
    match sort {
        Sort::Held => ["LONGEST", "WAITING"],
        Sort::Longest => ["HELD", "WAITING"],
        Sort::Waiting | Sort::Name => ["HELD", "LONGEST"],
    }
}

/// The question. The names are cut so that its end, which says how to answer, is always seen.
fn asked(question: &Question, width: usize) -> Vec<String> {
    let name = table::cut(&printable(&question.key), (2 * width / 3).max(8));
    let holder = table::cut(&question.holder, (2 * width / 3).max(8));
    let text = format!("force-release {name} from {holder}? y/N");
    table::wrapped(&text, width.max(1))
}

fn plural(number: u64, what: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {what}{ending}")
}

/// Puts parts into as few lines as they need, none broken.
fn packed(parts: &[impl AsRef<str>], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts.iter().map(AsRef::as_ref) {
        match lines.last_mut() {
            Some(line) if wide(line) + 2 + wide(part) <= width => {
                line.push_str("  ");
                line.push_str(part);
            }
            _ => lines.push(part.to_owned()),
        }
    }
    lines
}

/// The number of rows that fit as a whole.
fn fitting(heights: &[usize], room: usize) -> usize {
    let mut left = room;
    let fits = |height: &&usize| {
        let rest = left.checked_sub(**height);
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    heights.iter().take_while(fits).count()
}

/// The first row to show: the previous one, moved as little as needed to show the selected row.
fn first(heights: &[usize], selected: Option<usize>, before: usize, room: usize) -> usize {
    let last = heights.len().saturating_sub(1);
    let mut first = before.min(last);
    if let Some(selected) = selected {
        first = first.min(selected);
        while first < selected && heights[first..=selected].iter().sum::<usize>() > room {
            first += 1;
        }
    }
    // No empty room below while there are rows above.
    while first > 0 && heights[first - 1..].iter().sum::<usize>() <= room {
        first -= 1;
    }
    first
}
