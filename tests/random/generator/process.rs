//! A stand-in for the process of a client: a clock that can jump, and connections that can die with the process.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use stanchion::Moment;
use stanchion::client::{ByteStream, Clock, Connector, TokioClock};
use stanchion::embedded::{Engine, EngineStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

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
}

impl Wire {
    pub(crate) fn new(engine: &Engine, label: &str) -> Self {
        Self {
            engine: engine.clone(),
            label: label.to_owned(),
            dead: Arc::default(),
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
        }))
    }
}

struct Cable {
    stream: EngineStream,
    wire: Wire,
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
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
