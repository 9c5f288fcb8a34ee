//! Drawing `top`: the server and the pattern, the table or one name, and the keys.

use std::time::Duration;

use super::state::{Mode, Question, Sort, State};
use crate::entry;
use crate::messages;
use crate::screen::Line;
use crate::table::{self, Tone, wide};
use crate::wording::{age, printable};

/// Text around the table that does not come from keys.
pub(super) struct View<'a> {
    pub(super) server: &'a str,
    pub(super) every: Duration,
    /// Since the last poll that succeeded.
    pub(super) looked: Duration,
}

/// The height of messages and of an outage.
const MOST: usize = 3;

impl View<'_> {
    /// The lines of the whole screen.
    pub(super) fn lines(&self, state: &mut State, width: usize, height: usize) -> Vec<Line> {
        let mut lines = self.head(state, width);
        let foot = Self::foot(state, width);
        lines.push(Line::default());
        let room = height.saturating_sub(lines.len() + foot.len()).max(1);
        let mut body = Self::body(state, width, room);
        body.resize(room, Line::default());
        lines.extend(body.into_iter().chain(foot));
        // On a low terminal: a question stays, with the keys that answer it.
        lines.drain(..lines.len().saturating_sub(height));
        lines
    }

    fn body(state: &mut State, width: usize, height: usize) -> Vec<Line> {
        match &mut state.mode {
            Mode::Pane {
                key, seen, from, ..
            } => {
                let lines = match seen {
                    Some(inspected) => inspected.lines(Some(width.max(20)), false),
                    None => vec![format!("{}: asking …", printable(key))],
                };
                *from = (*from).min(lines.len().saturating_sub(height));
                plain(lines.into_iter().skip(*from))
            }
            Mode::Help => {
                let keys = messages::KEYS_OF_TOP.iter();
                plain(keys.flat_map(|line| match *line {
                    "" => vec![String::new()],
                    line => table::wrapped(line, width.max(20)),
                }))
            }
            _ => Self::list(state, width, height),
        }
    }

    fn head(&self, state: &State, width: usize) -> Vec<Line> {
        let sums = state.sums();
        let every = age(self.every);
        let title = table::cut(&format!("stanchion top  {}", self.server), width);
        let mut lines = vec![Line::new(title, Tone::Plain).bold()];
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
        lines.extend(plain(packed(&parts, width)));
        if let Some(why) = &state.outage {
            let told = table::wrapped(&printable(why.as_bytes()), width.max(1));
            let told = told.into_iter().take(MOST);
            lines.extend(told.map(|line| Line::new(line, Tone::Bad).bold()));
        }
        lines
    }

    /// The rows that fit, around the one that is selected.
    fn list(state: &mut State, width: usize, height: usize) -> Vec<Line> {
        let shown = state.shown();
        if shown.is_empty() {
            let why = match state.filter.is_empty() {
                true => messages::nothing_live(),
                false => messages::no_match(),
            };
            return dim(table::wrapped(why, width.max(1)));
        }
        let shown = shown.iter().copied();
        let (blocks, tones) = entry::live(shown, least_wanted(state.sort), width.max(20));
        let selected = state.position();
        let titled = usize::from(blocks.titles.is_some());
        let room = height.saturating_sub(titled);
        let heights: Vec<usize> = blocks.rows.iter().map(Vec::len).collect();
        // The last line then shows the number of rows that do not fit.
        let overflows = heights.iter().sum::<usize>() > room;
        let room = room.saturating_sub(usize::from(overflows));
        state.top = first(&heights, selected, state.top, room);
        let titles = dim(blocks.titles);
        let rows = blocks.rows.into_iter().zip(tones).enumerate();
        let rows = rows.skip(state.top).flat_map(|(at, (lines, tone))| {
            let lines = lines.into_iter();
            lines.map(move |line| Line::new(line, tone).reversed(selected == Some(at)))
        });
        let lines = titles.into_iter().chain(rows);
        let mut lines: Vec<_> = lines.take(height.min(titled + room)).collect();
        if overflows {
            let below = heights.len() - state.top - fitting(&heights[state.top..], room);
            lines.extend(dim([messages::more(state.top, below)]));
        }
        lines
    }

    fn foot(state: &State, width: usize) -> Vec<Line> {
        let keys = |keys: &[&str]| dim(packed(keys, width));
        let mut lines = Vec::new();
        if let Some(message) = &state.message {
            let told = table::wrapped(message, width.max(1)).into_iter();
            lines.extend(plain(told.take(MOST)));
        }
        match &state.mode {
            Mode::Ask(question) => {
                let asked = asked(question, width).into_iter();
                lines.extend(asked.map(|line| Line::new(line, Tone::Bad).bold()));
            }
            Mode::Filter => {
                let typed = format!("/{}_", printable(state.filter.as_bytes()));
                lines.extend(plain([typed]));
                lines.extend(keys(&["Enter keeps it", "Esc shows all"]));
            }
            Mode::Pane { .. } => lines.extend(keys(&["Esc back", "up/down scroll", "Ctrl-C quit"])),
            Mode::Help => {}
            Mode::List => {
                if !state.filter.is_empty() {
                    let kept = format!("/{}  Esc shows all", printable(state.filter.as_bytes()));
                    lines.extend(plain([kept]));
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

fn plain(texts: impl IntoIterator<Item = String>) -> Vec<Line> {
    let texts = texts.into_iter();
    texts.map(|text| Line::new(text, Tone::Plain)).collect()
}

fn dim(texts: impl IntoIterator<Item = String>) -> Vec<Line> {
    let texts = texts.into_iter();
    texts.map(|text| Line::new(text, Tone::Dim)).collect()
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
