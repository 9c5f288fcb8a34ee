//! Raw RESP on any stream.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Commands out, raw reply bytes in.
pub(crate) struct Wire<S> {
    stream: S,
    buffer: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    pub(crate) async fn send(&mut self, command: &[Vec<u8>]) {
        let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
        for argument in command {
            bytes.extend(format!("${}\r\n", argument.len()).bytes());
            bytes.extend(argument);
            bytes.extend(b"\r\n");
        }
        self.stream.write_all(&bytes).await.unwrap();
    }

    /// The bytes of the next reply or push; `None` at the end of the connection.
    pub(crate) async fn reply(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = reply_end(&self.buffer, 0) {
                return Some(self.buffer.drain(..end).collect());
            }
            let read = self.stream.read_buf(&mut self.buffer);
            let read = tokio::time::timeout(Duration::from_secs(10), read).await;
            if read.expect("no reply").unwrap() == 0 {
                return None;
            }
        }
    }

    pub(crate) async fn ask(&mut self, command: &[Vec<u8>]) -> Vec<u8> {
        self.send(command).await;
        let reply = self.reply().await;
        reply.unwrap_or_else(|| panic!("closed after {}", command.join(&b' ').escape_ascii()))
    }
}

pub(crate) fn args(words: &str) -> Vec<Vec<u8>> {
    words
        .split_whitespace()
        .map(|w| w.as_bytes().to_vec())
        .collect()
}

/// Returns the end of the reply that starts at `at`.
fn reply_end(bytes: &[u8], at: usize) -> Option<usize> {
    let line = bytes.get(at..)?.windows(2).position(|w| w == b"\r\n")? + at;
    let next = line + 2;
    let number = || -> i64 {
        std::str::from_utf8(&bytes[at + 1..line])
            .unwrap()
            .parse()
            .unwrap()
    };
    match bytes[at] {
        b'$' | b'=' => match usize::try_from(number()) {
            Ok(length) => (bytes.len() >= next + length + 2).then_some(next + length + 2),
            Err(_) => Some(next),
        },
        kind @ (b'*' | b'>' | b'%' | b'~') => {
            let items = number().max(0) * if kind == b'%' { 2 } else { 1 };
            (0..items).try_fold(next, |at, _| reply_end(bytes, at))
        }
        _ => Some(next),
    }
}
