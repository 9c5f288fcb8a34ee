//! Scripts, and single invocations of scripts.

use std::sync::OnceLock;

use redis::Cmd;

use crate::slot::slot_of;

/// A Lua script with a header that documents its keys and arguments. The compiler checks the `K` keys and `A` arguments
/// against the header. A call passes arrays of exactly these lengths.
///
/// Header lines start with `-- KEYS[` and `-- ARGV[`. A script for many [items](Script::item) documents the argument that
/// all items share, then the keys and arguments of one item.
#[derive(Debug)]
pub struct Script<const K: usize, const A: usize> {
    source: Source,
}

/// A script's text and its SHA-1, computed once.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) name: &'static str,
    text: &'static str,
    sha: OnceLock<String>,
}

impl Source {
    pub(crate) fn sha(&self) -> &str {
        self.sha
            // Computed at the first call, because a const fn cannot compute the hash.
            .get_or_init(|| sha1_smol::Sha1::from(self.text).digest().to_string())
    }
}

impl<const K: usize, const A: usize> Script<K, A> {
    /// Declares a script: `name` for logs, `text` usually from `include_str!`.
    ///
    /// # Panics
    /// At compile time, if the header documents a different number of keys or arguments.
    #[must_use]
    pub const fn new(name: &'static str, text: &'static str) -> Self {
        let (keys, args) = documented(text.as_bytes());
        assert!(keys == K, "the header documents another number of KEYS");
        assert!(args == A, "the header documents another number of ARGV");
        Self {
            source: Source {
                name,
                text,
                sha: OnceLock::new(),
            },
        }
    }

    /// Returns the text that the server executes.
    #[must_use]
    pub fn text(&self) -> &'static str {
        self.source.text
    }

    /// Returns one invocation.
    #[must_use]
    pub fn call(&'static self, keys: [&[u8]; K], args: [Arg<'_>; A]) -> Call {
        let mut call = Call::start(&self.source, K, K + A);
        for key in keys {
            call.cmd.arg(key);
        }
        for arg in args {
            arg.write(&mut call.cmd);
        }
        call
    }

    /// Returns one invocation of a script with variable numbers of keys and arguments.
    #[must_use]
    pub fn batch<'a>(&'static self, keys: &[&[u8]], args: impl Iterator<Item = Arg<'a>>) -> Call {
        let mut call = Call::start(&self.source, keys.len(), keys.len() + args.size_hint().0);
        for key in keys {
            call.cmd.arg(*key);
        }
        for arg in args {
            arg.write(&mut call.cmd);
        }
        call
    }

    /// Returns one item of a script that handles many items: its keys, and its arguments after the shared first one.
    #[must_use]
    pub fn item<const B: usize>(&'static self, keys: [Vec<u8>; K], args: [Vec<u8>; B]) -> Item {
        const { assert!(B + 1 == A, "one argument is common to all items") };
        Item {
            source: &self.source,
            keys: keys.into(),
            args: args.into(),
            parts: Vec::new(),
        }
    }
}

/// Returns the numbers of keys and of arguments that a script documents: its lines that start with `-- KEYS[` and `-- ARGV[`.
// Uses indices over bytes, because a const fn has no iterators. One pass, which calls nothing for most bytes: the compiler interprets it.
const fn documented(text: &[u8]) -> (usize, usize) {
    let (mut keys, mut args) = (0, 0);
    let end = text.len();
    let (mut at, mut line) = (0, 0);
    while at < end {
        if at == line {
            let (_, rest) = text.split_at(at);
            keys += starts_with(rest, b"-- KEYS[") as usize;
            args += starts_with(rest, b"-- ARGV[") as usize;
        }
        if text[at] == b'\n' {
            line = at + 1;
        }
        at += 1;
    }
    (keys, args)
}

/// Returns whether `text` starts with `start`.
pub(crate) const fn starts_with(text: &[u8], start: &[u8]) -> bool {
    let mut i = 0;
    while i < start.len() {
        if i >= text.len() || text[i] != start[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// One script argument.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Arg<'a> {
    /// Bytes, as they are.
    Bytes(&'a [u8]),
    /// A number, in decimal.
    Int(u64),
}

impl Arg<'_> {
    fn write(self, cmd: &mut Cmd) {
        match self {
            Arg::Bytes(bytes) => cmd.arg(bytes),
            // Written as decimal text. A Lua number keeps only 53 bits, so scripts receive their numbers as text.
            Arg::Int(n) => cmd.arg(n),
        };
    }
}

impl<'a> From<&'a str> for Arg<'a> {
    fn from(text: &'a str) -> Self {
        Self::Bytes(text.as_bytes())
    }
}

impl<'a> From<&'a [u8]> for Arg<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<u64> for Arg<'_> {
    fn from(n: u64) -> Self {
        Self::Int(n)
    }
}

/// The keys and arguments of one item of a script that handles many items. See [`Script::item`].
#[derive(Clone, Debug)]
pub struct Item {
    source: &'static Source,
    keys: Vec<Vec<u8>>,
    args: Vec<Vec<u8>>,
    /// The items to send one by one while the keys are on two nodes; empty if there are none.
    parts: Vec<Self>,
}

impl Item {
    /// Adds items, usually one for each key. They replace this item, in this order, while the keys are on two nodes.
    #[must_use]
    pub fn or_in_parts(mut self, parts: impl Into<Vec<Self>>) -> Self {
        self.parts = parts.into();
        self
    }

    /// Returns the parts that may be sent one by one in place of this item.
    #[must_use]
    pub fn parts(&self) -> &[Self] {
        &self.parts
    }

    /// Returns the script's name: items of the same script can share a call.
    pub fn script(&self) -> &'static str {
        self.source.name
    }

    /// Returns one invocation for `items`, which must belong to one script. `first` is the argument that they share. Returns
    /// `None` if there are no items.
    pub fn call_all(first: u64, items: &[&Self]) -> Option<Call> {
        let source = items.first()?.source;
        // KEYS and ARGV are two lists, so the script finds the keys and arguments of an item by its position in both.
        let keys = items.iter().map(|item| item.keys.len()).sum();
        let args: usize = items.iter().map(|item| item.args.len()).sum();
        let mut call = Call::start(source, keys, keys + 1 + args);
        for key in items.iter().flat_map(|item| &item.keys) {
            call.cmd.arg(key);
        }
        call.cmd.arg(first);
        for arg in items.iter().flat_map(|item| &item.args) {
            call.cmd.arg(arg);
        }
        Some(call)
    }
}

/// A script with its keys and arguments, ready to be sent as often as needed.
#[derive(Clone)]
pub struct Call {
    pub(crate) source: &'static Source,
    pub(crate) cmd: Cmd,
}

impl Call {
    /// `parts` is the number of keys and arguments.
    fn start(source: &'static Source, keys: usize, parts: usize) -> Self {
        // Reserves 40 bytes for each key and argument, so that most calls need only two allocations.
        let mut cmd = Cmd::with_capacity(3 + parts, 40 * (3 + parts));
        cmd.arg("EVALSHA").arg(source.sha()).arg(keys);
        Self { source, cmd }
    }

    /// Returns the keys of this call.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let simple = |arg| match arg {
            redis::Arg::Simple(bytes) => Some(bytes),
            _ => None,
        };
        let count = self.cmd.args_iter().nth(2).and_then(simple);
        let count = count.and_then(|text| str::from_utf8(text).ok()?.parse().ok());
        let keys = self.cmd.args_iter().skip(3).filter_map(simple);
        keys.take(count.unwrap_or(0))
    }

    /// Returns the slot of the first key, or 0 if there is no key.
    pub(crate) fn slot(&self) -> u16 {
        // The order is EVALSHA, hash, number of keys, first key. The first key is enough, because a server refuses keys of
        // several slots (`CROSSSLOT`).
        match self.cmd.args_iter().nth(3) {
            Some(redis::Arg::Simple(key)) => slot_of(key),
            _ => 0,
        }
    }

    /// Returns the same call with the script's text, for a server that does not know the script yet.
    ///
    /// EVAL runs the script and caches it in one step. SCRIPT LOAD + EVALSHA would be two more round trips.
    pub(crate) fn with_text(&self) -> Cmd {
        // Built only when needed: after a restart, `SCRIPT FLUSH` or a failover, once for each script and server.
        let mut cmd = Cmd::new();
        cmd.arg("EVAL").arg(self.source.text);
        // Skips `EVALSHA` and the hash. The other kind of argument, a cursor, occurs in no call.
        for arg in self.cmd.args_iter().skip(2) {
            if let redis::Arg::Simple(bytes) = arg {
                cmd.arg(bytes);
            }
        }
        cmd
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Call").field(&self.source.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static SCRIPT: Script<1, 2> = Script::new(
        "test",
        "-- a test\n-- KEYS[1]  a\n-- ARGV[1]  b\n-- ARGV[2]  c\nreturn 1\n",
    );

    #[test]
    fn the_lines_of_a_header_are_counted() {
        let text = b"local x -- KEYS[1]\n-- KEYS[1]  a\nreturn 1\n-- ARGV[1]  b\n-- ARGV[2]  c";
        assert_eq!(documented(text), (1, 2));
        assert_eq!(documented(b""), (0, 0));
    }

    #[test]
    fn the_fallback_carries_the_text_and_the_same_arguments() {
        let call = SCRIPT.call([b"k"], ["x".into(), 7.into()]);
        let args = |cmd: &Cmd| -> Vec<String> {
            cmd.args_iter()
                .map(|a| match a {
                    redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                    _ => String::new(),
                })
                .collect()
        };
        let sent = args(&call.cmd);
        assert_eq!(
            (sent[0].as_str(), &sent[2..]),
            (
                "EVALSHA",
                &["1".to_owned(), "k".into(), "x".into(), "7".into()][..]
            )
        );
        let resent = args(&call.with_text());
        assert_eq!((resent[0].as_str(), &resent[2..]), ("EVAL", &sent[2..]));
        assert!(resent[1].ends_with("return 1\n"));
    }
}
