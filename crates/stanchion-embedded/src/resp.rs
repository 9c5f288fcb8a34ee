//! Requests: one command's arguments, and the parser that finds them in a byte stream cut anywhere.

use std::ops::Index;

/// The arguments of one command, in one buffer that is reused for the next command.
#[derive(Debug, Default)]
pub(crate) struct Request {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Request {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.bytes.shrink_to(KEPT);
        self.ends.shrink_to(KEPT);
    }

    /// The memory that the arguments take.
    fn size(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<usize>()
    }

    pub(crate) fn push(&mut self, argument: &[u8]) {
        self.bytes.extend_from_slice(argument);
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn args(&self) -> Args<'_> {
        Args {
            bytes: &self.bytes,
            ends: &self.ends,
            start: 0,
        }
    }
}

/// A view of a command's arguments; the command's name is argument 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Args<'a> {
    bytes: &'a [u8],
    ends: &'a [usize],
    start: usize,
}

impl<'a> Args<'a> {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&'a [u8]> {
        let end = *self.ends.get(index)?;
        let start = match index {
            0 => self.start,
            _ => self.ends[index - 1],
        };
        Some(&self.bytes[start..end])
    }

    /// Returns the arguments from `first` on.
    pub(crate) fn skip(&self, first: usize) -> Self {
        let first = first.min(self.ends.len());
        Self {
            bytes: self.bytes,
            ends: &self.ends[first..],
            start: match first {
                0 => self.start,
                _ => self.ends[first - 1],
            },
        }
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.len()).filter_map(move |i| self.get(i))
    }

    /// Returns whether argument `index` is `word`, in any case.
    pub(crate) fn is(&self, index: usize, word: &str) -> bool {
        self.get(index)
            .is_some_and(|a| a.eq_ignore_ascii_case(word.as_bytes()))
    }
}

impl Index<usize> for Args<'_> {
    type Output = [u8];

    /// Returns argument `index`. Callers have checked the count, by the command's arity or by `len`.
    fn index(&self, index: usize) -> &[u8] {
        self.get(index).unwrap_or_default()
    }
}

/// The result of one step of a [`Parser`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// The parser's request is a whole command. Without arguments it was an empty line.
    Command,
    /// The end of the command has not arrived yet.
    Incomplete,
    /// Not RESP, or larger than allowed; the text is the error of Redis.
    Broken(String),
}

/// The longest line of the protocol, as in Redis.
const LONGEST_LINE: usize = 64 * 1024;
/// The capacity that a buffer may keep when it is empty.
pub(crate) const KEPT: usize = 1024 * 1024;

/// The parser of one connection. It keeps a command that is cut off: no byte is parsed twice, however the stream is cut.
#[derive(Debug)]
pub(crate) struct Parser {
    request: Request,
    /// The number of arguments still to come; `None` between two commands.
    missing: Option<i64>,
    /// The length of the next argument, once it is known.
    length: Option<usize>,
    /// The largest command, in bytes of its arguments.
    largest: usize,
}

impl Parser {
    pub(crate) fn new(largest: usize) -> Self {
        Self {
            request: Request::default(),
            missing: None,
            length: None,
            largest,
        }
    }

    pub(crate) fn is_within_command(&self) -> bool {
        self.missing.is_some()
    }

    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.largest);
    }

    /// Returns the command that [`Parser::advance`] has completed in exchange for an old one.
    pub(crate) fn swap(&mut self, request: &mut Request) {
        std::mem::swap(&mut self.request, request);
    }

    /// Parses on at `input[*at..]`, to the end of the command or of the input. Moves `at` behind what was taken.
    pub(crate) fn advance(&mut self, input: &[u8], at: &mut usize) -> Parsed {
        if self.missing.is_none() {
            self.request.clear();
            match input.get(*at) {
                None => return Parsed::Incomplete,
                Some(b'*') => {}
                Some(_) => return self.inline(input, at),
            }
            match number_line(input, *at + 1) {
                Line::Missing => return Parsed::Incomplete,
                Line::Endless => return broken("too big mbulk count string"),
                Line::Number(count, next) => match count.filter(|n| *n <= 1024 * 1024) {
                    Some(count) => (self.missing, *at) = (Some(count), next),
                    None => return broken("invalid multibulk length"),
                },
            }
        }
        while let Some(missing) = self.missing.filter(|n| *n > 0) {
            match self.argument(input, at) {
                Some(Parsed::Command) => self.missing = Some(missing - 1),
                Some(other) => return other,
                None => return Parsed::Incomplete,
            }
        }
        self.missing = None;
        Parsed::Command
    }

    /// Parses one argument. Returns `None` if its end has not arrived.
    fn argument(&mut self, input: &[u8], at: &mut usize) -> Option<Parsed> {
        let length = match self.length {
            Some(length) => length,
            None => {
                match input.get(*at)? {
                    b'$' => {}
                    &other => {
                        let other = char::from(other);
                        return Some(broken(&format!("expected '$', got '{other}'")));
                    }
                }
                let (length, next) = match number_line(input, *at + 1) {
                    Line::Missing => return None,
                    Line::Endless => return Some(broken("too big bulk count string")),
                    Line::Number(length, next) => (length, next),
                };
                // Refused when it is announced, before its bytes take memory.
                let room = self.largest.checked_sub(self.request.size());
                let length = length.and_then(|n| usize::try_from(n).ok());
                let length = length
                    .filter(|n| *n <= 512 * 1024 * 1024 && room.is_some_and(|room| *n <= room));
                let Some(length) = length else {
                    return Some(broken("invalid bulk length"));
                };
                (self.length, *at) = (Some(length), next);
                length
            }
        };
        let rest = &input[*at..];
        if rest.len() < length + 2 {
            return None;
        }
        self.request.push(&rest[..length]);
        *at += length + 2;
        self.length = None;
        Some(Parsed::Command)
    }

    /// Parses an inline command, as typed into telnet: words between spaces, with quotes.
    fn inline(&mut self, input: &[u8], at: &mut usize) -> Parsed {
        let rest = &input[*at..];
        let Some(end) = rest.iter().position(|&b| b == b'\n') else {
            return match rest.len() > LONGEST_LINE {
                true => broken("too big inline request"),
                false => Parsed::Incomplete,
            };
        };
        if !split_words(&rest[..end], &mut self.request) {
            return broken("unbalanced quotes in request");
        }
        *at += end + 1;
        Parsed::Command
    }
}

fn broken(what: &str) -> Parsed {
    Parsed::Broken(format!("ERR Protocol error: {what}"))
}

/// A line that should hold a number.
enum Line {
    /// Its end has not arrived yet.
    Missing,
    /// It is longer than any number.
    Endless,
    /// The number, `None` if it is not one, and the start of the next line.
    Number(Option<i64>, usize),
}

/// Reads the line that starts at `at` as a number.
fn number_line(input: &[u8], at: usize) -> Line {
    let rest = input.get(at..).unwrap_or_default();
    match rest.iter().take(LONGEST_LINE).position(|&b| b == b'\r') {
        None if rest.len() >= LONGEST_LINE => Line::Endless,
        Some(end) if rest.len() > end + 1 => Line::Number(
            crate::keyspace::number::parse_int(&rest[..end]),
            at + end + 2,
        ),
        _ => Line::Missing,
    }
}

/// Splits a line into words as Redis does: `"…"` with escapes, `'…'` without. Returns false if a quote is not closed, or if
/// something other than a space follows one.
fn split_words(line: &[u8], request: &mut Request) -> bool {
    let mut at = 0;
    loop {
        while line.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        if at >= line.len() {
            return true;
        }
        let mut word = Vec::new();
        while let Some(&byte) = line.get(at).filter(|b| !b.is_ascii_whitespace()) {
            at += 1;
            if byte != b'"' && byte != b'\'' {
                word.push(byte);
                continue;
            }
            let Some(length) = quoted(&line[at..], byte, &mut word) else {
                return false;
            };
            at += length;
            if line.get(at).is_some_and(|b| !b.is_ascii_whitespace()) {
                return false;
            }
        }
        request.push(&word);
    }
}

/// Appends the text up to the closing `quote` to `word`. Returns the number of bytes with the quote, `None` without one.
fn quoted(text: &[u8], quote: u8, word: &mut Vec<u8>) -> Option<usize> {
    let mut at = 0;
    loop {
        let byte = *text.get(at)?;
        at += 1;
        if byte == quote {
            return Some(at);
        }
        if byte != b'\\' {
            word.push(byte);
            continue;
        }
        let escaped = *text.get(at)?;
        if quote == b'\'' {
            if escaped == b'\'' {
                at += 1;
                word.push(escaped);
            } else {
                word.push(byte);
            }
            continue;
        }
        at += 1;
        let hex = || std::str::from_utf8(text.get(at..at + 2)?).ok();
        match (escaped, hex().and_then(|h| u8::from_str_radix(h, 16).ok())) {
            (b'x', Some(code)) => {
                at += 2;
                word.push(code);
            }
            (b'n', _) => word.push(b'\n'),
            (b'r', _) => word.push(b'\r'),
            (b't', _) => word.push(b'\t'),
            (b'b', _) => word.push(8),
            (b'a', _) => word.push(7),
            (other, _) => word.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGEST: usize = 1000;

    /// Parses the whole of `input`; returns the words of its first command, and the number of bytes taken.
    fn parse(input: &[u8]) -> Result<(Vec<Vec<u8>>, usize), Parsed> {
        let (mut parser, mut request, mut at) = (Parser::new(LARGEST), Request::default(), 0);
        match parser.advance(input, &mut at) {
            Parsed::Command => parser.swap(&mut request),
            other => return Err(other),
        }
        Ok((request.args().iter().map(<[u8]>::to_vec).collect(), at))
    }

    #[test]
    fn a_command_cut_anywhere_is_incomplete_until_its_last_byte() {
        let whole = b"*2\r\n$3\r\nGET\r\n$4\r\n\r\n\0x\r\n";
        for cut in 0..whole.len() {
            let (mut parser, mut at) = (Parser::new(LARGEST), 0);
            assert_eq!(
                parser.advance(&whole[..cut], &mut at),
                Parsed::Incomplete,
                "{cut}"
            );
            // Parsed bytes are not needed again.
            let (rest, mut next) = (&whole[at..], 0);
            assert_eq!(parser.advance(rest, &mut next), Parsed::Command, "{cut}");
            assert_eq!(at + next, whole.len());
            let mut request = Request::default();
            parser.swap(&mut request);
            assert_eq!(&request.args()[1], b"\r\n\0x");
            assert_eq!(&request.args().skip(1)[0], b"\r\n\0x");
            assert!(!parser.is_within_command());
        }
    }

    #[test]
    fn inline_words_are_a_command() {
        let words = |words: &[&str]| words.iter().map(|w| w.as_bytes().to_vec()).collect();
        assert_eq!(parse(b"get  a\r\nrest"), Ok((words(&["get", "a"]), 8)));
        assert_eq!(parse(b"\r\n"), Ok((Vec::new(), 2)));
        let quoted = b"a\"b\\x41\\n\" 'it\\'s' \"\"\n";
        assert_eq!(
            parse(quoted),
            Ok((words(&["abA\n", "it's", ""]), quoted.len()))
        );
        for unbalanced in [&b"a \"b\n"[..], b"'a\n", b"\"a\"b\n"] {
            let error = "ERR Protocol error: unbalanced quotes in request";
            assert_eq!(parse(unbalanced), Err(Parsed::Broken(error.to_owned())));
        }
    }

    #[test]
    fn nonsense_is_refused_in_redis_words() {
        let refused = |input: &[u8], what: &str| {
            let error = format!("ERR Protocol error: {what}");
            assert_eq!(parse(input), Err(Parsed::Broken(error)));
        };
        refused(b"*1\r\n:3\r\n", "expected '$', got ':'");
        refused(b"*1\r\n$-3\r\n", "invalid bulk length");
        refused(b"*x\r\n", "invalid multibulk length");
        refused(
            &[b"*".as_slice(), &[b'1'; LONGEST_LINE]].concat(),
            "too big mbulk count string",
        );
        refused(&[b'x'; LONGEST_LINE + 1], "too big inline request");
    }

    #[test]
    fn a_command_that_is_too_large_is_refused_before_it_arrives() {
        let error = Parsed::Broken("ERR Protocol error: invalid bulk length".to_owned());
        assert_eq!(parse(b"*1\r\n$1001\r\n"), Err(error));
        let mut many = b"*1000000\r\n".to_vec();
        for _ in 0..LARGEST {
            many.extend_from_slice(b"$0\r\n\r\n");
        }
        assert!(
            matches!(parse(&many), Err(Parsed::Broken(_))),
            "arguments without text count"
        );
    }
}
