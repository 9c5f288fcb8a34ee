//! The one table writer: columns that fit the terminal, a card for each row where they cannot.

use unicode_width::UnicodeWidthStr as _;

use crate::wording::printable;

/// Tone of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    #[default]
    Plain,
    Dim,
    Good,
    Warn,
    Bad,
}

impl Tone {
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Dim => "\x1b[2m",
            Self::Good => "\x1b[32m",
            Self::Warn => "\x1b[33m",
            Self::Bad => "\x1b[31m",
        }
    }

    /// Colours `text`, if colours are allowed.
    pub(crate) fn paint(self, text: &str, colour: bool) -> String {
        match self.code() {
            "" => text.to_owned(),
            _ if !colour => text.to_owned(),
            code => format!("{code}{text}\x1b[0m"),
        }
    }
}

/// A cell. Its text is made [`printable`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

impl<S: Into<String>> From<S> for Cell {
    fn from(text: S) -> Self {
        Self {
            text: printable(&text.into()),
            tone: Tone::Plain,
        }
    }
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    /// Least width; 0: it is never cut.
    pub(crate) least: usize,
}

/// A row, and a note after it, or below it if there is no room.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) cells: Vec<Cell>,
    pub(crate) note: Cell,
}

/// The lines of a table, row by row. No title where each row is a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blocks {
    pub(crate) titles: Option<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// A table.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Row>,
}

const GAP: usize = 2;
/// The width of a note that may come after its row.
const NOTE: usize = 24;
/// The width to which a cell that may be cut is padded at most. A longer one moves the cells after it, and no other row.
const PADDED: usize = 40;
/// Begins lines that belong to the line above: the rest of a card, a note.
const INDENT: &str = "  ";

impl Table {
    /// Writes the lines of the table, none wider than `width`. Cuts what may be cut; shows a card for each row if that is not enough.
    pub(crate) fn lines(&self, width: Option<usize>, colour: bool) -> Vec<String> {
        let blocks = self.blocks(width, colour);
        let rows = blocks.rows.into_iter().flatten();
        blocks.titles.into_iter().chain(rows).collect()
    }

    /// The same as [`lines`](Self::lines), with the lines grouped by row.
    pub(crate) fn blocks(&self, width: Option<usize>, colour: bool) -> Blocks {
        let natural = self.natural();
        let Some(width) = width else {
            return self.rows_in(&natural, usize::MAX, colour);
        };
        match self.fitted(natural, width) {
            Some(widths) => self.rows_in(&widths, width, colour),
            None => Blocks {
                titles: None,
                rows: self.cards(width, colour),
            },
        }
    }

    /// Returns whether `width` is enough for a line for each row.
    pub(crate) fn fits(&self, width: usize) -> bool {
        self.fitted(self.natural(), width).is_some()
    }

    /// Leaves out the column with that title, if there is one.
    pub(crate) fn leave_out(&mut self, title: &str) {
        if let Some(at) = self.columns.iter().position(|it| it.title == title) {
            self.columns.remove(at);
            for row in &mut self.rows {
                row.cells.remove(at);
            }
        }
    }

    fn natural(&self) -> Vec<usize> {
        let of = |at: usize, column: &Column| {
            let cells = self.rows.iter().filter_map(|row| row.cells.get(at));
            let widest = cells.map(|cell| wide(&cell.text)).max();
            widest.unwrap_or(0).max(wide(column.title))
        };
        let columns = self.columns.iter().enumerate();
        columns
            .map(|(at, column)| match column.least {
                0 => of(at, column),
                least => of(at, column).min(PADDED.max(least)),
            })
            .collect()
    }

    /// Takes from the widest column that may be cut, until all fit. `None`: they cannot.
    fn fitted(&self, mut widths: Vec<usize>, width: usize) -> Option<Vec<usize>> {
        let total = |widths: &[usize]| widths.iter().sum::<usize>() + GAP * (widths.len() - 1);
        while total(&widths) > width {
            let cuttable = |at: &usize| {
                let least = self.columns[*at].least;
                least > 0 && widths[*at] > least
            };
            let at = (0..widths.len())
                .filter(cuttable)
                .max_by_key(|at| widths[*at])?;
            widths[at] -= 1;
        }
        Some(widths)
    }

    fn rows_in(&self, widths: &[usize], width: usize, colour: bool) -> Blocks {
        let titles = self.columns.iter().map(|column| Cell {
            text: column.title.into(),
            tone: Tone::Dim,
        });
        let head: Vec<Cell> = titles.collect();
        let body = widths.iter().sum::<usize>() + GAP * widths.len();
        // All notes on one side: a table with some after and some below their rows is hard to read.
        let widest = self.rows.iter().map(|row| wide(&row.note.text)).max();
        let behind = body.saturating_add(widest.unwrap_or(0)) <= width;
        let rows = self.rows.iter().map(|row| {
            let note = match behind && !row.note.text.is_empty() {
                true => GAP + wide(&row.note.text),
                false => 0,
            };
            let room = width.saturating_sub(note);
            let mut lines = vec![row_of(&row.cells, widths, room, colour)];
            if behind && !row.note.text.is_empty() {
                let line = &mut lines[0];
                let missing = body.saturating_sub(wide_without_colour(line)).max(GAP);
                line.push_str(&" ".repeat(missing));
                line.push_str(&row.note.tone.paint(&row.note.text, colour));
            } else if !row.note.text.is_empty() {
                lines.extend(remark(&row.note, width, colour));
            }
            lines
        });
        Blocks {
            titles: Some(row_of(&head, widths, width, colour)),
            rows: rows.collect(),
        }
    }

    fn cards(&self, width: usize, colour: bool) -> Vec<Vec<String>> {
        let label = self.columns.iter().skip(1).map(|column| wide(column.title));
        let label = label.max().unwrap_or(0);
        let card = |row: &Row| {
            let mut lines = Vec::new();
            let mut cells = self.columns.iter().zip(&row.cells);
            if let Some((_, first)) = cells.next() {
                lines.push(first.tone.paint(&cut(&first.text, width), colour));
            }
            for (column, cell) in cells.filter(|(_, cell)| !matches!(&*cell.text, "" | "-")) {
                let title = column.title.to_lowercase();
                let room = width.saturating_sub(INDENT.len() + label + GAP).max(1);
                let value = cell.tone.paint(&cut(&cell.text, room), colour);
                lines.push(format!("{INDENT}{title:<label$}{:GAP$}{value}", ""));
            }
            if !row.note.text.is_empty() {
                lines.extend(remark(&row.note, width, colour));
            }
            lines
        };
        self.rows.iter().map(card).collect()
    }
}

/// Writes a row. A cell that is wider than its column takes what is left of `room`, and is cut only if that is not enough.
fn row_of(cells: &[Cell], widths: &[usize], room: usize, colour: bool) -> String {
    let mut line = String::new();
    let mut owed = 0;
    let all = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
    let mut left = room.saturating_sub(all);
    for (cell, width) in cells.iter().zip(widths) {
        line.push_str(&" ".repeat(owed));
        let text = cut(&cell.text, width.saturating_add(left));
        let taken = wide(&text);
        left -= taken.saturating_sub(*width);
        owed = GAP + width.saturating_sub(taken);
        line.push_str(&cell.tone.paint(&text, colour));
    }
    line
}

fn remark(note: &Cell, width: usize, colour: bool) -> Vec<String> {
    let lines = wrapped(
        &note.text,
        width.saturating_sub(INDENT.len() + 2).max(NOTE / 2),
    );
    let painted = lines.iter().enumerate().map(|(at, line)| {
        let mark = if at == 0 { "^ " } else { "  " };
        note.tone.paint(&format!("{INDENT}{mark}{line}"), colour)
    });
    painted.collect()
}

/// The columns that a text takes on a terminal.
pub(crate) fn wide(text: &str) -> usize {
    text.width()
}

fn wide_without_colour(line: &str) -> usize {
    let mut plain = String::new();
    let mut rest = line;
    while let Some(at) = rest.find('\x1b') {
        plain.push_str(&rest[..at]);
        rest = rest[at..].split_once('m').map_or("", |(_, after)| after);
    }
    plain.push_str(rest);
    wide(&plain)
}

/// Cuts a text to a width: the middle goes, because names and owners differ at both ends.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if wide(text) <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let (mut head, mut tail) = (String::new(), Vec::new());
    let mut taken = 0;
    let mut chars = text.chars();
    // In turns from both ends, until the room is used.
    while let Some(c) = chars.next() {
        let size = wide(c.encode_utf8(&mut [0; 4]));
        if taken + size > room {
            break;
        }
        taken += size;
        head.push(c);
        let Some(c) = chars.next_back() else { break };
        let size = wide(c.encode_utf8(&mut [0; 4]));
        if taken + size > room {
            break;
        }
        taken += size;
        tail.push(c);
    }
    head.push('…');
    head.extend(tail.iter().rev());
    head
}

/// Breaks a text into lines at spaces, after making it [`printable`].
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in printable(text).split(' ') {
        if !line.is_empty() && wide(&line) + 1 + wide(word) > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        // A word without a place to break: a long name.
        while wide(&line) > width {
            let mut head = String::new();
            let mut chars = line.chars();
            for c in chars.by_ref() {
                head.push(c);
                if wide(&head) >= width {
                    break;
                }
            }
            line = chars.collect();
            lines.push(head);
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// The width of the terminal at standard output, or what `COLUMNS` says. `None`: a pipe or a file, where nothing is cut.
pub(crate) fn width_of_output() -> Option<usize> {
    let told = std::env::var("COLUMNS")
        .ok()
        .and_then(|text| text.parse().ok());
    let terminal = || {
        use std::io::IsTerminal as _;
        if !std::io::stdout().is_terminal() {
            return None;
        }
        let (width, _) = crossterm::terminal::size().ok()?;
        Some(usize::from(width))
    };
    told.or_else(terminal)
        .filter(|width| *width > 0)
        .map(|width| width.max(20))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let column = |title, least| Column { title, least };
        let row = |cells: &[&str], note: &str| Row {
            cells: cells.iter().map(|cell| Cell::from(*cell)).collect(),
            note: note.into(),
        };
        Table {
            columns: vec![column("NAME", 8), column("HOLDER", 8), column("LEASE", 0)],
            rows: vec![
                row(&["job:3", "billing@web-2 pid 4711", "22s"], ""),
                row(
                    &[
                        "a-name-that-is-longer-than-most",
                        "sell@web-1 pid 88",
                        "none",
                    ],
                    "no TTL",
                ),
            ],
        }
    }

    #[test]
    fn nothing_is_wider_than_the_terminal() {
        for width in 20..200 {
            for line in table().lines(Some(width), false) {
                assert!(wide(&line) <= width, "{width}: {line:?}");
            }
        }
    }

    #[test]
    fn a_long_name_moves_its_own_row_alone() {
        let mut table = table();
        table.rows[1].cells[0] = "x".repeat(300).into();
        let free = table.lines(None, false);
        assert!(free[1].len() < 80, "{free:?}");
        assert!(free[2].contains(&"x".repeat(300)) && free[2].ends_with("none  no TTL"));
        let wide_terminal = table.lines(Some(120), false);
        assert!(wide_terminal[1].len() < 80, "{wide_terminal:?}");
        let name = wide_terminal[2].split(' ').next().unwrap();
        assert!(wide(name) > 70 && name.contains('…'), "{name}");
    }

    #[test]
    fn the_ends_of_a_name_stay() {
        assert_eq!(cut("invoices:2026:eu-west", 11), "invoi…-west");
        assert_eq!(cut("short", 11), "short");
        assert!(wide(&cut("名前名前名前", 5)) <= 5);
    }

    #[test]
    fn a_remark_is_after_the_row_or_below_it_without_room() {
        let wide_enough = table().lines(Some(100), false);
        assert!(wide_enough[2].ends_with("none   no TTL"), "{wide_enough:?}");
        let narrow = table().lines(Some(50), false);
        assert_eq!(narrow[3], "  ^ no TTL");
    }

    #[test]
    fn a_narrow_terminal_gets_cards() {
        let lines = table().lines(Some(24), false);
        assert_eq!(lines[0], "job:3");
        assert_eq!(lines[1], "  holder  billing…d 4711");
    }

    #[test]
    fn colours_only_where_allowed() {
        let mut table = table();
        table.rows[0].cells[0].tone = Tone::Bad;
        let plain = table.lines(Some(80), false).concat();
        assert!(!plain.contains('\x1b'));
        assert!(
            table
                .lines(Some(80), true)
                .concat()
                .contains("\x1b[31mjob:3\x1b[0m")
        );
    }
}
