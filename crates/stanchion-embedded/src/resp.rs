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

/// The result of parsing the start of a byte stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// A whole command of this many bytes, now in the request. Without arguments it was an empty line.
    Command(usize),
    /// A command whose end has not arrived yet.
    Incomplete,
    /// Not RESP; the text is the error of Redis.
    Broken(String),
}

/// Parses the command at the start of `input` into `request`.
pub(crate) fn parse(input: &[u8], request: &mut Request) -> Parsed {
    request.clear();
    match input.first() {
        None => Parsed::Incomplete,
        Some(b'*') => parse_array(input, request),
        Some(_) => parse_inline(input, request),
    }
}

fn parse_array(input: &[u8], request: &mut Request) -> Parsed {
    let Some((count, mut at)) = number_line(input, 1) else {
        return Parsed::Incomplete;
    };
    let Some(count) = count.filter(|n| *n <= 1024 * 1024) else {
        return Parsed::Broken("ERR Protocol error: invalid multibulk length".to_owned());
    };
    for _ in 0..count {
        match input.get(at) {
            None => return Parsed::Incomplete,
            Some(b'$') => {}
            Some(&other) => {
                let other = char::from(other);
                return Parsed::Broken(format!("ERR Protocol error: expected '$', got '{other}'"));
            }
        }
        let Some((length, start)) = number_line(input, at + 1) else {
            return Parsed::Incomplete;
        };
        let Some(length) = length
            .and_then(|n| usize::try_from(n).ok())
            .filter(|n| *n <= 512 * 1024 * 1024)
        else {
            return Parsed::Broken("ERR Protocol error: invalid bulk length".to_owned());
        };
        let Some(argument) = input.get(start..start + length) else {
            return Parsed::Incomplete;
        };
        if input.len() < start + length + 2 {
            return Parsed::Incomplete;
        }
        request.push(argument);
        at = start + length + 2;
    }
    Parsed::Command(at)
}

/// Reads the line that starts at `at` as a number (`None` if it is not one). Returns it with the start of the next line.
fn number_line(input: &[u8], at: usize) -> Option<(Option<i64>, usize)> {
    let rest = input.get(at..)?;
    let end = rest.iter().position(|&b| b == b'\r')?;
    rest.get(end + 1)?;
    let number = crate::keyspace::number::parse_int(&rest[..end]);
    Some((number, at + end + 2))
}

/// Parses an inline command, as typed into telnet: words between spaces, no quoting.
fn parse_inline(input: &[u8], request: &mut Request) -> Parsed {
    let Some(end) = input.iter().position(|&b| b == b'\n') else {
        return match input.len() > 64 * 1024 {
            true => Parsed::Broken("ERR Protocol error: too big inline request".to_owned()),
            false => Parsed::Incomplete,
        };
    };
    for word in input[..end].split(|b| b.is_ascii_whitespace()) {
        if !word.is_empty() {
            request.push(word);
        }
    }
    Parsed::Command(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_cut_anywhere_is_incomplete_until_its_last_byte() {
        let whole = b"*2\r\n$3\r\nGET\r\n$4\r\n\r\n\0x\r\n";
        let mut request = Request::default();
        for cut in 0..whole.len() {
            assert_eq!(parse(&whole[..cut], &mut request), Parsed::Incomplete);
        }
        assert_eq!(parse(whole, &mut request), Parsed::Command(whole.len()));
        assert_eq!(&request.args()[1], b"\r\n\0x");
        assert_eq!(&request.args().skip(1)[0], b"\r\n\0x");
    }

    #[test]
    fn inline_words_are_a_command() {
        let mut request = Request::default();
        assert_eq!(parse(b"get  a\r\nrest", &mut request), Parsed::Command(8));
        assert_eq!(request.args().len(), 2);
        assert_eq!(&request.args()[0], b"get");
    }

    #[test]
    fn nonsense_is_refused_in_redis_words() {
        let mut request = Request::default();
        assert_eq!(
            parse(b"*1\r\n:3\r\n", &mut request),
            Parsed::Broken("ERR Protocol error: expected '$', got ':'".to_owned())
        );
    }
}
