//! The terminal of a live display: raw mode, lines, and the way back.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::panic;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use crossterm::terminal::{self, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{cursor, execute};

use crate::table::{self, Tone};

/// Returns whether it is Ctrl-C or Ctrl-D, which raw mode turns into keys.
pub(crate) fn interrupts(key: &KeyEvent) -> bool {
    key.modifiers.contains(KeyModifiers::CONTROL) && matches!(key.code, KeyCode::Char('c' | 'd'))
}

/// A line of a display, in one style.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    text: String,
    tone: Tone,
    bold: bool,
    reversed: bool,
}

impl Line {
    pub(crate) fn new(text: impl Into<String>, tone: Tone) -> Self {
        let text = text.into();
        Self {
            text,
            tone,
            ..Self::default()
        }
    }

    pub(crate) const fn bold(mut self) -> Self {
        self.bold = true;
        self
    }

    pub(crate) const fn reversed(mut self, on: bool) -> Self {
        self.reversed = on;
        self
    }

    /// The text as a terminal shows it: control characters could move the cursor.
    pub(crate) fn shown(&self, width: usize) -> String {
        table::cut(&self.text, width).replace(char::is_control, " ")
    }

    fn codes(&self, colour: bool) -> String {
        let tone = match self.tone {
            Tone::Dim => ";2",
            Tone::Good if colour => ";32",
            Tone::Warn if colour => ";33",
            Tone::Bad if colour => ";31",
            _ => "",
        };
        let bold = if self.bold { ";1" } else { "" };
        let reversed = if self.reversed { ";7" } else { "" };
        format!("\x1b[0{tone}{bold}{reversed}m")
    }
}

/// The whole terminal in raw mode. Its former content comes back when this is dropped, also after a signal or a panic.
pub(crate) struct Screen {
    colour: bool,
}

impl Screen {
    pub(crate) fn whole(colour: bool) -> io::Result<Self> {
        let report = panic::take_hook();
        // The message of a panic would disappear with the display.
        panic::set_hook(Box::new(move |panic| {
            restore();
            report(panic);
        }));
        terminal::enable_raw_mode()?;
        let screen = Self { colour };
        execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }

    /// Shows the lines for a width and a height.
    pub(crate) fn draw(&self, lines: impl FnOnce(usize, usize) -> Vec<Line>) -> io::Result<()> {
        let (width, height) = terminal::size()?;
        let (width, height) = (usize::from(width), usize::from(height));
        // Each line is written over the old one, so that nothing flickers.
        let mut text = String::new();
        for (row, line) in lines(width, height).iter().take(height).enumerate() {
            let (codes, shown) = (line.codes(self.colour), line.shown(width));
            let _ = write!(text, "\x1b[{};1H{codes}{shown}\x1b[0m\x1b[K", row + 1);
        }
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    // OK: there is no remedy if the terminal refuses this.
    let _ = execute!(io::stdout(), cursor::Show, LeaveAlternateScreen);
    let _ = terminal::disable_raw_mode();
}
