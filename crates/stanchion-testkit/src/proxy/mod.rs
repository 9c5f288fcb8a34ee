//! A TCP proxy that breaks the network between a client and a server on demand.

mod link;
mod matcher;
mod rules;
mod tap;

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use crate::eventually::{eventually, eventually_blocking};

pub use matcher::Matcher;
pub use rules::Held;

use link::Control;
use rules::{HeldState, Rule};

/// The position of a fault's switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// The fault happens.
    On,
    /// The fault does not happen.
    Off,
}

/// The fate of a connection whose reply was swallowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The connection is reset; the reply is lost.
    Reset,
    /// The connection is frozen both ways. The reply arrives late if [`Proxy::thaw`] is called, because TCP loses nothing.
    Freeze,
}

/// A proxy on a thread of its own, so a blocked test executor does not stop it. Ends when dropped.
///
/// Replies are paired with requests by counting, in RESP2 and RESP3; `CLIENT REPLY OFF` would break the count. A stream that
/// is not RESP (TLS) is passed on unchanged: the faults that select requests do not work on it, the others do.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    delay: Duration,
    freeze_new: bool,
    refuse_new: bool,
    links: HashMap<u64, watch::Sender<Control>>,
    accepted: u64,
    holds: Vec<Arc<HeldState>>,
    swallows: Vec<Rule>,
    swallowed: usize,
    seen: Vec<Vec<Vec<u8>>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Proxy {
    /// Starts a proxy to `upstream` on a free port of 127.0.0.1.
    ///
    /// # Panics
    /// If there is no free port or no thread.
    #[must_use]
    pub fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        listener.set_nonblocking(true).expect("non-blocking mode");
        let addr = listener.local_addr().expect("a bound address");
        let shared = Arc::new(Shared {
            upstream,
            state: Mutex::default(),
        });
        let (stop, stopped) = oneshot::channel();
        let for_thread = Arc::clone(&shared);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let run = move || {
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                tokio::select! {
                    _ = stopped => {}
                    e = accept_all(&listener, &for_thread) => panic!("the proxy cannot accept: {e}"),
                }
            });
        };
        let thread = thread::Builder::new().name("fault-proxy".into()).spawn(run);
        Self {
            addr,
            shared,
            stop: Some(stop),
            thread: Some(thread.expect("a thread")),
        }
    }

    /// Returns the address for clients.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the URL for clients: `redis://127.0.0.1:port/`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}/", self.addr)
    }

    /// Delays all bytes received from now on by `delay`, in both directions and in order. Zero turns it off.
    pub fn delay(&self, delay: Duration) {
        self.shared.lock().delay = delay;
    }

    /// Freezes the current connections without closing them; new ones work.
    pub fn freeze_existing(&self) {
        self.control(|c| {
            c.requests_frozen = true;
            c.replies_frozen = true;
        });
    }

    /// Freezes the current connections and all later ones: they are accepted, but no bytes pass.
    pub fn freeze_all(&self) {
        self.shared.lock().freeze_new = true;
        self.freeze_existing();
    }

    /// Holds back replies and messages of the current connections; requests still reach the server.
    pub fn freeze_replies(&self) {
        self.control(|c| c.replies_frozen = true);
    }

    /// Ends every freeze. Bytes that were held back are passed on late, also requests whose client has gone.
    pub fn thaw(&self) {
        self.shared.lock().freeze_new = false;
        self.control(|c| {
            c.requests_frozen = false;
            c.replies_frozen = false;
        });
    }

    /// Resets (RST) the current connections on both sides.
    pub fn reset_all(&self) {
        self.control(|c| c.reset = true);
    }

    /// Resets new connections as soon as they are accepted.
    pub fn refuse_new(&self, switch: Switch) {
        self.shared.lock().refuse_new = switch == Switch::On;
    }

    /// Lets the next matching request reach the server, but drops its reply. Applies once.
    ///
    /// Earlier replies still pass. Several calls with the same matcher apply to as many requests.
    pub fn swallow_next_reply(&self, matcher: Matcher, then: Then) {
        self.shared.lock().swallows.push(Rule::new(matcher, then));
    }

    /// Holds matching requests back (with [`Matcher::nth`]: one of them) until the handle releases them.
    ///
    /// Later requests on the same connection wait behind them; other connections are not affected.
    #[must_use = "dropping the handle lets the requests go"]
    pub fn hold_requests(&self, matcher: Matcher) -> Held {
        Held::start(Arc::clone(&self.shared), matcher)
    }

    /// Returns every request passed on to the server so far, in order: command name and arguments.
    #[must_use]
    pub fn commands_seen(&self) -> Vec<Vec<Vec<u8>>> {
        self.shared.lock().seen.clone()
    }

    /// Returns the number of requests passed on so far that match `matcher`, without regard to its [`Matcher::nth`].
    #[must_use]
    pub fn count(&self, matcher: &Matcher) -> usize {
        let state = self.shared.lock();
        state
            .seen
            .iter()
            .filter(|args| matcher.matches(args))
            .count()
    }

    /// Clears the list of requests passed on so far.
    pub fn clear_seen(&self) {
        self.shared.lock().seen.clear();
    }

    /// Returns the number of replies swallowed so far.
    #[must_use]
    pub fn swallowed(&self) -> usize {
        self.shared.lock().swallowed
    }

    /// Returns the number of connections open now, frozen ones included.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.lock().links.len()
    }

    /// Returns the number of connections accepted so far, refused ones included.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.shared.lock().accepted
    }

    /// Waits until `condition` holds, for instance `|p| p.swallowed() == 1`.
    ///
    /// # Panics
    /// After 10 s, naming `what`.
    pub async fn wait_for(&self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        eventually(what, || condition(self)).await;
    }

    /// Waits as [`Proxy::wait_for`], blocking the thread.
    ///
    /// # Panics
    /// After 10 s, naming `what`.
    pub fn wait_for_blocking(&self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        eventually_blocking(what, || condition(self));
    }

    fn control(&self, change: impl Fn(&mut Control)) {
        for link in self.shared.lock().links.values() {
            link.send_modify(&change);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Fails only if the thread has already ended.
        let _ = self.stop.take().map(|stop| stop.send(()));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept_all(listener: &tokio::net::TcpListener, shared: &Arc<Shared>) -> io::Error {
    loop {
        let client = match listener.accept().await {
            Ok((client, _)) => client,
            Err(e) => return e,
        };
        let mut state = shared.lock();
        state.accepted += 1;
        if state.refuse_new {
            // An error means that the client closed first.
            let _ = client.set_zero_linger();
            continue;
        }
        let id = state.accepted;
        let (control, watching) = watch::channel(Control {
            requests_frozen: state.freeze_new,
            replies_frozen: state.freeze_new,
            reset: false,
        });
        state.links.insert(id, control);
        drop(state);
        let shared = Arc::clone(shared);
        tokio::spawn(async move {
            link::run(client, &shared, id, watching).await;
            shared.lock().links.remove(&id);
        });
    }
}
