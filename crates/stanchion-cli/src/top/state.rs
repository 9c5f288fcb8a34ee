//! State of `top`, and the meaning of its keys. Nothing here sends requests or draws.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind};

use super::Sums;
use crate::entry::Entry;
use crate::inspect::Inspected;
use crate::look::Kind;
use crate::messages;
use crate::screen;
use crate::wording::printable;

/// The order of the names; those that are equal are in order of their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    /// The most waiters first.
    #[default]
    Waiting,
    /// The longest wait first.
    Longest,
    /// The oldest hold first.
    Held,
    Name,
}

impl Sort {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Longest => "longest wait",
            Self::Held => "hold age",
            Self::Name => "name",
        }
    }

    const fn next(self) -> Self {
        match self {
            Self::Waiting => Self::Longest,
            Self::Longest => Self::Held,
            Self::Held => Self::Name,
            Self::Name => Self::Waiting,
        }
    }
}

/// A question to the user, about the names that the screen showed when `f` was pressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) key: Vec<u8>,
    pub(super) kind: Option<Kind>,
    pub(super) owners: Vec<String>,
    /// The holders in few words.
    pub(super) holder: String,
}

/// Meaning of the keys now.
#[derive(Clone, Debug)]
pub(super) enum Mode {
    List,
    /// The filter is being typed.
    Filter,
    /// The keys are explained.
    Help,
    Ask(Question),
    /// Everything about one name, from this line on. `None`: the reply has not arrived yet.
    Pane {
        key: Vec<u8>,
        kind: Option<Kind>,
        seen: Option<Box<Inspected>>,
        from: usize,
    },
}

/// Request of a key to the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    Inspect(Vec<u8>, Option<Kind>),
    Release(Question),
}

#[derive(Clone, Debug)]
pub(super) struct State {
    entries: Vec<Entry>,
    pub(super) sort: Sort,
    pub(super) filter: String,
    pub(super) mode: Mode,
    /// The name that is selected. One that is not listed any more is not replaced by its neighbour: `f` must not meet another name
    /// than the one that the user has seen.
    selected: Option<Vec<u8>>,
    /// Row of the selection.
    at: usize,
    /// The first row on the screen, which the drawing moves.
    pub(super) top: usize,
    /// Outcome of the last operation.
    pub(super) message: Option<String>,
    /// Failure of the last poll.
    pub(super) outage: Option<String>,
}

impl State {
    pub(super) fn new(entries: Vec<Entry>) -> Self {
        let mut state = Self {
            entries: Vec::new(),
            sort: Sort::default(),
            filter: String::new(),
            mode: Mode::List,
            selected: None,
            at: 0,
            top: 0,
            message: None,
            outage: None,
        };
        // No name is selected before the user has selected one: `f` takes a lock from its holder.
        state.looked(Ok(entries));
        state
    }

    /// Takes the result of a poll. If it failed, the previous names stay.
    pub(super) fn looked(&mut self, looked: Result<Vec<Entry>, String>) {
        match looked {
            Ok(entries) => {
                self.outage = None;
                self.entries = entries;
                self.arrange();
                if let Some(at) = self.position() {
                    self.at = at;
                } else {
                    self.selected = None;
                }
            }
            Err(why) => self.outage = Some(why),
        }
    }

    fn arrange(&mut self) {
        let sort = self.sort;
        self.entries.sort_by(|a, b| {
            let number = |entry: &Entry| match sort {
                Sort::Waiting => entry.waiting,
                Sort::Longest => entry.longest_wait_ms,
                Sort::Held => entry.held_ms,
                Sort::Name => None,
            };
            number(b).cmp(&number(a)).then_with(|| a.key.cmp(&b.key))
        });
    }

    /// The entries that the filter lets through, in order.
    pub(super) fn shown(&self) -> Vec<&Entry> {
        let wanted = self.filter.to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&wanted);
        let lets = |entry: &&Entry| has(&printable(&entry.key)) || has(&entry.held_by());
        self.entries.iter().filter(lets).collect()
    }

    pub(super) fn sums(&self) -> Sums {
        Sums::of(&self.entries)
    }

    /// The row that is selected, if it is shown.
    pub(super) fn position(&self) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        self.shown().iter().position(|entry| entry.key == *selected)
    }

    fn select(&mut self, at: usize) {
        let shown = self.shown();
        let at = at.min(shown.len().saturating_sub(1));
        let key = shown.get(at).map(|entry| entry.key.clone());
        (self.at, self.selected) = (at, key);
    }

    fn step(&mut self, by: isize) {
        let at = match self.position() {
            Some(at) => at.saturating_add_signed(by),
            // From nothing, the first key selects the row where the selection was.
            None => self.at,
        };
        self.select(at);
    }

    fn chosen(&mut self) -> Option<Entry> {
        let chosen = self.position().map(|at| self.shown()[at].clone());
        if chosen.is_none() {
            self.message = Some(messages::no_selection().into());
        }
        chosen
    }

    /// Takes the reply to an inspection, if the user has not closed it.
    pub(super) fn inspected(&mut self, of: &[u8], inspected: Result<Box<Inspected>, String>) {
        match (&mut self.mode, inspected) {
            (Mode::Pane { key, seen, .. }, Ok(inspected)) if key == of => {
                *seen = Some(inspected);
            }
            (Mode::Pane { key, .. }, Err(why)) if key == of => self.message = Some(why),
            _ => {}
        }
    }

    pub(super) fn key(&mut self, key: &KeyEvent) -> Option<Action> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        if screen::interrupts(key) {
            return Some(Action::Quit);
        }
        match &self.mode {
            Mode::List => self.key_of_list(key.code),
            Mode::Filter => {
                self.key_of_filter(key.code);
                None
            }
            // Any key.
            Mode::Help => {
                self.mode = Mode::List;
                None
            }
            Mode::Ask(_) => self.answer(key.code),
            Mode::Pane { .. } => {
                self.key_of_pane(key.code);
                None
            }
        }
    }

    fn key_of_list(&mut self, key: KeyCode) -> Option<Action> {
        self.message = None;
        match key {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Esc if self.filter.is_empty() => return Some(Action::Quit),
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                self.arrange();
                self.top = 0;
            }
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('?') => self.mode = Mode::Help,
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.step(-10),
            KeyCode::PageDown => self.step(10),
            KeyCode::Home => self.select(0),
            KeyCode::End => self.select(usize::MAX),
            KeyCode::Enter => {
                let Entry { key, kind, .. } = self.chosen()?;
                self.mode = Mode::Pane {
                    key: key.clone(),
                    kind,
                    seen: None,
                    from: 0,
                };
                return Some(Action::Inspect(key, kind));
            }
            KeyCode::Char('f') => self.ask(),
            _ => {}
        }
        None
    }

    fn ask(&mut self) {
        let Some(entry) = self.chosen() else { return };
        let name = printable(&entry.key);
        match entry.kind {
            Some(kind) if kind.is_shared_out() => {
                let rule = "a semaphore, a latch or a limiter is not held as a whole";
                self.message = Some(format!("{name}: {rule}"));
            }
            _ if entry.owners.is_empty() => self.message = Some(format!("{name} is free")),
            kind => {
                self.mode = Mode::Ask(Question {
                    holder: entry.held_by(),
                    key: entry.key,
                    kind,
                    owners: entry.owners,
                });
            }
        }
    }

    /// `y` is the only yes. Every other key means no.
    fn answer(&mut self, key: KeyCode) -> Option<Action> {
        let Mode::Ask(question) = std::mem::replace(&mut self.mode, Mode::List) else {
            return None;
        };
        if matches!(key, KeyCode::Char('y' | 'Y')) {
            return Some(Action::Release(question));
        }
        self.message = Some("Nothing was done.".into());
        None
    }

    fn key_of_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char(c) => self.filter.push(c),
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Enter => self.mode = Mode::List,
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = Mode::List;
            }
            KeyCode::Up => self.step(-1),
            KeyCode::Down => self.step(1),
            _ => {}
        }
    }

    fn key_of_pane(&mut self, code: KeyCode) {
        let Mode::Pane { from, .. } = &mut self.mode else {
            return;
        };
        match code {
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') => {
                self.mode = Mode::List;
                self.message = None;
            }
            KeyCode::Up | KeyCode::Char('k') => *from = from.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => *from += 1,
            KeyCode::PageUp => *from = from.saturating_sub(10),
            KeyCode::PageDown => *from += 10,
            KeyCode::Home => *from = 0,
            _ => {}
        }
    }
}
