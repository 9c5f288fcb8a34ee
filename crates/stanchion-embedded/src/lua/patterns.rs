//! The patterns of Lua 5.1 with a budget of steps and a limit of depth.
//!
//! Lua's own matcher is a C function. No hook runs while it does, so a script that calls it cannot be stopped: a pattern of
//! some twenty repetitions takes longer than the universe has existed, and one of a million repetitions overflows the stack.
//! This one has the same results, but for the depth: it refuses what nests deeper than [`MAX_DEPTH`], as Lua 5.2 and later do.

use std::ops::Range;

/// The most captures of a pattern (`LUA_MAXCAPTURES`).
const MAX_CAPTURES: usize = 32;
/// The deepest nesting of repetitions and captures behind each other (`MAXCCALLS` of Lua 5.2). Each level takes stack.
const MAX_DEPTH: usize = 200;
/// The number of steps between two checks of the clock: about 100 µs.
const STEPS: usize = 32 * 1024;

/// The reason why a search ends early.
#[derive(Debug)]
pub(super) enum Stop<E> {
    /// The pattern is wrong. The text is Lua's.
    Pattern(&'static str),
    /// The check of the clock has failed.
    Budget(E),
}

type Match<E> = Result<Option<usize>, Stop<E>>;

/// A capture of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    /// Its end is not found yet.
    Unfinished,
    /// `()`: only the position counts.
    Position,
    Bytes(usize),
}

/// A capture of a finished match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Capture {
    /// The pattern does not end it.
    Unfinished,
    /// A position, counted from 0.
    Position(usize),
    Text(Range<usize>),
}

/// A search for one pattern in one text.
pub(super) struct Search<'a, L> {
    text: &'a [u8],
    /// Up to the first zero byte, which ends patterns in Lua 5.1.
    pattern: &'a [u8],
    captures: [(usize, Length); MAX_CAPTURES],
    /// The number of captures begun.
    level: usize,
    depth: usize,
    budget: Budget<L>,
}

/// Counts steps, and checks the clock after every [`STEPS`] of them.
pub(super) struct Budget<L> {
    left: usize,
    /// Fails when the time is over.
    look: L,
}

impl<E, L: FnMut() -> Result<(), E>> Budget<L> {
    pub(super) const fn new(look: L) -> Self {
        Self { left: STEPS, look }
    }

    fn spend(&mut self, steps: usize) -> Result<(), E> {
        self.left = self.left.saturating_sub(steps);
        if self.left == 0 {
            self.left = STEPS;
            (self.look)()?;
        }
        Ok(())
    }
}

impl<'a, E, L: FnMut() -> Result<(), E>> Search<'a, L> {
    pub(super) fn new(text: &'a [u8], pattern: &'a [u8], look: L) -> Self {
        let end = pattern.iter().position(|byte| *byte == 0);
        Self {
            text,
            pattern: &pattern[..end.unwrap_or(pattern.len())],
            captures: [(0, Length::Unfinished); MAX_CAPTURES],
            level: 0,
            depth: 0,
            budget: Budget::new(look),
        }
    }

    /// Finds the first match at or after `from`, which is at most the length of the text; with `anchored` only there.
    pub(super) fn find(
        &mut self,
        from: usize,
        anchored: bool,
    ) -> Result<Option<Range<usize>>, Stop<E>> {
        for start in from..=self.text.len() {
            self.level = 0;
            if let Some(end) = self.matches(start, 0)? {
                return Ok(Some(start..end));
            }
            if anchored {
                break;
            }
        }
        Ok(None)
    }

    /// Returns the captures of the last match.
    pub(super) fn captures(&self) -> impl ExactSizeIterator<Item = Capture> {
        let capture = |&(start, length): &(usize, Length)| match length {
            Length::Unfinished => Capture::Unfinished,
            Length::Position => Capture::Position(start),
            Length::Bytes(bytes) => Capture::Text(start..start + bytes),
        };
        self.captures[..self.level].iter().map(capture)
    }

    fn spend(&mut self, steps: usize) -> Result<(), Stop<E>> {
        self.budget.spend(steps).map_err(Stop::Budget)
    }

    /// The byte of the pattern at `at`; 0 behind its end, as in C.
    fn byte(&self, at: usize) -> u8 {
        self.pattern.get(at).copied().unwrap_or(0)
    }

    /// Matches the pattern from `p` on at `s`, one level deeper. Returns the end of the match.
    fn matches(&mut self, s: usize, p: usize) -> Match<E> {
        if self.depth == MAX_DEPTH {
            return Err(Stop::Pattern("pattern too complex"));
        }
        self.depth += 1;
        let end = self.matches_here(s, p);
        self.depth -= 1;
        end
    }

    fn matches_here(&mut self, mut s: usize, mut p: usize) -> Match<E> {
        loop {
            self.spend(1)?;
            match (self.byte(p), self.byte(p + 1)) {
                (0, _) => return Ok(Some(s)),
                (b'(', b')') => return self.start_capture(s, p + 2, Length::Position),
                (b'(', _) => return self.start_capture(s, p + 1, Length::Unfinished),
                (b')', _) => return self.end_capture(s, p + 1),
                (b'$', 0) => return Ok((s == self.text.len()).then_some(s)),
                (b'%', b'b') => match self.balance(s, p + 2)? {
                    None => return Ok(None),
                    Some(end) => (s, p) = (end, p + 4),
                },
                (b'%', b'f') => {
                    p += 2;
                    if self.byte(p) != b'[' {
                        return Err(Stop::Pattern("missing '[' after '%f' in pattern"));
                    }
                    let end = self.class_end(p)?;
                    let before = s.checked_sub(1).map_or(0, |at| self.text[at]);
                    let after = self.text.get(s).copied().unwrap_or(0);
                    if self.in_set(before, p, end - 1) || !self.in_set(after, p, end - 1) {
                        return Ok(None);
                    }
                    p = end;
                }
                (b'%', digit @ b'0'..=b'9') => match self.repeated(s, digit)? {
                    None => return Ok(None),
                    Some(end) => (s, p) = (end, p + 2),
                },
                _ => {
                    let end = self.class_end(p)?;
                    let fits = self.fits(s, p, end);
                    match self.byte(end) {
                        b'?' => {
                            if fits && let Some(found) = self.matches(s + 1, end + 1)? {
                                return Ok(Some(found));
                            }
                            p = end + 1;
                        }
                        b'*' => return self.expand_most(s, p, end),
                        b'+' if fits => return self.expand_most(s + 1, p, end),
                        b'-' => return self.expand_least(s, p, end),
                        b'+' => return Ok(None),
                        _ if !fits => return Ok(None),
                        _ => (s, p) = (s + 1, end),
                    }
                }
            }
        }
    }

    fn expand_most(&mut self, s: usize, p: usize, end: usize) -> Match<E> {
        let mut times = 0;
        while self.fits(s + times, p, end) {
            // The whole set is searched.
            self.spend(end - p)?;
            times += 1;
        }
        loop {
            if let Some(found) = self.matches(s + times, end + 1)? {
                return Ok(Some(found));
            }
            if times == 0 {
                return Ok(None);
            }
            times -= 1;
        }
    }

    fn expand_least(&mut self, mut s: usize, p: usize, end: usize) -> Match<E> {
        loop {
            if let Some(found) = self.matches(s, end + 1)? {
                return Ok(Some(found));
            }
            if !self.fits(s, p, end) {
                return Ok(None);
            }
            self.spend(end - p)?;
            s += 1;
        }
    }

    fn start_capture(&mut self, s: usize, p: usize, length: Length) -> Match<E> {
        if self.level == MAX_CAPTURES {
            return Err(Stop::Pattern("too many captures"));
        }
        self.captures[self.level] = (s, length);
        self.level += 1;
        let found = self.matches(s, p)?;
        if found.is_none() {
            self.level -= 1;
        }
        Ok(found)
    }

    fn end_capture(&mut self, s: usize, p: usize) -> Match<E> {
        let open = |(_, length): &(usize, Length)| *length == Length::Unfinished;
        let Some(last) = self.captures[..self.level].iter().rposition(open) else {
            return Err(Stop::Pattern("invalid pattern capture"));
        };
        self.captures[last].1 = Length::Bytes(s - self.captures[last].0);
        let found = self.matches(s, p)?;
        if found.is_none() {
            self.captures[last].1 = Length::Unfinished;
        }
        Ok(found)
    }

    /// Matches the text of an earlier capture once more: `%1`.
    fn repeated(&mut self, s: usize, digit: u8) -> Match<E> {
        let number = usize::from(digit.wrapping_sub(b'1'));
        match self.captures[..self.level].get(number) {
            None | Some((_, Length::Unfinished)) => Err(Stop::Pattern("invalid capture index")),
            // C compares with a length of -2 as an unsigned number: no text is as long.
            Some((_, Length::Position)) => Ok(None),
            Some(&(start, Length::Bytes(bytes))) => {
                self.spend(bytes / 16)?;
                let (text, again) = (&self.text[start..start + bytes], &self.text[s..]);
                Ok(again.starts_with(text).then_some(s + bytes))
            }
        }
    }

    /// `%bxy`: from `x` to the `y` that balances it.
    fn balance(&mut self, s: usize, p: usize) -> Match<E> {
        let (open, close) = (self.byte(p), self.byte(p + 1));
        if open == 0 || close == 0 {
            return Err(Stop::Pattern("unbalanced pattern"));
        }
        if self.text.get(s) != Some(&open) {
            return Ok(None);
        }
        let mut nested = 1_usize;
        for at in s + 1..self.text.len() {
            self.spend(1)?;
            let byte = self.text[at];
            if byte == close {
                nested -= 1;
                if nested == 0 {
                    return Ok(Some(at + 1));
                }
            } else if byte == open {
                nested += 1;
            }
        }
        Ok(None)
    }

    /// Returns the end of the single character, class or set at `p`.
    fn class_end(&mut self, p: usize) -> Result<usize, Stop<E>> {
        match self.byte(p) {
            b'%' if self.byte(p + 1) == 0 => {
                Err(Stop::Pattern("malformed pattern (ends with '%')"))
            }
            b'%' => Ok(p + 2),
            b'[' => {
                let mut at = p + 1 + usize::from(self.byte(p + 1) == b'^');
                // The first character belongs to the set, also if it is a bracket.
                loop {
                    self.spend(1)?;
                    match self.byte(at) {
                        0 => {
                            return Err(Stop::Pattern("malformed pattern (missing ']')"));
                        }
                        b'%' if self.byte(at + 1) != 0 => at += 2,
                        _ => at += 1,
                    }
                    if self.byte(at) == b']' {
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    /// Returns whether the text has a character at `s` that fits the part of the pattern from `p` to `end`.
    fn fits(&self, s: usize, p: usize, end: usize) -> bool {
        let Some(&byte) = self.text.get(s) else {
            return false;
        };
        match self.byte(p) {
            b'.' => true,
            b'%' => in_class(byte, self.byte(p + 1)),
            b'[' => self.in_set(byte, p, end - 1),
            literal => literal == byte,
        }
    }

    /// Returns whether `byte` is in the set from the bracket at `p` to the one at `end`.
    fn in_set(&self, byte: u8, p: usize, end: usize) -> bool {
        let negated = self.byte(p + 1) == b'^';
        let mut at = p + 1 + usize::from(negated);
        while at < end {
            let first = self.byte(at);
            if first == b'%' {
                if in_class(byte, self.byte(at + 1)) {
                    return !negated;
                }
                at += 2;
            } else if self.byte(at + 1) == b'-' && at + 2 < end {
                if (first..=self.byte(at + 2)).contains(&byte) {
                    return !negated;
                }
                at += 3;
            } else if first == byte {
                return !negated;
            } else {
                at += 1;
            }
        }
        negated
    }
}

/// Returns whether `byte` is of the class of a letter, as in the locale `C`; any other character is its own class.
fn in_class(byte: u8, class: u8) -> bool {
    let is = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        // Rust's has no vertical tab.
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is == class.is_ascii_lowercase()
}

/// Finds `wanted` itself in `text`, at or after `from`, which is at most the length of the text.
pub(super) fn find_plain<E, L: FnMut() -> Result<(), E>>(
    text: &[u8],
    wanted: &[u8],
    from: usize,
    budget: &mut Budget<L>,
) -> Result<Option<usize>, E> {
    let Some((first, rest)) = wanted.split_first() else {
        return Ok(Some(from));
    };
    let mut at = from;
    while let Some(skipped) = text[at..].iter().position(|byte| byte == first) {
        at += skipped;
        let same = text[at + 1..].iter().zip(rest).take_while(|(a, b)| a == b);
        let same = same.count();
        if same == rest.len() {
            return Ok(Some(at));
        }
        budget.spend(1 + skipped / 16 + same / 4)?;
        at += 1;
    }
    Ok(None)
}

/// Returns whether a pattern has no character with a meaning of its own before its first zero byte.
pub(super) fn is_plain(pattern: &[u8]) -> bool {
    let end = pattern.iter().position(|byte| *byte == 0);
    let pattern = &pattern[..end.unwrap_or(pattern.len())];
    !pattern.iter().any(|byte| b"^$*+?.([%-".contains(byte))
}
