//! Scripts that are put together from texts when the program is compiled.

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
    let mut whole = [0; N];
    let mut i = 0;
    while i < N {
        whole[i] = if i < at {
            text[i]
        } else if i < at + part.len() {
            part[i - at]
        } else {
            text[i - part.len() + mark.len()]
        };
        i += 1;
    }
    whole
}

const fn place(text: &[u8], mark: &[u8]) -> usize {
    let mut at = 0;
    while at + mark.len() <= text.len() {
        let mut same = 0;
        while same < mark.len() && text[at + same] == mark[same] {
            same += 1;
        }
        if same == mark.len() {
            return at;
        }
        at += 1;
    }
    panic!("the script has no line for that part");
}
