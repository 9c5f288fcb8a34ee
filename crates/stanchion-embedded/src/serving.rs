//! Serving clients of other processes: a socket's bytes to a session and back, with limits for clients that do not behave.

use std::future::poll_fn;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::connection::Limits;
use crate::engine::Engine;

/// Redis allows 1 GB for requests, and limits output only for subscribers. Requests about locks are below 1 MB.
const LIMITS: Limits = Limits {
    request: 64 * 1024 * 1024,
    output: 64 * 1024 * 1024,
    ample: 1024 * 1024,
};
/// The most connections at once, as in Redis.
const MOST_CONNECTIONS: usize = 10_000;
/// The size of the buffers between a socket and its session.
const CHUNK: usize = 16 * 1024;

impl Engine {
    /// Serves a byte stream from elsewhere, such as a unix socket, until either end closes it.
    ///
    /// While the client does not read its replies, its further commands are not executed. A client with a request of more than
    /// 64 MiB gets an error; one that leaves 64 MiB of messages unread is disconnected; the 10 001st at once is refused.
    ///
    /// # Errors
    /// Those of the stream, and those of [`Engine::connect`].
    pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> io::Result<()> {
        let (mut commands, mut replies) = tokio::io::split(stream);
        if self.stats().connections >= MOST_CONNECTIONS {
            let refusal = b"-ERR max number of clients reached\r\n";
            return replies.write_all(refusal).await;
        }
        let mut session = self.open(None, LIMITS)?;
        let (mut request, mut output) = (vec![0; CHUNK], vec![0; CHUNK]);
        let (mut unsent, mut listens) = (0..0, true);
        loop {
            if !unsent.is_empty() {
                tokio::select! {
                    biased;
                    // Without this, the disconnect of a client that does not read would never be noticed.
                    () = poll_fn(|cx| session.poll_cut(cx)) => return Ok(()),
                    sent = replies.write(&output[unsent.clone()]) => match sent? {
                        0 => return Err(io::ErrorKind::WriteZero.into()),
                        sent => unsent.start += sent,
                    },
                }
                continue;
            }
            if !listens && !session.is_full() {
                session.shutdown().await?;
            }
            tokio::select! {
                biased;
                received = session.read(&mut output) => match received? {
                    0 => return replies.shutdown().await,
                    received => unsent = 0..received,
                },
                received = commands.read(&mut request), if listens => match received? {
                    // The client sends no more commands, but still gets the replies.
                    0 => listens = false,
                    // OK: the next read notices a session that has ended.
                    received => drop(session.write_all(&request[..received]).await),
                },
            }
        }
    }
}
