//! A stand-in for the process of a client: a clock that can jump, and connections that can die with the process.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use async_trait::async_trait;
use stanchion::Moment;
use stanchion::client::{ByteStream, Clock, Connector, TokioClock};
use stanchion::embedded::{Engine, EngineStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::generator::planted::Planted;

/// Tokio's clock, and the time that suspends have added to it.
#[derive(Clone, Debug)]
pub(crate) struct JumpingClock {
    base: TokioClock,
    ahead: Arc<AtomicU64>,
}

impl JumpingClock {
    pub(crate) fn start() -> Self {
        Self {
            base: TokioClock::start(),
            ahead: Arc::default(),
        }
    }

    pub(crate) fn jump(&self, millis: u64) {
        self.ahead.fetch_add(millis, Ordering::Relaxed);
    }
}

impl Clock for JumpingClock {
    fn now(&self) -> Moment {
        let ahead = Duration::from_millis(self.ahead.load(Ordering::Relaxed));
        Moment::from_origin(self.base.now().since_origin() + ahead)
    }
}

/// The connections of one process.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    engine: Engine,
    label: String,
    dead: Arc<AtomicBool>,
    planted: Planted,
}

impl Wire {
    pub(crate) fn new(engine: &Engine, label: &str, planted: Planted) -> Self {
        Self {
            engine: engine.clone(),
            label: label.to_owned(),
            dead: Arc::default(),
            planted,
        }
    }

    /// Kills the process: its connections are closed, and its later reads and writes have no effect.
    pub(crate) fn die(&self) {
        self.dead.store(true, Ordering::Relaxed);
        self.engine.faults().kill_label(&self.label);
    }

    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Connector for Wire {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
        Ok(Box::new(Cable {
            stream: self.engine.connect_as(&self.label)?,
            wire: self.clone(),
            late: Late::default(),
        }))
    }
}

struct Cable {
    stream: EngineStream,
    wire: Wire,
    late: Late,
}

/// A subscription that is confirmed at once and takes effect later: [`Planted::LateSubscription`].
#[derive(Default)]
struct Late {
    reader: Option<Waker>,
    /// The confirmation that the client has not read.
    early: Vec<u8>,
    /// The requests that the server has not received.
    requests: Option<(Pin<Box<Sleep>>, Vec<u8>)>,
    /// The confirmation that the server sends, which the client has received before.
    real: Option<Vec<u8>>,
}

/// Longer than the retry takes.
const SUBSCRIPTION_DELAY: Duration = Duration::from_millis(150);

impl Late {
    /// Keeps a single subscription, and the requests behind it.
    fn keeps(&mut self, bytes: &[u8]) -> bool {
        if let Some((_, requests)) = &mut self.requests {
            requests.extend_from_slice(bytes);
            return true;
        }
        let channel = bytes.strip_prefix(b"*2\r\n$9\r\nSUBSCRIBE\r\n");
        let single = |it: &&[u8]| it.iter().filter(|byte| **byte == b'\n').count() == 2;
        let Some(channel) = channel.filter(single).filter(|_| self.real.is_none()) else {
            return false;
        };
        self.early = [b">3\r\n$9\r\nsubscribe\r\n", channel, b":1\r\n"].concat();
        let sleep = Box::pin(tokio::time::sleep(SUBSCRIPTION_DELAY));
        self.requests = Some((sleep, bytes.to_vec()));
        self.reader.take().into_iter().for_each(Waker::wake);
        true
    }

    /// Removes the real confirmation from a chunk. The engine writes each reply as a whole.
    fn cut(&mut self, chunk: &mut Vec<u8>) {
        // The number of subscriptions, which is the last line, may differ.
        let (Some(real), mut at) = (&self.real, 0) else {
            return;
        };
        let length = real.len() - 4;
        while at + length <= chunk.len() && chunk[at..at + length] != real[..length] {
            at += 1;
        }
        if at + length <= chunk.len() {
            let rest = chunk[at + length..].iter();
            let line = rest.take_while(|byte| **byte != b'\n').count() + 1;
            chunk.drain(at..at + length + line);
            self.real = None;
        }
    }
}

impl Cable {
    /// Reads for [`Planted::LateSubscription`].
    fn poll_read_late(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.late.reader = Some(cx.waker().clone());
        if !self.late.early.is_empty() {
            let early = std::mem::take(&mut self.late.early);
            buf.put_slice(&early);
            self.late.real = Some(early);
            return Poll::Ready(Ok(()));
        }
        if let Some((sleep, _)) = &mut self.late.requests
            && sleep.as_mut().poll(cx).is_ready()
            && let Some((_, requests)) = self.late.requests.take()
        {
            ready!(Pin::new(&mut self.stream).poll_write(cx, &requests))?;
        }
        loop {
            let mut bytes = vec![0; buf.remaining().min(16 * 1024)];
            let mut inner = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut inner))?;
            let mut chunk = inner.filled().to_vec();
            let ended = chunk.is_empty();
            self.late.cut(&mut chunk);
            buf.put_slice(&chunk);
            if ended || !chunk.is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncRead for Cable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.wire.is_dead() {
            return Poll::Pending;
        }
        if self.wire.planted == Planted::LateSubscription {
            return self.poll_read_late(cx, buf);
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Cable {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.wire.is_dead() {
            return Poll::Ready(Ok(bytes.len()));
        }
        if self.wire.planted == Planted::LateSubscription && self.late.keeps(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
