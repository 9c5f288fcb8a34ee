//! A peer that answers commands, for unit tests.

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use crate::ByteStream;

/// Returns a connection to a peer that answers each command with the result of `answer`. Its argument has one word per line.
pub(crate) fn peer(mut answer: impl FnMut(&str) -> String + Send + 'static) -> Box<dyn ByteStream> {
    let (near, far) = tokio::io::duplex(4096);
    tokio::spawn(async move {
        let mut far = BufReader::new(far);
        let mut line = String::new();
        while far.read_line(&mut line).await.is_ok_and(|n| n > 0) {
            let words: usize = line.trim()[1..].parse().unwrap();
            let mut command = String::new();
            for _ in 0..words {
                line.clear();
                far.read_line(&mut line).await.unwrap();
                far.read_line(&mut command).await.unwrap();
            }
            line.clear();
            let answer = answer(&command);
            far.get_mut().write_all(answer.as_bytes()).await.unwrap();
        }
    });
    Box::new(near)
}
