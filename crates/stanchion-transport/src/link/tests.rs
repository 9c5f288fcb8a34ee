//! A fake server, and the reaction of a link to its answers.

use super::*;
use crate::{ByteStream, fake};

/// A cluster node that accepts every subscription and reports this role.
#[derive(Debug)]
struct Fake(&'static str);

#[async_trait::async_trait]
impl Connector for Fake {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        let role = self.0;
        Ok(fake::peer(move |command| {
            match command.lines().next().unwrap_or_default() {
                "SSUBSCRIBE" => "*3\r\n$10\r\nssubscribe\r\n$1\r\nc\r\n:1\r\n".to_owned(),
                "HELLO" => format!("*2\r\n$4\r\nrole\r\n${}\r\n{role}\r\n", role.len()),
                "TIME" => "*2\r\n$1\r\n1\r\n$1\r\n0\r\n".to_owned(),
                _ => "+OK\r\n".to_owned(),
            }
        }))
    }
}

fn link(role: &'static str) -> Link {
    let plan = Plan {
        server: "fake".into(),
        peer: Peer::Server,
        connector: Arc::new(Fake(role)),
        login: Login::default(),
        clock: Arc::new(crate::clock::BootClock),
        server_clock: Arc::default(),
        stir: Arc::default(),
        health: Arc::default(),
        on_push: None,
        name: None,
    };
    Link::new(&ClientConfig::default(), plan)
}

#[tokio::test]
async fn a_shard_subscription_at_a_replica_does_not_count() {
    let master = link("master");
    let _end = master.connect_once().await.unwrap();
    let started = master.subscribe(b"c", Subscribe::Start, Messages::Sharded);
    started.await.unwrap();
    // The flag makes the next attempt to connect wait only for the first pause.
    let served = |link: &Link| link.live().unwrap().served.load(Ordering::Relaxed);
    assert!(served(&master));
    let replica = link("replica");
    let _end = replica.connect_once().await.unwrap();
    let started = replica.subscribe(b"c", Subscribe::Start, Messages::Sharded);
    // P1: the master's script may take back a grant that this subscriber receives.
    let refused = started.await.unwrap_err();
    assert!(matches!(refused, Failure::NotNow(_)), "{refused:?}");
    assert!(!served(&replica));
}

/// The server that a name leads to.
#[derive(Debug, Default)]
struct Named {
    /// True while the server is a replica.
    is_replica: AtomicBool,
    /// True if the server knows `HELLO`.
    tells: bool,
    dials: AtomicU64,
}

#[async_trait::async_trait]
impl Connector for Arc<Named> {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        self.dials.fetch_add(1, Ordering::SeqCst);
        let this = Self::clone(self);
        // The role of this server. A name that moves leads to another one.
        Ok(fake::peer(move |command| {
            let is_replica = this.is_replica.load(Ordering::SeqCst);
            match command.lines().next().unwrap_or_default() {
                "HELLO" if !this.tells => "-ERR unknown command 'HELLO'\r\n".to_owned(),
                "HELLO" if is_replica => "*2\r\n$4\r\nrole\r\n$7\r\nreplica\r\n".to_owned(),
                "HELLO" => "*2\r\n$4\r\nrole\r\n$6\r\nmaster\r\n".to_owned(),
                "EVALSHA" if is_replica => "-READONLY You can't write\r\n".to_owned(),
                "EVALSHA" => ":1\r\n".to_owned(),
                "TIME" => "*2\r\n$1\r\n1\r\n$1\r\n0\r\n".to_owned(),
                _ => "+OK\r\n".to_owned(),
            }
        }))
    }
}

impl Named {
    fn new(tells: bool) -> Arc<Self> {
        let (is_replica, dials) = Default::default();
        Arc::new(Self {
            is_replica,
            tells,
            dials,
        })
    }

    /// A supervised link of a client that found the server in this role.
    fn link(self: &Arc<Self>, role: &str) -> Link {
        let link = self.unsupervised(role);
        let (home, closed) = (tokio::runtime::Handle::current(), Default::default());
        tokio::spawn(link.clone().supervise(home, closed));
        link
    }

    fn unsupervised(self: &Arc<Self>, role: &str) -> Link {
        let Link(inner) = link("");
        let plan = Arc::into_inner(inner).unwrap().plan;
        let plan = Plan {
            connector: Arc::new(Arc::clone(self)),
            ..plan
        };
        let facts = Facts::new(Placement::Anywhere, false);
        facts.set(crate::server_info::ServerInfo {
            role: role.into(),
            ..Default::default()
        });
        Link::of_node(&ClientConfig::default(), plan, Arc::new(facts))
    }
}

async fn up(link: &Link) {
    let mut phase = link.phase();
    let is_up = phase.wait_for(|phase| matches!(phase, Phase::Up(_)));
    assert!(is_up.await.is_ok());
}

fn write() -> Call {
    static WRITE: crate::script::Script<1, 0> =
        crate::script::Script::new("write", "-- a write\n-- KEYS[1]  a\nreturn 1\n");
    WRITE.call([b"k"], [])
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_link_leaves_a_master_that_became_a_replica_and_resolves_its_name_again() {
    let server = Named::new(true);
    let link = server.link("master");
    up(&link).await;
    assert_eq!(link.call(&write()).await, Ok(Reply::Int(1)));
    server.is_replica.store(true, Ordering::SeqCst);
    let refused = link.call(&write()).await.unwrap_err();
    assert!(is_of_replica(&refused), "{refused:?}");
    tokio::time::sleep(MINUTE).await;
    // Each attempt resolves the name. The pauses grow to 2 s and their jitter.
    let dials = server.dials.load(Ordering::SeqCst);
    assert!((15..60).contains(&dials), "{dials} dials in a minute");
    let outage = link.outage().to_string();
    assert!(outage.contains("READONLY"), "P8: {outage}");
    server.is_replica.store(false, Ordering::SeqCst);
    up(&link).await;
    assert_eq!(link.call(&write()).await, Ok(Reply::Int(1)));
}

#[tokio::test(start_paused = true)]
async fn an_idle_link_leaves_a_master_that_became_a_replica() {
    let server = Named::new(true);
    let link = server.link("master");
    up(&link).await;
    server.is_replica.store(true, Ordering::SeqCst);
    // A link of a subscriber sends nothing but its probe.
    let mut phase = link.phase();
    let left = phase.wait_for(|phase| matches!(phase, Phase::Down(_)));
    assert!(tokio::time::timeout(MINUTE, left).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_replica_is_kept_until_it_refuses_a_write() {
    let server = Named::new(true);
    server.is_replica.store(true, Ordering::SeqCst);
    let link = server.link("slave");
    up(&link).await;
    tokio::time::sleep(MINUTE).await;
    assert!(link.is_up(), "a client that only reads");
    assert_eq!(server.dials.load(Ordering::SeqCst), 1);
    link.call(&write()).await.unwrap_err();
    assert!(!link.is_up());
    server.is_replica.store(false, Ordering::SeqCst);
    up(&link).await;
}

#[tokio::test(start_paused = true)]
async fn pauses_grow_at_a_replica_that_does_not_tell_its_role() {
    let server = Named::new(false);
    let link = server.link("unknown");
    server.is_replica.store(true, Ordering::SeqCst);
    let calling = async {
        loop {
            // The first call on each connection is refused.
            let _ = link.call(&write()).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let _ = tokio::time::timeout(MINUTE, calling).await;
    let dials = server.dials.load(Ordering::SeqCst);
    assert!((15..60).contains(&dials), "{dials} dials in a minute");
    let outage = link.outage().to_string();
    assert!(
        outage.contains("READONLY") || outage.contains("connecting"),
        "P8: {outage}"
    );
}

/// A server that writes a line and closes the connection before it has read the login.
#[derive(Debug)]
struct Full(&'static str);

/// The client's end of the connection to [`Full`]: the rest of the line, then a broken connection.
struct Refused(&'static [u8]);

impl tokio::io::AsyncRead for Refused {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        if self.0.is_empty() {
            return std::task::Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        buf.put_slice(std::mem::take(&mut self.0));
        std::task::Poll::Ready(Ok(()))
    }
}

impl tokio::io::AsyncWrite for Refused {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        _: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        std::task::Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(
        self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }
}

#[async_trait::async_trait]
impl Connector for Full {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        Ok(Box::new(Refused(self.0.as_bytes())))
    }
}

#[tokio::test]
async fn the_reason_of_a_server_that_hangs_up_wins_over_the_failed_write() {
    for (line, expected) in [
        (
            "-ERR max number of clients reached\r\n",
            "cannot reach fake: ERR max number of clients reached",
        ),
        (
            "-DENIED Redis is running in protected mode. In this mode …\r\n",
            "fake rejected this client: the server answered: DENIED Redis is running in protected mode",
        ),
    ] {
        let Link(inner) = link("");
        let plan = Plan {
            connector: Arc::new(Full(line)),
            ..Arc::into_inner(inner).unwrap().plan
        };
        let link = Link::new(&ClientConfig::default(), plan);
        let error = link.connect_once().await.map(drop).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

/// A server that cannot be reached.
#[derive(Debug)]
struct Gone;

#[async_trait::async_trait]
impl Connector for Gone {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        Err(io::Error::new(io::ErrorKind::ConnectionRefused, "refused"))
    }
}

#[tokio::test]
async fn an_outage_names_the_server_once() {
    let Link(inner) = link("");
    let plan = Plan {
        connector: Arc::new(Gone),
        ..Arc::into_inner(inner).unwrap().plan
    };
    let link = Link::new(&ClientConfig::default(), plan);
    let (home, closed) = (tokio::runtime::Handle::current(), Default::default());
    tokio::spawn(link.clone().supervise(home, closed));
    link.settled().await.unwrap_err();
    assert_eq!(link.outage().to_string(), "no connection to fake: refused");
}

#[test]
fn a_program_that_ends_without_a_shutdown_logs_no_outage() {
    let runtime = |workers| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder
            .worker_threads(workers)
            .enable_all()
            .build()
            .unwrap()
    };
    let (main, own) = (runtime(1), runtime(1));
    let server = Named::new(true);
    let link = {
        let _inside = main.enter();
        server.unsupervised("master")
    };
    let supervision = link
        .clone()
        .supervise(main.handle().clone(), Default::default());
    let supervision = own.spawn(supervision);
    own.block_on(up(&link));
    // The runtime of `main` ends, and drops the driver of the connection.
    main.shutdown_background();
    own.block_on(supervision).unwrap();
    assert!(!link.0.plan.health.has_told());
    assert!(matches!(*link.phase().borrow(), Phase::Ended));
}
