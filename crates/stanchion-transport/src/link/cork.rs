//! One write for each wake: the stream between the redis crate and the socket.
//!
//! With `TCP_NODELAY` every flush is a packet and a system call, so tasks that become ready together would each cause one.
//! While several calls are in flight, [`Corked`] yields to the scheduler once before it writes, so that the others can add
//! their commands. A single call is written at once: on a multi-threaded runtime the yield would wake a thread for nothing.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The size in bytes from which a batch is written without yielding.
// Some three packets of Ethernet: more calls would save little, and would wait for a larger batch.
const FULL: usize = 4 * 1024;

/// A stream that joins small writes. Only the connection's driver uses it.
pub(crate) struct Corked<S> {
    stream: S,
    buffer: Vec<u8>,
    /// The number of bytes at the start of `buffer` that the stream has taken.
    written: usize,
    /// True when it has yielded since the buffer was last empty.
    yielded: bool,
    /// The number of calls that are sent or about to be. Changed by callers; a stale value costs a yield or a packet.
    in_flight: Arc<AtomicUsize>,
}

impl<S> Corked<S> {
    pub(crate) fn new(stream: S, in_flight: Arc<AtomicUsize>) -> Self {
        Self {
            stream,
            // So that usual batches need no growth.
            buffer: Vec::with_capacity(FULL),
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
        // Bounds the buffer: it takes one write beyond `FULL`, and the next one waits for the stream.
        if self.buffer.len() >= FULL {
            ready!(self.poll_drain(cx))?;
        }
        self.buffer.extend_from_slice(bytes);
        // Not passed on before the flush, which the redis crate's codec makes when it has no more to encode.
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.buffer.is_empty() {
            // Once for each batch: under load there is always another call in flight, and the batch would never be sent.
            if !self.yielded
                && self.buffer.len() < FULL
                && self.in_flight.load(Ordering::Relaxed) > 1
            {
                self.yielded = true;
                // The scheduler runs what is ready already before it comes back to this task.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            ready!(self.poll_drain(cx))?;
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A stream that is shut down loses nothing that was accepted.
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
