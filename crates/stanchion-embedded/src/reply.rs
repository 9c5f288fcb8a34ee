//! The replies of the engine, and their encoding in RESP2 and RESP3.

use crate::keyspace::number::format_double;

/// One reply of the engine, typed as RESP3 types it (RESP2 flattens it on the wire).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Reply {
    /// A status line such as `OK`.
    Status(String),
    /// An integer.
    Int(i64),
    /// A binary safe string.
    Bulk(Vec<u8>),
    /// No value.
    Nil,
    /// No value in place of an array: RESP2 distinguishes it from [`Reply::Nil`].
    NilArray,
    /// A list of replies.
    Array(Vec<Self>),
    /// Pairs, in the order of the server.
    Map(Vec<(Self, Self)>),
    /// A floating point number, such as a score.
    Double(f64),
    /// Human readable text, such as the answer to `INFO`.
    Text(String),
    /// Data that is not the reply to a request: a message, or the confirmation of a subscription.
    Push(Vec<Self>),
    /// An error; the text starts with its code (`WRONGTYPE …`).
    Error(String),
}

/// The protocol version a connection has chosen with `HELLO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Resp2,
    Resp3,
}

impl Reply {
    /// Returns the status `OK`.
    pub(crate) fn ok() -> Self {
        Self::Status("OK".to_owned())
    }

    pub(crate) fn bulk(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bulk(bytes.as_ref().to_vec())
    }

    /// Returns a count as an integer reply.
    pub(crate) fn count(n: usize) -> Self {
        Self::Int(i64::try_from(n).unwrap_or(i64::MAX))
    }

    pub(crate) fn flag(yes: bool) -> Self {
        Self::Int(i64::from(yes))
    }

    /// Appends this reply to `out` in the encoding of `protocol`.
    pub(crate) fn encode(&self, protocol: Protocol, out: &mut Vec<u8>) {
        let resp3 = protocol == Protocol::Resp3;
        match self {
            Self::Status(text) => line(out, b'+', text.as_bytes()),
            Self::Error(text) => line(out, b'-', text.as_bytes()),
            Self::Int(n) => header(out, b':', *n),
            Self::Bulk(bytes) => bulk(out, bytes),
            Self::Nil if resp3 => out.extend_from_slice(b"_\r\n"),
            Self::NilArray if resp3 => out.extend_from_slice(b"_\r\n"),
            Self::Nil => out.extend_from_slice(b"$-1\r\n"),
            Self::NilArray => out.extend_from_slice(b"*-1\r\n"),
            Self::Double(n) if resp3 => line(out, b',', format_double(*n).as_bytes()),
            Self::Double(n) => bulk(out, format_double(*n).as_bytes()),
            Self::Text(text) if resp3 => {
                length(out, b'=', text.len() + 4);
                out.extend_from_slice(b"txt:");
                out.extend_from_slice(text.as_bytes());
                out.extend_from_slice(b"\r\n");
            }
            Self::Text(text) => bulk(out, text.as_bytes()),
            Self::Array(items) => sequence(out, b'*', items, protocol),
            Self::Push(items) => sequence(out, if resp3 { b'>' } else { b'*' }, items, protocol),
            Self::Map(pairs) => {
                if resp3 {
                    length(out, b'%', pairs.len());
                } else {
                    length(out, b'*', pairs.len() * 2);
                }
                for (key, value) in pairs {
                    key.encode(protocol, out);
                    value.encode(protocol, out);
                }
            }
        }
    }
}

fn sequence(out: &mut Vec<u8>, kind: u8, items: &[Reply], protocol: Protocol) {
    length(out, kind, items.len());
    for item in items {
        item.encode(protocol, out);
    }
}

fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    length(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends a one-line reply. A line break inside would end it early, so it becomes a space, as in Redis.
fn line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.push(kind);
    out.extend(text.iter().map(|&b| match b {
        b'\r' | b'\n' => b' ',
        _ => b,
    }));
    out.extend_from_slice(b"\r\n");
}

fn length(out: &mut Vec<u8>, kind: u8, n: usize) {
    header(out, kind, i64::try_from(n).unwrap_or(i64::MAX));
}

fn header(out: &mut Vec<u8>, kind: u8, n: i64) {
    out.push(kind);
    if (0..10).contains(&n) {
        // The common short counts, without going through the formatter.
        out.push(b'0' + u8::try_from(n).unwrap_or(0));
    } else {
        out.extend_from_slice(n.to_string().as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}
