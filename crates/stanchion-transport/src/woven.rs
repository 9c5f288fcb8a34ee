//! Scripts that are put together from texts when the program is compiled.

use crate::script::starts_with;

/// A text, and the line of a script that it replaces.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    mark: &'static str,
    text: &'static str,
}

impl Part {
    /// Makes the part that replaces the line `mark`.
    #[must_use]
    pub const fn new(mark: &'static str, text: &'static str) -> Self {
        Self { mark, text }
    }
}

/// The text of a script with a part in the place of its mark.
#[macro_export]
macro_rules! woven {
    ($text:expr, $part:expr) => {{
        const TEXT: &str = $text;
        const WHOLE: [u8; $crate::length_with(TEXT, $part)] = $crate::with(TEXT, $part);
        match ::std::str::from_utf8(&WHOLE) {
            Ok(whole) => whole,
            Err(_) => panic!("text put into text is text"),
        }
    }};
}

/// The length of the script that [`woven!`](crate::woven!) makes.
#[must_use]
pub const fn length_with(text: &str, part: Part) -> usize {
    text.len() - part.mark.len() + part.text.len()
}

/// The script that [`woven!`](crate::woven!) makes.
///
/// # Panics
/// When the program is compiled, if `text` has no line for it.
#[must_use]
pub const fn with<const N: usize>(text: &str, part: Part) -> [u8; N] {
    let (text, mark, part) = (text.as_bytes(), part.mark.as_bytes(), part.text.as_bytes());
    let at = place(text, mark);
    let (before, marked) = text.split_at(at);
    let (_, after) = marked.split_at(mark.len());
    let mut whole = [0; N];
    // Slices, not bytes: the compiler interprets this. A loop over the bytes took it seven seconds for the semaphores alone.
    let (first, rest) = whole.split_at_mut(at);
    let (second, third) = rest.split_at_mut(part.len());
    first.copy_from_slice(before);
    second.copy_from_slice(part);
    third.copy_from_slice(after);
    whole
}

const fn place(text: &[u8], mark: &[u8]) -> usize {
    let (first, end) = (mark[0], text.len());
    let mut at = 0;
    while at < end {
        if text[at] == first && starts_with(text.split_at(at).1, mark) {
            return at;
        }
        at += 1;
    }
    panic!("the script has no line for that part");
}
