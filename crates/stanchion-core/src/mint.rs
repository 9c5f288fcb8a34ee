//! The Lua that mints a fencing token, put into the scripts that grant.

/// Mints `token`, and returns an error where the counter has none to give. Needs the locals `call`, `fence` (the counter's key;
/// `KEYS[1]`: mint none), `time` and `now` (the server's `TIME`, and that in microseconds).
const MINT: &str = include_str!("../lua/mint.lua");

/// The line of a script where it goes.
const LINE: &str = "-- @mint.lua\n";

/// The text of a script with `mint.lua` in the place of its line `-- @mint.lua`.
///
/// Not a Lua function, which would cost an uncontended acquire about 1 µs of the server's 14. Not `concat!`, which takes no text
/// of another crate, and would tear the script's own in two.
#[macro_export]
macro_rules! minting {
    ($text:expr) => {{
        const TEXT: &str = $text;
        const WHOLE: [u8; $crate::primitive::minting_len(TEXT)] = $crate::primitive::minting(TEXT);
        match ::std::str::from_utf8(&WHOLE) {
            Ok(whole) => whole,
            Err(_) => panic!("text put into text is text"),
        }
    }};
}

/// The length of the script that [`minting!`](crate::minting) makes of `text`.
#[doc(hidden)]
#[must_use]
pub const fn minting_len(text: &str) -> usize {
    text.len() - LINE.len() + MINT.len()
}

/// The script that [`minting!`](crate::minting) makes of `text`.
///
/// # Panics
/// When the program is compiled, if `text` has no line for it.
#[doc(hidden)]
#[must_use]
pub const fn minting<const N: usize>(text: &str) -> [u8; N] {
    let (text, mint) = (text.as_bytes(), MINT.as_bytes());
    let at = place(text);
    let mut whole = [0; N];
    let mut i = 0;
    while i < N {
        whole[i] = if i < at {
            text[i]
        } else if i < at + mint.len() {
            mint[i - at]
        } else {
            text[i - mint.len() + LINE.len()]
        };
        i += 1;
    }
    whole
}

const fn place(text: &[u8]) -> usize {
    let line = LINE.as_bytes();
    let mut at = 0;
    while at + line.len() <= text.len() {
        let mut same = 0;
        while same < line.len() && text[at + same] == line[same] {
            same += 1;
        }
        if same == line.len() {
            return at;
        }
        at += 1;
    }
    panic!("the script has no line `-- @mint.lua`");
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_line_is_replaced() {
        let whole = crate::minting!("local fence\n  -- @mint.lua\nreturn token\n");
        let (before, rest) = whole.split_once(super::MINT).unwrap();
        assert_eq!((before, rest), ("local fence\n  ", "return token\n"));
    }
}
