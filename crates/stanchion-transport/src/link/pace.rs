//! Replies in portions: the stream between the redis crate and the socket.
//!
//! Replies to many requests arrive together. If all of them are read at once, the next requests are written only when all
//! callers have run, and until then the server has nothing to do. So [`Paced`] lets the scheduler run the callers of a few
//! replies, whose requests are written before more is read. With 64 callers that is up to three quarters more requests a
//! second.
//!
//! [`Paced`] also bounds what is read for one reply ([`LONGEST`]): the redis crate keeps what it has read of a reply until the reply is
//! whole, however long the server says that it is. And it keeps the first bytes of the peer for the error of a handshake ([`Opening`]).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::link::exchange::Owed;
use crate::link::opening::Opening;

/// The size in bytes of a first portion: some six replies.
// Measured: from 512 on, two threads wait for each other again.
const FIRST: usize = 256;

/// The number of replies that are read at once: a portion holds as many.
// Measured with 1 to 12: each turn of the scheduler wakes another thread, so one without need costs a fifth with 16 callers.
const FEW: usize = 6;

/// The most bytes that are read while no reply and no message becomes whole.
// The longest reply to this library is `CLIENT LIST`, with some 350 bytes for each connection: 64 MiB are 190,000 connections. Replies to
// scripts have kilobytes.
const LONGEST: usize = 64 * 1024 * 1024;

/// The same before the first reply that is counted, which follows the login.
// The replies to a login have some hundred bytes, and `ROLE` of a master some 50 for each replica. A peer that is no server of ours, or
// an attacker's, costs no more.
const LONGEST_AT_FIRST: usize = 1024 * 1024;

/// A stream that reads in portions while more than [`FEW`] replies are owed. Only the connection's driver uses it.
pub(crate) struct Paced<S> {
    stream: S,
    owed: Owed,
    /// The size of the next portion.
    portion: usize,
    /// True after a portion: those whom it woke go first.
    yields: bool,
    /// The number of replies and messages that had arrived at the last read, and the bytes that were read since it changed.
    arrived: u64,
    unfinished: usize,
    /// `None`: it has enough bytes.
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

    /// Counts bytes that were read. Fails when they are more than one reply may have.
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
        // Once for each portion: the redis crate reads before each request that it writes, so the next read must go on.
        if std::mem::take(&mut self.yields) {
            // The scheduler runs what is ready already before it comes back to this task.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let size = self.portion.min(buf.remaining());
        let mut portion = ReadBuf::new(buf.initialize_unfilled_to(size));
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut portion))?;
        let read = portion.filled().len();
        buf.advance(read);
        // Doubled while there is more: one long reply is not read in crumbs.
        self.portion = if read < size { FIRST } else { size * 2 };
        self.yields = read > 0;
        let all = buf.filled();
        Poll::Ready(self.count(&all[all.len() - read..]))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
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

    /// Reads what there is without waiting, and returns the sizes of the reads; `None` where it let others run.
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

    /// Runs `then` while `count` replies are owed.
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

    /// Reads until an error, and returns the bytes before it.
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
        // After the login, and after each reply and message.
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
