//! One write for each wake: the stream between the redis crate and the socket.
//!
//! With `TCP_NODELAY` every flush is a packet and a system call. Tasks that become ready together would each cause one.
//! [`Corked`] gives them one turn of the scheduler to add their commands before it writes; alone, a command waits for
//! nothing: not even for that turn, which on a runtime with several threads wakes one of them for nothing.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Larger batches are written at once.
const FULL: usize = 4 * 1024;

pub(super) struct Corked<S> {
    stream: S,
    buffer: Vec<u8>,
    written: usize,
    /// The turn has been given since the buffer was last empty.
    yielded: bool,
    /// Calls that are sent or about to be.
    in_flight: Arc<AtomicUsize>,
}

impl<S> Corked<S> {
    pub(super) fn new(stream: S, in_flight: Arc<AtomicUsize>) -> Self {
        Self {
            stream,
            buffer: Vec::with_capacity(4096),
            written: 0,
            yielded: false,
            in_flight,
        }
    }
}

impl<S: AsyncWrite + Unpin> Corked<S> {
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.buffer.len() {
            let n =
                ready!(Pin::new(&mut self.stream).poll_write(cx, &self.buffer[self.written..]))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += n;
        }
        self.buffer.clear();
        self.written = 0;
        self.yielded = false;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Corked<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.buffer.len() >= FULL {
            ready!(self.poll_drain(cx))?;
        }
        self.buffer.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.buffer.is_empty() {
            if !self.yielded
                && self.buffer.len() < FULL
                && self.in_flight.load(Ordering::Relaxed) > 1
            {
                self.yielded = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            ready!(self.poll_drain(cx))?;
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Corked<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn writes_made_before_the_flush_arrive_as_one() {
        let (near, mut far) = tokio::io::duplex(64);
        let mut corked = Corked::new(near, Arc::new(AtomicUsize::new(2)));
        corked.write_all(b"one").await.unwrap();
        corked.write_all(b"two").await.unwrap();
        corked.flush().await.unwrap();
        let mut buf = [0; 64];
        let n = far.read(&mut buf).await.unwrap();
        assert_eq!(&buf[..n], b"onetwo");
    }

    #[tokio::test]
    async fn more_than_the_pipe_holds_arrives_whole() {
        let (near, mut far) = tokio::io::duplex(100);
        let mut corked = Corked::new(near, Arc::new(AtomicUsize::new(2)));
        let data: Vec<u8> = (0..60_000_u32).map(|i| i.to_le_bytes()[0]).collect();
        let expected = data.clone();
        let reader = tokio::spawn(async move {
            let mut got = vec![0; expected.len()];
            far.read_exact(&mut got).await.unwrap();
            assert_eq!(got, expected);
        });
        corked.write_all(&data).await.unwrap();
        corked.flush().await.unwrap();
        reader.await.unwrap();
    }
}
