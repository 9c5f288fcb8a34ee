//! One proxied connection.

use std::future::pending;
use std::sync::Mutex;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::WriteHalf;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::resp;

use super::rules::Fate;
use super::tap::{Tap, Verdict};
use super::{Shared, Then};

/// The switches of one connection, set by the test.
#[derive(Debug, Clone, Copy)]
pub(super) struct Control {
    pub(super) requests_frozen: bool,
    pub(super) replies_frozen: bool,
    pub(super) reset: bool,
}

/// The end of a connection.
enum End {
    Closed,
    Reset,
}

/// A piece of a stream, and the time from which it may be passed on.
enum Piece {
    Data(Instant, Vec<u8>),
    Closed,
    Broken,
}

/// Serves one connection to its end.
pub(super) async fn run(
    client: TcpStream,
    shared: &Shared,
    id: u64,
    control: watch::Receiver<Control>,
) {
    let mut client = client;
    let mut resets = control.clone();
    let end = tokio::select! {
        end = serve(&mut client, shared, id, control) => end,
        _ = resets.wait_for(|c| c.reset) => End::Reset,
    };
    if matches!(end, End::Reset) {
        // Turns the close that follows into an RST. An error means that the client closed first.
        let _ = client.set_zero_linger();
    }
}

async fn serve(
    client: &mut TcpStream,
    shared: &Shared,
    id: u64,
    control: watch::Receiver<Control>,
) -> End {
    // A frozen connection must not show whether the server is reachable.
    open(&control, |c| !c.requests_frozen).await;
    let Ok(mut server) = TcpStream::connect(shared.upstream).await else {
        return End::Reset;
    };
    // Otherwise small pieces would wait for acknowledgements. An error only costs time.
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let (client_read, client_write) = client.split();
    let (server_read, server_write) = server.split();
    let (up, from_client) = mpsc::unbounded_channel();
    let (down, from_server) = mpsc::unbounded_channel();
    let link = Link {
        shared,
        id,
        control,
        tap: Mutex::new(Some(Tap::default())),
    };
    let end = tokio::select! {
        end = link.replies(from_server, client_write) => end,
        () = link.requests(from_client, server_write) => End::Reset,
        () = read_all(client_read, shared, up) => End::Closed,
        () = read_all(server_read, shared, down) => End::Closed,
    };
    if matches!(end, End::Reset) {
        let _ = server.set_zero_linger();
    }
    end
}

/// Reads a stream to its end, also while its pieces are held back; never returns.
async fn read_all(
    mut stream: impl AsyncRead + Unpin,
    shared: &Shared,
    pieces: mpsc::UnboundedSender<Piece>,
) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let piece = match stream.read(&mut buffer).await {
            Ok(0) => Piece::Closed,
            Ok(n) => Piece::Data(after(shared.lock().delay), buffer[..n].to_vec()),
            Err(_) => Piece::Broken,
        };
        let ended = !matches!(piece, Piece::Data(..));
        if pieces.send(piece).is_err() || ended {
            return pending().await;
        }
    }
}

fn after(delay: Duration) -> Instant {
    Instant::now() + delay
}

/// Waits until `is_open` holds, for good if the sender is gone.
async fn open(control: &watch::Receiver<Control>, is_open: impl Fn(&Control) -> bool) {
    let mut control = control.clone();
    if control.wait_for(is_open).await.is_err() {
        pending::<()>().await;
    }
}

struct Link<'a> {
    shared: &'a Shared,
    id: u64,
    control: watch::Receiver<Control>,
    /// The pairing of requests and replies; `None` once the stream turned out not to be RESP.
    tap: Mutex<Option<Tap>>,
}

impl Link<'_> {
    /// Passes requests to the server. Returns only if the connection is to be reset.
    async fn requests(
        &self,
        mut pieces: mpsc::UnboundedReceiver<Piece>,
        mut server: WriteHalf<'_>,
    ) {
        let mut buffer = Vec::new();
        while let Some(Piece::Data(when, bytes)) = pieces.recv().await {
            sleep_until(when).await;
            buffer.extend_from_slice(&bytes);
            loop {
                // The freeze comes first: a frozen request is not recorded and no rule applies to it.
                open(&self.control, |c| !c.requests_frozen).await;
                let Some((args, len)) = self.next_request(&buffer) else {
                    break;
                };
                let rest = buffer.split_off(len);
                let request = std::mem::replace(&mut buffer, rest);
                if !args.is_empty() {
                    let holder = self.shared.lock().holder(&args);
                    if let Some(holder) = holder {
                        if holder.fate().await == Fate::Discarded {
                            return;
                        }
                        open(&self.control, |c| !c.requests_frozen).await;
                    }
                    let swallow = self.shared.lock().forward(&args);
                    if let Some(tap) = self.tap.lock().unwrap().as_mut() {
                        tap.sent(&args, swallow);
                    }
                }
                // The other direction notices a server that has gone.
                let _ = server.write_all(&request).await;
            }
        }
        open(&self.control, |c| !c.requests_frozen).await;
        let _ = server.write_all(&buffer).await;
        let _ = server.shutdown().await;
        pending::<()>().await;
    }

    /// Returns the next complete request; the whole buffer, without arguments, if the stream is not RESP.
    fn next_request(&self, buffer: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
        let mut tap = self.tap.lock().unwrap();
        if tap.is_some() {
            match resp::request(buffer) {
                Ok(found) => return found,
                Err(resp::NotResp) => *tap = None,
            }
        }
        (!buffer.is_empty()).then(|| (Vec::new(), buffer.len()))
    }

    /// Passes replies and messages to the client until the server closes or a fault ends the connection.
    async fn replies(
        &self,
        mut pieces: mpsc::UnboundedReceiver<Piece>,
        mut client: WriteHalf<'_>,
    ) -> End {
        let mut buffer = Vec::new();
        // The confirmations of a subscription whose reply is to be swallowed.
        let mut kept = Vec::new();
        let end = loop {
            match pieces.recv().await {
                Some(Piece::Data(when, bytes)) => {
                    sleep_until(when).await;
                    buffer.extend_from_slice(&bytes);
                }
                Some(Piece::Broken) => break End::Reset,
                Some(Piece::Closed) | None => break End::Closed,
            }
            while let Some((verdict, len)) = self.next_reply(&buffer) {
                // Frames between two swallowed confirmations must not overtake the first of them.
                let waits =
                    verdict == Verdict::Swallow || (verdict == Verdict::Pass && !kept.is_empty());
                kept.extend(buffer.drain(..len));
                match verdict {
                    _ if waits => continue,
                    Verdict::SwallowThen(then) => {
                        self.swallowed(then);
                        if then == Then::Reset {
                            return End::Reset;
                        }
                    }
                    Verdict::Pass | Verdict::Swallow => {}
                }
                open(&self.control, |c| !c.replies_frozen).await;
                // The other direction notices a client that has gone.
                let _ = client.write_all(&kept).await;
                kept.clear();
            }
        };
        open(&self.control, |c| !c.replies_frozen).await;
        let _ = client.write_all(&buffer).await;
        end
    }

    /// Returns the next complete reply; the whole buffer, to be passed, if the stream is not RESP.
    fn next_reply(&self, buffer: &[u8]) -> Option<(Verdict, usize)> {
        if buffer.is_empty() {
            return None;
        }
        let mut guard = self.tap.lock().unwrap();
        if let Some(tap) = guard.as_mut() {
            match resp::value_len(buffer) {
                Ok(None) => return None,
                Ok(Some(len)) => {
                    if let Ok(verdict) = tap.received(&buffer[..len]) {
                        return Some((verdict, len));
                    }
                }
                Err(resp::NotResp) => {}
            }
            *guard = None;
        }
        Some((Verdict::Pass, buffer.len()))
    }

    fn swallowed(&self, then: Then) {
        let mut state = self.shared.lock();
        state.swallowed += 1;
        if then == Then::Freeze
            && let Some(control) = state.links.get(&self.id)
        {
            control.send_modify(|c| {
                c.requests_frozen = true;
                c.replies_frozen = true;
            });
        }
    }
}
