//! The first bytes of a peer. The error of a handshake quotes them if the peer is not a Redis server.

use std::sync::{Arc, Mutex, PoisonError};

use crate::failure::TOO_MANY;
use crate::printable::Printable;

/// The number of bytes that are kept: enough for an error reply of Redis, or the first line of another protocol.
const KEPT: usize = 256;
/// The number of characters that an error quotes. Far below `KEPT`, so that no password cut off by the end of the kept bytes is quoted.
const QUOTED: usize = 60;

/// The first bytes of a connection, shared with its stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Opening(Arc<Mutex<Vec<u8>>>);

impl Opening {
    /// Keeps the next bytes of the peer. Returns whether there is room for more.
    pub(super) fn keep(&self, read: &[u8]) -> bool {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = (KEPT - kept.len()).min(read.len());
        kept.extend_from_slice(&read[..room]);
        kept.len() < KEPT
    }

    fn bytes(&self) -> Vec<u8> {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bytes.clone()
    }

    /// Returns the text of the error reply, if the server's first reply is an error.
    pub(crate) fn error(&self) -> Option<String> {
        let bytes = self.bytes();
        let line = bytes
            .strip_prefix(b"-")?
            .split(|byte| *byte == b'\r')
            .next()?;
        Some(String::from_utf8_lossy(line).into_owned())
    }

    /// Returns the code and the text by which the server refused the whole connection. The server closes the connection after this line,
    /// so the line answers no request.
    pub(crate) fn refusal(&self) -> Option<(String, String)> {
        let line = self.error()?;
        let (code, text) = line.split_once(' ')?;
        match code {
            // Protected mode. Later sentences describe the server's configuration file.
            "DENIED" => {
                let first = text.split(". ").next().unwrap_or_default();
                Some((code.to_owned(), first.to_owned()))
            }
            "ERR" if text.starts_with(TOO_MANY) => Some((code.to_owned(), text.to_owned())),
            _ => None,
        }
    }

    /// Describes the peer if its first byte cannot begin a reply of a Redis server. The peer may repeat the password, so
    /// `hide` removes it before the text is cut.
    pub(crate) fn foreign(&self, hide: impl Fn(&str) -> String) -> Option<String> {
        let bytes = self.bytes();
        match *bytes.first()? {
            byte if b"+-:$*%~#,_(>=!|".contains(&byte) => None,
            // An alert of TLS: its record type, and the major version.
            0x15 if bytes.get(1) == Some(&3) => {
                Some("this port speaks TLS: use rediss:// in the URL".into())
            }
            _ => {
                let line = bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next()?;
                let line = hide(&String::from_utf8_lossy(line));
                let line: String = line.chars().take(QUOTED).collect();
                let line = Printable::new(&line);
                Some(format!("this is no Redis server: it answered {line:?}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(bytes: &[u8]) -> Opening {
        let opening = Opening::default();
        for portion in bytes.chunks(100) {
            opening.keep(portion);
        }
        opening
    }

    #[test]
    fn a_peer_is_judged_by_its_first_bytes() {
        let http = after(b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n");
        let told = "this is no Redis server: it answered \"HTTP/1.1 400 Bad Request\"";
        assert_eq!(http.foreign(str::to_owned).as_deref(), Some(told));
        let html = after(&[b"<html>".as_slice(), &[b'x'; 1000]].concat());
        assert!(html.foreign(str::to_owned).unwrap().len() < 110);
        let echo = after(b"500 unknown: AUTH hunter2\r\n");
        let told = echo.foreign(|text| text.replace("hunter2", "***"));
        assert!(told.unwrap().ends_with("\"500 unknown: AUTH ***\""));
        let tls = after(&[0x15, 3, 1, 0, 2, 2, 70]);
        assert!(tls.foreign(str::to_owned).unwrap().contains("rediss://"));
        for redis in [&b"-ERR no\r\n"[..], b"+OK\r\n", b"%7\r\n", b""] {
            assert_eq!(after(redis).foreign(str::to_owned), None);
        }
        assert_eq!(after(b"-ERR no\r\n+OK").error().as_deref(), Some("ERR no"));
        assert_eq!(after(b"+OK\r\n").error(), None);
        let denied = after(b"-DENIED Redis is in protected mode. In this mode \r\n").refusal();
        let (code, text) = denied.unwrap();
        assert_eq!(
            (code.as_str(), text.as_str()),
            ("DENIED", "Redis is in protected mode")
        );
        assert!(
            after(b"-ERR max number of clients reached\r\n")
                .refusal()
                .is_some()
        );
        assert_eq!(after(b"-ERR unknown command\r\n").refusal(), None);
    }
}
