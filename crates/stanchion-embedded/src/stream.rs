//! The client's end of a connection: a byte stream that executes what is written to it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::connection::{Connection, Life, Readable};
use crate::engine::Engine;
use crate::server::SessionId;

/// A connection to an [`Engine`]. Dropping it disconnects.
///
/// Writing executes whole commands at once, on the writer's thread; reading takes their replies. No task runs
/// behind it. It needs a runtime's timer only while replies are delayed or clients are paused.
#[derive(Debug)]
pub struct EngineStream {
    engine: Engine,
    session: SessionId,
    connection: Connection,
    timer: Option<Pin<Box<Sleep>>>,
}

impl EngineStream {
    pub(crate) fn new(engine: Engine, session: SessionId, connection: Connection) -> Self {
        Self {
            engine,
            session,
            connection,
            timer: None,
        }
    }

    /// Resolves when the connection is cut. Do not read at the same time: there is one waker for both.
    pub(crate) fn poll_cut(&self, cx: &Context<'_>) -> Poll<()> {
        let mut pipe = self.connection.lock();
        if pipe.life == Life::Dead {
            return Poll::Ready(());
        }
        pipe.set_reader(cx.waker());
        Poll::Pending
    }

    /// Returns whether commands wait until the client has read its replies.
    pub(crate) fn is_full(&self) -> bool {
        self.connection.lock().is_full()
    }

    /// Polls the timer for `at`.
    fn poll_timer(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let timer = match &mut self.timer {
            Some(timer) => {
                if timer.deadline() != at {
                    timer.as_mut().reset(at);
                }
                timer
            }
            none => none.insert(Box::pin(sleep_until(at))),
        };
        timer.as_mut().poll(cx)
    }

    /// Returns the time at which commands held back by `CLIENT PAUSE` may run. Runs them if that is now.
    fn resume_at(&self) -> Option<Instant> {
        if !self.connection.lock().is_held_back {
            return None;
        }
        match self.engine.core().pause_left() {
            Some(left) => Some(Instant::now() + left.max(Duration::from_millis(1))),
            None => {
                self.engine.core().resume(&[self.session]);
                None
            }
        }
    }
}

impl AsyncRead for EngineStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            let resume_at = self.resume_at();
            let due = {
                let mut pipe = self.connection.lock();
                match pipe.read(buf) {
                    Readable::Bytes | Readable::End => {
                        let resumes = pipe.has_room_again();
                        drop(pipe);
                        if resumes {
                            self.engine.core().pump(self.session, &self.connection);
                        }
                        return Poll::Ready(Ok(()));
                    }
                    Readable::Later(due) => {
                        pipe.set_reader(cx.waker());
                        due
                    }
                }
            };
            let Some(at) = due.into_iter().chain(resume_at).min() else {
                self.timer = None;
                return Poll::Pending;
            };
            if self.poll_timer(at, cx).is_pending() {
                return Poll::Pending;
            }
            self.timer = None;
        }
    }
}

impl AsyncWrite for EngineStream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        {
            let mut pipe = self.connection.lock();
            if pipe.life != Life::Open {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            pipe.receive(bytes);
        }
        self.engine.core().pump(self.session, &self.connection);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ends the client's side: the reader still gets the replies, then the end.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let reader = self.connection.lock().finish();
        if let Some(reader) = reader {
            reader.wake();
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for EngineStream {
    fn drop(&mut self) {
        self.engine.core().disconnect(self.session);
    }
}
