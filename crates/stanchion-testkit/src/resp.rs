//! A minimal parser of RESP2 and RESP3, to find the ends of requests and replies.

use std::ops::Range;

/// The error for bytes that are not RESP: the caller should stop interpreting the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotResp;

type Parsed<T> = Result<Option<T>, NotResp>;

/// Returns the length of the first complete value in `buf`; `None` when more bytes are needed.
///
/// An attribute (`|`) counts as a part of the value that follows it.
pub(crate) fn value_len(buf: &[u8]) -> Parsed<usize> {
    let mut at = 0;
    // The number of values still to be read. Nesting needs no stack, because only the end matters.
    let mut missing: usize = 1;
    while missing > 0 {
        let Some(line) = line(buf, at)? else {
            return Ok(None);
        };
        let kind = buf[line.start];
        let rest = &buf[line.start + 1..line.end];
        at = line.end + 2;
        missing -= 1;
        match kind {
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => {}
            b'$' | b'!' | b'=' => {
                if let Some(len) = length(rest)? {
                    at = at
                        .checked_add(len)
                        .and_then(|a| a.checked_add(2))
                        .ok_or(NotResp)?;
                    if at > buf.len() {
                        return Ok(None);
                    }
                    if &buf[at - 2..at] != b"\r\n" {
                        return Err(NotResp);
                    }
                }
            }
            b'*' | b'~' | b'>' => missing += length(rest)?.unwrap_or(0),
            b'%' => missing += length(rest)?.unwrap_or(0) * 2,
            b'|' => missing += length(rest)?.unwrap_or(0) * 2 + 1,
            _ => return Err(NotResp),
        }
    }
    Ok(Some(at))
}

/// Returns the first complete request in `buf`: its arguments and its length. An empty inline line has no arguments.
pub(crate) fn request(buf: &[u8]) -> Parsed<(Vec<Vec<u8>>, usize)> {
    let Some(first) = buf.first() else {
        return Ok(None);
    };
    if *first != b'*' {
        return inline(buf);
    }
    let Some(end) = value_len(buf)? else {
        return Ok(None);
    };
    let args = texts(&buf[..end])?;
    Ok(Some((args, end)))
}

/// Returns the bulk or simple strings of an array, without those of nested arrays; other elements come out empty.
pub(crate) fn texts(frame: &[u8]) -> Result<Vec<Vec<u8>>, NotResp> {
    let head = line(frame, 0)?.ok_or(NotResp)?;
    let count = length(&frame[1..head.end])?.unwrap_or(0);
    let mut at = head.end + 2;
    let mut out = Vec::new();
    for _ in 0..count {
        let len = value_len(&frame[at..])?.ok_or(NotResp)?;
        let value = &frame[at..at + len];
        let first = line(value, 0)?.ok_or(NotResp)?;
        out.push(match value[0] {
            b'$' if len > first.end + 2 => value[first.end + 2..len - 2].to_vec(),
            b'+' => value[1..first.end].to_vec(),
            _ => Vec::new(),
        });
        at += len;
    }
    Ok(out)
}

fn inline(buf: &[u8]) -> Parsed<(Vec<Vec<u8>>, usize)> {
    let Some(end) = buf.iter().position(|b| *b == b'\n') else {
        return Ok(None);
    };
    // A TLS handshake or another binary protocol must not pass as an inline command.
    if buf[..end]
        .iter()
        .any(|b| !b.is_ascii_graphic() && !b.is_ascii_whitespace())
    {
        return Err(NotResp);
    }
    let args = buf[..end]
        .split(u8::is_ascii_whitespace)
        .filter(|a| !a.is_empty())
        .map(<[u8]>::to_vec)
        .collect();
    Ok(Some((args, end + 1)))
}

/// Returns the range of the line that starts at `at`, without its CR LF.
fn line(buf: &[u8], at: usize) -> Parsed<Range<usize>> {
    let rest = buf.get(at..).unwrap_or(&[]);
    match rest.iter().position(|b| *b == b'\r') {
        Some(0) => Err(NotResp),
        Some(end) if end + 1 == rest.len() => Ok(None),
        Some(end) if rest[end + 1] == b'\n' => Ok(Some(at..at + end)),
        Some(_) => Err(NotResp),
        // The first byte decides, so that other protocols are recognized without a line end.
        None if rest.first().is_some_and(|b| !is_kind(*b)) => Err(NotResp),
        None => Ok(None),
    }
}

fn is_kind(byte: u8) -> bool {
    b"+-:_#,($!=*~>%|".contains(&byte)
}

/// Parses a length header; `None` for the null of RESP2 (`-1`).
fn length(digits: &[u8]) -> Result<Option<usize>, NotResp> {
    if digits == b"-1" {
        return Ok(None);
    }
    let text = std::str::from_utf8(digits).map_err(|_| NotResp)?;
    let len: u32 = text.parse().map_err(|_| NotResp)?;
    Ok(Some(len as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: &[&[u8]] = &[
        b"+OK\r\n",
        b"-ERR no\r\n",
        b":-5\r\n",
        b"$5\r\na\r\nbc\r\n",
        b"$-1\r\n",
        b"$0\r\n\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
        b"_\r\n",
        b"#t\r\n",
        b",1.5\r\n",
        b"(123\r\n",
        b"!3\r\nERR\r\n",
        b"=7\r\ntxt:abc\r\n",
        b"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n",
        b"~1\r\n+x\r\n",
        b">2\r\n+message\r\n+x\r\n",
        b"|1\r\n+ttl\r\n:3\r\n+value\r\n",
    ];

    #[test]
    fn every_kind_is_measured_and_every_prefix_is_incomplete() {
        for value in VALUES {
            let text = String::from_utf8_lossy(value);
            let mut followed = value.to_vec();
            followed.extend_from_slice(b"+next\r\n");
            assert_eq!(value_len(&followed), Ok(Some(value.len())), "{text:?}");
            for cut in 0..value.len() {
                assert_eq!(value_len(&value[..cut]), Ok(None), "{text:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn requests_give_their_arguments() {
        let bulk = b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\nPING\r\n";
        let (args, len) = request(bulk).unwrap().unwrap();
        assert_eq!(args, [b"GET".to_vec(), b"a\r\nb".to_vec()]);
        let (args, rest) = request(&bulk[len..]).unwrap().unwrap();
        assert_eq!((args, len + rest), (vec![b"PING".to_vec()], bulk.len()));
    }

    #[test]
    fn other_protocols_are_recognised_as_such() {
        assert_eq!(request(b"\x16\x03\x01\x02\x00\n"), Err(NotResp));
        assert_eq!(value_len(b"\x16\x03\x01"), Err(NotResp));
        assert_eq!(value_len(b"$2\r\nabc\r\n"), Err(NotResp));
        assert_eq!(value_len(b"*x\r\n"), Err(NotResp));
    }
}
