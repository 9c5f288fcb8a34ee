//! A subscriber without the library. It receives the messages that other clients get.

use std::pin::Pin;

use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};

trait Stream: AsyncRead + AsyncWrite + Send {}
impl<S: AsyncRead + AsyncWrite + Send> Stream for S {}

/// A connection that has subscribed to one channel.
pub struct Listener(BufReader<Pin<Box<dyn Stream>>>);

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Listener")
    }
}

impl Listener {
    pub(crate) async fn new(
        stream: impl AsyncRead + AsyncWrite + Send + 'static,
        channel: &str,
    ) -> Self {
        let mut listener = Self(BufReader::new(Box::pin(stream)));
        let command = format!(
            "*2\r\n$9\r\nSUBSCRIBE\r\n${}\r\n{channel}\r\n",
            channel.len()
        );
        listener.0.write_all(command.as_bytes()).await.unwrap();
        listener.0.flush().await.unwrap();
        assert_eq!(listener.push().await[0], "subscribe");
        listener
    }

    /// The next message.
    pub async fn next(&mut self) -> String {
        let push = self.push().await;
        assert_eq!(push[0], "message");
        push[2].clone()
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        line.trim_end().to_owned()
    }

    /// Reads three elements. The last one may be a number.
    async fn push(&mut self) -> Vec<String> {
        assert_eq!(self.line().await, "*3");
        let mut elements = Vec::new();
        for _ in 0..3 {
            let head = self.line().await;
            let (kind, rest) = head.split_at(1);
            if kind != "$" {
                elements.push(rest.to_owned());
                continue;
            }
            let mut text = vec![0; rest.parse::<usize>().unwrap() + 2];
            self.0.read_exact(&mut text).await.unwrap();
            text.truncate(text.len() - 2);
            elements.push(String::from_utf8(text).unwrap());
        }
        elements
    }
}
