//! Fake sentinels, and the reaction of the connector to their answers.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Semaphore;

#[test]
fn a_message_counts_only_for_the_own_service() {
    let read = |channel: &str, payload: &str| names_a_master("main", channel, payload);
    let old = "10.0.0.1 6379";
    assert!(read(SWITCHED, &format!("main {old} 10.0.0.2 6380")));
    let promoted = format!("slave 10.0.0.2:6380 10.0.0.2 6380 @ main {old}");
    assert!(read(PROMOTED, &promoted));
    for other in ["main2 a 1 b 2", "main a 1 b", ""] {
        assert!(!read(SWITCHED, other), "{other}");
    }
    let other = promoted.replace("main", "other");
    assert!(!read(PROMOTED, &other));
    assert!(!read("+sdown", &promoted));
}

/// A sentinel that names `master` with its epoch, and counts the queries.
#[derive(Debug, Default)]
struct Fake {
    master: Mutex<(&'static str, u64)>,
    asked: AtomicU32,
    /// True while the sentinel refuses connections.
    unreachable: AtomicBool,
}

impl Fake {
    fn names(&self, host: &'static str, epoch: u64) {
        *self.master.lock().unwrap() = (host, epoch);
    }
}

#[async_trait]
impl Connector for Arc<Fake> {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        if self.unreachable.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let this = Self::clone(self);
        Ok(crate::fake::peer(move |command| {
            let (host, epoch) = *this.master.lock().unwrap();
            let length = host.len();
            if command.contains("GET-MASTER") {
                this.asked.fetch_add(1, Ordering::SeqCst);
                format!("*2\r\n${length}\r\n{host}\r\n$4\r\n6379\r\n")
            } else if command.contains("SENTINEL") {
                format!("*2\r\n$12\r\nconfig-epoch\r\n$1\r\n{epoch}\r\n")
            } else {
                "+OK\r\n".to_owned()
            }
        }))
    }
}

/// The connector to all masters. A dial waits for a permit.
#[derive(Debug)]
struct Gate(Arc<Semaphore>, AtomicU32);

#[async_trait]
impl Connector for Arc<Gate> {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.acquire().await.unwrap().forget();
        Ok(Box::new(tokio::io::duplex(64).0))
    }
}

fn master(host: &str, epoch: u64) -> Master {
    Master {
        place: place(host),
        epoch,
    }
}

/// The masters that the open streams lead to.
fn in_use(sentinels: &Sentinels) -> Vec<Place> {
    let open = sentinels.open();
    let live = open.streams.iter().filter(|(_, over)| !over.is_cancelled());
    live.map(|(place, _)| place.clone()).collect()
}

/// Listens to the first sentinel until `closed`. The test fires the [`Notify`] to simulate a message.
fn listen(
    sentinels: &Arc<Sentinels>,
    closed: &CancellationToken,
) -> (Arc<Notify>, tokio::task::JoinHandle<()>) {
    let (place, connector) = &sentinels.panel.sentinels[0];
    let link = Link::new(
        &sentinels.panel.config,
        sentinels.panel.plan(place, connector, None),
    );
    let news = Arc::<Notify>::default();
    tokio::spawn(link.clone().supervise(Handle::current(), closed.clone()));
    let listening = Arc::clone(sentinels).listen(link, Arc::clone(&news), closed.clone());
    (news, tokio::spawn(listening))
}

async fn until(done: impl Fn() -> bool) {
    let waiting = async {
        while !done() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waiting)
        .await
        .expect("it happens");
}

fn place(host: &str) -> Place {
    Place {
        host: host.into(),
        port: 6379,
    }
}

fn sentinels(fakes: &[&Arc<Fake>], gate: &Arc<Gate>) -> Arc<Sentinels> {
    let config = ClientConfig::default().connector(Arc::clone(gate));
    let connector = |fake: &Arc<Fake>| -> Arc<dyn Connector> { Arc::new(Arc::clone(fake)) };
    let sentinels = fakes
        .iter()
        .map(|fake| (place("sentinel"), connector(fake)));
    Arc::new(Sentinels {
        panel: Arc::new(Panel {
            service: "main".into(),
            clock: Arc::new(crate::clock::BootClock),
            sentinels: sentinels.collect(),
            config: config.clone(),
        }),
        routes: Arc::new(Routes::new(&config)),
        tls: false,
        login: Login::default(),
        home: Handle::current(),
        open: Mutex::default(),
        asked: Mutex::default(),
        stir: Arc::default(),
    })
}

fn fake_and_gate() -> (Arc<Fake>, Arc<Gate>) {
    let fake = Arc::new(Fake::default());
    fake.names("old", 1);
    let gate = Gate(Arc::new(Semaphore::new(0)), AtomicU32::new(0));
    (fake, Arc::new(gate))
}

#[tokio::test]
async fn a_dial_that_began_before_a_failover_does_not_end_at_the_old_master() {
    let (fake, gate) = fake_and_gate();
    let sentinels = sentinels(&[&fake], &gate);
    let connecting = tokio::spawn({
        let sentinels = Arc::clone(&sentinels);
        async move { sentinels.connect().await.map(drop) }
    });
    while gate.1.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    sentinels.learn(&master("new", 2));
    // The answer of the sentinels is shared, and names the old one.
    fake.names("new", 2);
    gate.0.add_permits(2);
    connecting.await.unwrap().unwrap();
    let dialled = sentinels
        .open()
        .streams
        .first()
        .map(|(place, _)| place.clone());
    assert_eq!(dialled, Some(place("new")));
    assert_eq!(sentinels.open().streams.len(), 1);
}

#[tokio::test]
async fn concurrent_connections_share_one_query() {
    let (fake, gate) = fake_and_gate();
    let sentinels = sentinels(&[&fake], &gate);
    gate.0.add_permits(9);
    let three = || {
        futures_util::future::join3(
            sentinels.connect(),
            sentinels.connect(),
            sentinels.connect(),
        )
    };
    let (a, b, c) = three().await;
    assert!(a.is_ok() && b.is_ok() && c.is_ok());
    assert_eq!(fake.asked.load(Ordering::SeqCst), 1);
    // After a change the client queries the sentinels again.
    sentinels.learn(&master("new", 2));
    assert_eq!(in_use(&sentinels), []);
    fake.names("new", 2);
    let again = three().await;
    assert_eq!(fake.asked.load(Ordering::SeqCst), 2);
    assert_eq!(
        in_use(&sentinels),
        [place("new"), place("new"), place("new")]
    );
    drop(again);
}

#[tokio::test]
async fn a_failover_before_the_first_sentinel_message_is_noticed() {
    let (fake, gate) = fake_and_gate();
    let sentinels = sentinels(&[&fake], &gate);
    gate.0.add_permits(1);
    let _stream = sentinels.connect().await.unwrap();
    // The failover happened before the subscription, so no message reports it.
    fake.names("new", 2);
    let closed = CancellationToken::new();
    let (_, listening) = listen(&sentinels, &closed);
    until(|| in_use(&sentinels).is_empty()).await;
    assert_eq!(sentinels.open().known, Some(master("new", 2)));
    closed.cancel();
    listening.await.unwrap();
}

#[tokio::test]
async fn a_live_link_is_never_left_for_a_lower_epoch() {
    let (stale, gate) = fake_and_gate();
    let current = Arc::new(Fake::default());
    current.names("new", 2);
    let sentinels = sentinels(&[&stale, &current], &gate);
    gate.0.add_permits(9);
    let _stream = sentinels.connect().await.unwrap();
    assert_eq!(in_use(&sentinels), [place("new")]);
    // Now only the stale sentinel can be reached, and the client has connected to it again.
    current.unreachable.store(true, Ordering::SeqCst);
    let before = stale.asked.load(Ordering::SeqCst);
    let closed = CancellationToken::new();
    let (news, listening) = listen(&sentinels, &closed);
    until(|| stale.asked.load(Ordering::SeqCst) == before + 1).await;
    // A delayed message.
    news.notify_one();
    until(|| stale.asked.load(Ordering::SeqCst) == before + 2).await;
    // The third query follows the answer to the second.
    news.notify_one();
    until(|| stale.asked.load(Ordering::SeqCst) == before + 3).await;
    assert_eq!(in_use(&sentinels), [place("new")], "P1");
    // Another connection of the client does not go to the old master either.
    sentinels.asked.lock().unwrap().take();
    let _other = sentinels.connect().await.unwrap();
    assert_eq!(in_use(&sentinels), [place("new"), place("new")]);
    // The client leaves the master for one with a higher epoch.
    stale.names("newer", 3);
    news.notify_one();
    until(|| in_use(&sentinels).is_empty()).await;
    assert_eq!(sentinels.open().known, Some(master("newer", 3)));
    closed.cancel();
    listening.await.unwrap();
}

#[tokio::test]
async fn without_a_live_link_a_stale_sentinel_is_not_believed_alone() {
    let (stale, gate) = fake_and_gate();
    let silent = Arc::new(Fake::default());
    silent.unreachable.store(true, Ordering::SeqCst);
    let sentinels = sentinels(&[&stale, &silent], &gate);
    gate.0.add_permits(9);
    sentinels.learn(&master("new", 2));
    let _stream = sentinels.connect().await.unwrap();
    assert_eq!(in_use(&sentinels), [place("new")]);
}

/// Connects to masters that answer `HELLO` with this role.
#[derive(Debug)]
struct Answering(&'static str);

#[async_trait]
impl Connector for Answering {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        let role = self.0;
        if role.is_empty() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        Ok(crate::fake::peer(move |command| {
            match command.lines().next().unwrap_or_default() {
                "HELLO" => format!("*2\r\n$4\r\nrole\r\n${}\r\n{role}\r\n", role.len()),
                "TIME" => "*2\r\n$1\r\n1\r\n$1\r\n0\r\n".to_owned(),
                _ => "+OK\r\n".to_owned(),
            }
        }))
    }
}

#[tokio::test]
async fn a_majority_is_believed_if_the_known_master_is_gone() {
    let (fake, gate) = fake_and_gate();
    let dead = Arc::new(Fake::default());
    dead.unreachable.store(true, Ordering::SeqCst);
    for (at_the_known, agree, believed) in [
        ("", true, true),
        ("replica", true, true),
        ("master", true, false),
        ("", false, false),
    ] {
        let other = Arc::new(Fake::default());
        other.names("old", if agree { 1 } else { 0 });
        let mut sentinels = sentinels(&[&fake, &other, &dead], &gate);
        let config = ClientConfig::default().connector(Answering(at_the_known));
        Arc::get_mut(&mut sentinels).unwrap().routes = Arc::new(Routes::new(&config));
        sentinels.learn(&master("new", 2));
        let answer = sentinels.master().await.unwrap();
        let chosen = sentinels.chosen(&answer).await;
        let expected = if believed { "old" } else { "new" };
        assert_eq!(chosen, place(expected), "{at_the_known:?} {agree}");
    }
    // A minority is not believed, whatever the known master does.
    let minority = sentinels(&[&fake, &dead, &dead], &gate);
    minority.learn(&master("new", 2));
    let answer = minority.master().await.unwrap();
    assert!(!answer.is_agreed);
}

#[tokio::test]
async fn sentinels_that_were_set_up_again_are_believed() {
    let (fake, gate) = fake_and_gate();
    let sentinels = sentinels(&[&fake], &gate);
    gate.0.add_permits(9);
    sentinels.learn(&master("gone", 7));
    let _stream = sentinels.connect().await.unwrap();
    assert_eq!(in_use(&sentinels), [place("old")]);
    assert_eq!(sentinels.open().known, Some(master("old", 1)));
}

#[tokio::test]
async fn a_leashed_stream_can_be_ended() {
    let (near, mut far) = tokio::io::duplex(64);
    let over = CancellationToken::new();
    let mut leashed = Leashed {
        stream: Box::new(near),
        ended: Box::pin(over.clone().cancelled_owned()),
        over: over.clone(),
    };
    far.write_all(b"x").await.unwrap();
    assert_eq!(leashed.read_u8().await.unwrap(), b'x');
    let reading = tokio::spawn(async move { leashed.read_u8().await });
    over.cancel();
    let ended = reading.await.unwrap().unwrap_err();
    assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
}
