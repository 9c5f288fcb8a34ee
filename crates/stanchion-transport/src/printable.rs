//! Displays text of other programs safely on a terminal and in a log.

use std::borrow::Cow;
use std::fmt;

/// Displays text that another program wrote, such as a name, an owner or a server's message.
///
/// Every user with write access to the server chooses names and owners. A name could contain escape sequences that clear the
/// screen, a line feed that forges a log line, or a mark that reverses the direction of the text after it. Therefore control
/// characters, characters without a glyph and bytes that are not UTF-8 are written as escapes: `\u{1b}`, `\n`, `\xff`. All
/// other text is shown unchanged. Text that is already printable does not change.
///
/// ```
/// use stanchion_transport::Printable;
///
/// assert_eq!(Printable::new("täglich {7}").to_string(), "täglich {7}");
/// assert_eq!(Printable::new(b"a\x1b[2J\n").to_string(), "a\\u{1b}[2J\\n");
/// ```
#[derive(Clone, Copy)]
pub struct Printable<'a>(&'a [u8]);

impl<'a> Printable<'a> {
    /// Displays `text`, which need not be UTF-8.
    #[must_use]
    pub fn new<T: AsRef<[u8]> + ?Sized>(text: &'a T) -> Self {
        Self(text.as_ref())
    }

    /// Returns the text with its escapes.
    #[must_use]
    pub fn text(self) -> Cow<'a, str> {
        match std::str::from_utf8(self.0) {
            Ok(text) if !text.contains(is_escaped) => Cow::Borrowed(text),
            _ => Cow::Owned(self.escaped()),
        }
    }

    fn escaped(self) -> String {
        let mut shown = String::with_capacity(self.0.len());
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if is_escaped(c) {
                    shown.extend(c.escape_default());
                } else {
                    shown.push(c);
                }
            }
            for byte in chunk.invalid() {
                shown.push_str(&format!("\\x{byte:02x}"));
            }
        }
        shown
    }
}

/// Returns whether a character is a control character, or changes the direction or the appearance of its neighbours.
fn is_escaped(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text())
    }
}

impl fmt::Debug for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_that_controls_a_terminal_is_shown() {
        let shown = |text: &[u8]| Printable::new(text).to_string();
        assert_eq!(shown(b"a\x1b[2Jb\nc\r\x07"), "a\\u{1b}[2Jb\\nc\\r\\u{7}");
        assert_eq!(
            shown("\u{9b}2J\u{202e}b\u{2028}".as_bytes()),
            "\\u{9b}2J\\u{202e}b\\u{2028}"
        );
        assert_eq!(shown(b"\xff\xfeok"), "\\xff\\xfeok");
        assert_eq!(
            shown("täglich \"7\" \\ 錠".as_bytes()),
            "täglich \"7\" \\ 錠"
        );
    }

    #[test]
    fn shown_twice_is_shown_once() {
        let once = Printable::new(b"\x1b\xff\n").to_string();
        assert_eq!(Printable::new(&once).to_string(), once);
        assert_eq!(format!("{:>4}|", Printable::new("ab")), "  ab|");
    }
}
