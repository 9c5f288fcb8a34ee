//! The terminal of a live display: raw mode, and the way back.

use std::io;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::style::{Color, Style};
use ratatui::{DefaultTerminal, TerminalOptions, Viewport};

use crate::table::Tone;

/// Returns whether q, Esc, Ctrl-C or Ctrl-D was pressed.
pub(crate) fn stops(key: &KeyEvent) -> bool {
    key.kind == KeyEventKind::Press
        && (interrupts(key) || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc))
}

/// Returns whether it is Ctrl-C or Ctrl-D, which raw mode turns into keys.
pub(crate) fn interrupts(key: &KeyEvent) -> bool {
    key.modifiers.contains(KeyModifiers::CONTROL) && matches!(key.code, KeyCode::Char('c' | 'd'))
}

/// The style of a tone.
pub(crate) fn style(tone: Tone, colour: bool) -> Style {
    let style = Style::new();
    match tone {
        Tone::Dim => style.dim(),
        _ if !colour => style,
        Tone::Plain => style,
        Tone::Good => style.fg(Color::Green),
        Tone::Warn => style.fg(Color::Yellow),
        Tone::Bad => style.fg(Color::Red),
    }
}

/// The terminal in raw mode. Restored when dropped, also after a signal or a panic.
pub(crate) struct Screen(pub(crate) DefaultTerminal);

impl Screen {
    /// Below the prompt, with a height for the width of the terminal. The drawn lines are removed at the end.
    pub(crate) fn inline(height_of: impl FnOnce(u16) -> u16) -> io::Result<Self> {
        let (width, height) = ratatui::crossterm::terminal::size()?;
        let viewport = Viewport::Inline(height_of(width).min(height));
        opened(ratatui::try_init_with_options(TerminalOptions { viewport }))
    }

    /// The whole terminal. Its former content comes back at the end.
    pub(crate) fn whole() -> io::Result<Self> {
        opened(ratatui::try_init())
    }
}

fn opened(opened: io::Result<DefaultTerminal>) -> io::Result<Screen> {
    if opened.is_err() {
        ratatui::restore();
    }
    opened.map(Screen)
}

impl Drop for Screen {
    fn drop(&mut self) {
        // OK: there is no remedy if the terminal refuses this.
        let _ = self.0.clear();
        let _ = self.0.show_cursor();
        ratatui::restore();
    }
}
