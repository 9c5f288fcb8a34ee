//! Reads replies in portions: the stream between the redis crate and the socket.
//!
//! Replies to many requests arrive together. If all of them are read at once, the next requests are written only after all
//! callers have run, and the server is idle until then. [`Paced`] therefore lets the scheduler run the callers of a few
//! replies, and those callers write their next requests before more is read. With 64 callers this gives up to three quarters
//! more requests per second.
//!
//! [`Paced`] also limits the bytes of one reply ([`LONGEST`]), because the redis crate buffers a reply until the reply is complete, whatever length
//! the server announced. [`Paced`] also keeps the peer's first bytes for handshake errors ([`Opening`]).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::link::exchange::Owed;
use crate::link::opening::Opening;

/// The size in bytes of a first portion: about six replies.
// Measured: from 512 bytes on, the two threads wait for each other again.
const FIRST: usize = 256;

/// The number of replies that are read at once. A portion holds as many.
// Measured with 1 to 12: each turn of the scheduler wakes another thread, so a needless one costs a fifth with 16 callers.
const FEW: usize = 6;

/// The largest number of bytes that are read while no reply and no message becomes complete.
// The longest reply to this library is `CLIENT LIST`, with about 350 bytes for each connection: 64 MiB are 190,000
// connections. Replies to scripts have kilobytes.
const LONGEST: usize = 64 * 1024 * 1024;

/// The same limit before the first counted reply, which follows the login.
// The replies to a login have a few hundred bytes, and `ROLE` of a master about 50 for each replica. A peer that is not a
// Redis server, or is an attacker's, cannot use more memory than this.
const LONGEST_AT_FIRST: usize = 1024 * 1024;

/// A stream that reads in portions while more than [`FEW`] replies are owed. Only the connection's driver uses it.
pub(crate) struct Paced<S> {
    stream: S,
    owed: Owed,
    /// The size of the next portion.
    portion: usize,
    /// True after a portion: the tasks that the portion woke run before the next read.
    yields: bool,
    /// The number of replies and messages that had arrived at the last read, and the bytes read since that number changed.
    arrived: u64,
    unfinished: usize,
    /// `None` once enough bytes are kept.
    opening: Option<Opening>,
}

impl<S> Paced<S> {
    pub(crate) fn new(stream: S, owed: Owed, opening: Opening) -> Self {
        Self {
            stream,
            owed,
            portion: FIRST,
            yields: false,
            arrived: 0,
            unfinished: 0,
            opening: Some(opening),
        }
    }

    /// Counts bytes that were read. Fails when one reply has more bytes than the limit.
    fn count(&mut self, read: &[u8]) -> io::Result<()> {
        self.opening = self.opening.take().filter(|it| it.keep(read));
        let arrived = self.owed.arrived();
        if std::mem::replace(&mut self.arrived, arrived) != arrived {
            self.unfinished = 0;
        }
        self.unfinished += read.len();
        let most = if arrived == 0 {
            LONGEST_AT_FIRST
        } else {
            LONGEST
        };
        if self.unfinished > most {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a reply is too long: more than {} MiB", most >> 20),
            ));
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> Paced<S> {
    /// Keeps the bytes that arrived before a write failed. A server that refuses a connection writes its reason and closes the connection,
    /// often before the login is written.
    fn keep_last_words(&mut self, cx: &mut Context<'_>) {
        let mut bytes = [0; 256];
        while let Some(opening) = &self.opening {
            let mut read = ReadBuf::new(&mut bytes);
            let outcome = Pin::new(&mut self.stream).poll_read(cx, &mut read);
            if !matches!(outcome, Poll::Ready(Ok(()))) || read.filled().is_empty() {
                break;
            }
            if !opening.keep(read.filled()) {
                self.opening = None;
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.owed.replies() <= FEW {
            self.yields = false;
            let before = buf.filled().len();
            ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
            return Poll::Ready(self.count(&buf.filled()[before..]));
        }
        // Yields once for each portion. The redis crate reads before each request that it writes, so the next read must not yield.
        if std::mem::take(&mut self.yields) {
            // The scheduler runs the tasks that are ready before it returns to this task.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let size = self.portion.min(buf.remaining());
        let mut portion = ReadBuf::new(buf.initialize_unfilled_to(size));
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut portion))?;
        let read = portion.filled().len();
        buf.advance(read);
        // Doubled while more data is there, so that one long reply is not read in tiny portions.
        self.portion = if read < size { FIRST } else { size * 2 };
        self.yields = read > 0;
        let all = buf.filled();
        Poll::Ready(self.count(&all[all.len() - read..]))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if matches!(written, Poll::Ready(Err(_))) {
            self.keep_last_words(cx);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;
    use crate::link::exchange::Books;
    use futures_util::poll;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// Reads all data without waiting, and returns the sizes of the reads; `None` where the stream yielded to other tasks.
    async fn reads(paced: &mut Paced<&[u8]>) -> Vec<Option<usize>> {
        let mut sizes = Vec::new();
        let mut buf = [0; 8192];
        loop {
            let mut read = pin!(paced.read(&mut buf));
            match poll!(read.as_mut()) {
                Poll::Ready(Ok(0)) => return sizes,
                Poll::Ready(read) => sizes.push(read.ok()),
                Poll::Pending => sizes.push(None),
            }
        }
    }

    /// Runs `then` while the connection owes `count` replies.
    async fn owing<T>(count: usize, then: impl AsyncFnOnce(Owed) -> T) -> T {
        let books = Books::default();
        let mut asked: Vec<_> = (0..count)
            .map(|_| {
                let books = &books;
                Box::pin(async move { books.enter(pin!(std::future::pending::<()>())).await })
            })
            .collect();
        for one in &mut asked {
            assert!(poll!(one).is_pending());
        }
        then(books.owed()).await
    }

    #[tokio::test]
    async fn callers_of_one_portion_run_before_the_next_is_read() {
        let data = [7; 1000];
        let sizes = owing(FEW + 1, async |owed| {
            reads(&mut Paced::new(&data[..], owed, Opening::default())).await
        });
        assert_eq!(
            sizes.await,
            [Some(256), None, Some(512), None, Some(232), None]
        );
        let sizes = owing(FEW, async |owed| {
            reads(&mut Paced::new(&data[..], owed, Opening::default())).await
        });
        assert_eq!(sizes.await, [Some(1000)], "a few are read at once");
    }

    /// Reads until an error, and returns the number of bytes before it.
    async fn read_on(paced: &mut Paced<tokio::io::Repeat>) -> usize {
        let (mut read, mut buf) = (0, vec![0; 65_536]);
        while let Ok(more) = paced.read(&mut buf).await {
            read += more;
        }
        read
    }

    #[tokio::test]
    async fn what_is_read_for_one_reply_is_bounded() {
        let books = Books::default();
        let mut paced = Paced::new(tokio::io::repeat(b'x'), books.owed(), Opening::default());
        assert_eq!(read_on(&mut paced).await, LONGEST_AT_FIRST);
        // The limit after the login, and after each reply and message.
        books.enter(pin!(async {})).await;
        assert_eq!(read_on(&mut paced).await, LONGEST);
        books.owed().told();
        assert_eq!(read_on(&mut paced).await, LONGEST);
    }

    #[tokio::test]
    async fn what_is_read_in_portions_arrives_whole() {
        let data: Vec<u8> = (0..60_000_u32).map(|i| i.to_le_bytes()[0]).collect();
        let (near, mut far) = tokio::io::duplex(300);
        let sent = data.clone();
        let writer = tokio::spawn(async move { far.write_all(&sent).await });
        let mut got = vec![0; data.len()];
        owing(FEW + 1, async |owed| {
            Paced::new(near, owed, Opening::default())
                .read_exact(&mut got)
                .await
        })
        .await
        .unwrap();
        assert_eq!(got, data);
        writer.await.unwrap().unwrap();
    }
}
