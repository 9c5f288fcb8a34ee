//! Tests that no secret is shown. A marked password is set in every way, connections fail in every way, and no log or error has the mark.

use std::fmt::Debug;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::thread;

use async_trait::async_trait;
use stanchion::client::{Credentials, CredentialsProvider};
use stanchion::{
    Client, ClientConfig, CountDownLatch, FairLock, LeasedSemaphore, Lock, Lockable, MultiLock,
    RwLock, Secret, Semaphore, ServerUrl,
};
use stanchion_testkit::{Matcher, Proxy, RedisServer, Then, eventually};
use stanchion_tests::{lease, ms};

use tracing_subscriber::fmt::format::FmtSpan;

use crate::Log;

const MARK: &str = "hunter2MARKEDhunter2";

/// Everything a user may get to see.
#[derive(Default)]
struct Seen(String);

impl Seen {
    fn see(&mut self, what: &str) {
        assert!(!what.contains("MARKED"), "{what}");
        self.0.push_str(what);
        self.0.push('\n');
    }

    fn error<T: Debug, E: std::error::Error>(&mut self, result: Result<T, E>) {
        let error = result.unwrap_err();
        self.see(&format!("{error} {error:?}"));
        let mut source = error.source();
        while let Some(inner) = source {
            self.see(&format!("{inner} {inner:?}"));
            source = inner.source();
        }
    }

    fn config(&mut self, config: &ClientConfig) {
        self.see(&format!("{config:?} {config:#?} {}", config.url));
        self.see(&serde_json::to_string(config).unwrap());
    }

    /// A connect that must fail.
    async fn refused(&mut self, config: ClientConfig) {
        self.config(&config);
        let config = config.connect_timeout(ms(300));
        self.error(Client::connect_with(config).await);
    }
}

/// A port that replies to each request with errors that repeat the request.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let addr = listener.local_addr().unwrap();
    // Ends with the process.
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut some = [0; 4096];
                while let Ok(n @ 1..) = stream.read(&mut some) {
                    let request = String::from_utf8_lossy(&some[..n]).replace("\r\n", " ");
                    let answer =
                        format!("-ERR unknown command, with args beginning with: {request}\r\n");
                    // The client may have closed the connection.
                    let _ = stream.write_all(answer.repeat(4).as_bytes());
                    let _ = stream.write_all(format!("-ERR what is {request}?\r\n").as_bytes());
                }
            });
        }
    });
    addr
}

struct Marked(&'static str);

#[async_trait]
impl CredentialsProvider for Marked {
    async fn credentials(
        &self,
    ) -> Result<Credentials, Box<dyn std::error::Error + Send + Sync + 'static>> {
        let password = Secret::new(self.0);
        Ok(Credentials::new(password)
            .username("app")
            .valid_for(ms(400)))
    }
}

fn admin(server: &RedisServer, command: &[&str]) {
    let reply = server.cli(command);
    assert!(!reply.is_error(), "{command:?}: {reply}");
}

fn user(server: &RedisServer, password: &str) {
    let password = format!(">{password}");
    admin(
        server,
        &[
            "ACL", "SETUSER", "app", "reset", "on", &password, "~*", "&*", "+@all",
        ],
    );
}

/// Acquires, waits for and releases locks of every kind.
async fn use_everything(client: &Client, seen: &mut Seen) {
    seen.see(&format!("{client:?} {:?}", client.server()));
    let lease = lease(ms(600));
    let lock = Lock::new(client, "lock").unwrap().lease(lease);
    let guard = lock.acquire().await.unwrap();
    seen.see(&format!("{lock:?} {guard:?}"));
    seen.error(lock.acquire_timeout(ms(30)).await);
    guard.renew().await.unwrap();
    tokio::time::sleep(ms(400)).await;
    drop(guard);
    let fair = FairLock::new(client, "fair").unwrap();
    fair.acquire().await.unwrap().release().await.unwrap();
    let both = RwLock::new(client, "both").unwrap();
    both.read().await.unwrap().release().await.unwrap();
    both.write().await.unwrap().release().await.unwrap();
    let semaphore = Semaphore::new(client, "semaphore").unwrap();
    semaphore.init(1).await.unwrap();
    semaphore.acquire().await.unwrap().release().await.unwrap();
    let leased = LeasedSemaphore::new(client, "leased").unwrap();
    leased.init(1).await.unwrap();
    leased.acquire().await.unwrap().release().await.unwrap();
    let latch = CountDownLatch::new(client, "latch").unwrap();
    latch.arm(1).await.unwrap();
    latch.count_down().await.unwrap();
    let members = ["a", "b"].map(|name| Lock::new(client, name).unwrap());
    let multi = MultiLock::new(members.iter().map(|lock| lock as &dyn Lockable)).unwrap();
    multi.acquire().await.unwrap().release().await.unwrap();
    // A key with a foreign value.
    seen.error(Lock::new(client, "text").unwrap().acquire().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_ever_shown() {
    let log = Log::default();
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_ansi(false)
        .with_span_events(FmtSpan::FULL)
        .with_writer(log.writer())
        .init();
    let mut seen = Seen::default();

    // URLs that cannot be parsed.
    for url in [
        format!("redis://app:12/{MARK}@h"),
        format!("redis://app:12?{MARK}@h"),
        format!("redis://app:{MARK}@h:x"),
        format!("redis://app:{MARK}@h/x"),
        format!("http://app:{MARK}@h"),
        format!("app:{MARK}@h"),
        format!("unix:///run/s?pass={MARK}&x=y"),
        format!("unix:///run/s?pass=x&{MARK}"),
        format!("redis+sentinel://app:{MARK}@h"),
        format!("redis+sentinel://app:1/{MARK}@h/main"),
        format!("redis+cluster://app:{MARK}@h/1"),
    ] {
        seen.refused(ClientConfig::new(url)).await;
    }
    // A closed port, and a port that repeats requests in its errors.
    let (nowhere, echo) = ("127.0.0.1:1".to_owned(), echo().to_string());
    for place in [&nowhere, &echo] {
        let url = |kind: &str, path: &str| format!("redis{kind}://app:{MARK}@{place}{path}");
        for url in [
            url("", "/"),
            url("+sentinel", "/main"),
            url("+cluster", "/"),
        ] {
            let config = ClientConfig::new(url).sentinel_password(Secret::new(MARK));
            seen.refused(config).await;
        }
        let plain = || ClientConfig::new(format!("redis://{place}/"));
        seen.refused(plain().password(Secret::new(MARK))).await;
        seen.refused(plain().credentials(Marked(MARK))).await;
    }

    let Some(server) = RedisServer::or_skip("no_secret_is_ever_shown") else {
        return;
    };
    admin(&server, &["SET", "text", "a foreign value"]);
    user(&server, "right");
    let proxy = Proxy::start(server.addr());
    let plain = || ClientConfig::new(proxy.url()).response_timeout(ms(250));
    // The server refuses the login.
    let wrong = plain().username("app".to_owned());
    seen.refused(wrong.password(Secret::new(MARK))).await;
    seen.refused(plain().credentials(Marked(MARK))).await;
    // The server accepts the login. Connections and replies are lost.
    user(&server, MARK);
    let url = proxy
        .url()
        .replace("redis://", &format!("redis://app:{MARK}@"));
    for config in [
        plain()
            .username("app".to_owned())
            .password(Secret::new(MARK)),
        ClientConfig::new(ServerUrl::from(url)).response_timeout(ms(250)),
        plain().credentials(Marked(MARK)),
    ] {
        seen.config(&config);
        let client = Client::connect_with(config).await.unwrap();
        use_everything(&client, &mut seen).await;
        proxy.swallow_next_reply(Matcher::any_script(), Then::Reset);
        use_everything(&client, &mut seen).await;
        proxy.reset_all();
        use_everything(&client, &mut seen).await;
        assert!(client.shutdown(ms(2000)).await.is_clean());
    }
    // The password changes while the client is connected: the login fails when it is repeated, and at a reconnect.
    let client = Client::connect_with(plain().credentials(Marked(MARK)))
        .await
        .unwrap();
    user(&server, "another");
    eventually("the login is refused", || {
        log.text().contains("cannot log in again")
    })
    .await;
    proxy.reset_all();
    eventually("the client is disconnected", || !client.is_connected()).await;
    let error = Lock::new(&client, "lock")
        .unwrap()
        .acquire_timeout(ms(300))
        .await;
    seen.error(error);
    drop(client);

    // Private keys of client certificates.
    let server = RedisServer::builder().tls().client_certificates().start();
    let (certificate, key) = server.client_certificate();
    let file = |name: &str, text: String| {
        let path = server.unix_path().with_file_name(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let ca = file("trusted.crt", server.ca_pem().to_owned());
    let good = std::fs::read_to_string(&key).unwrap();
    let config = || {
        ClientConfig::new(server.url())
            .tls_ca_file(ca.clone())
            .tls_cert_file(certificate.clone())
    };
    for text in [
        MARK.to_owned(),
        format!("-----BEGIN PRIVATE KEY-----\n{MARK}\n-----END PRIVATE KEY-----\n"),
        format!("-----BEGIN {MARK}-----\n{MARK}\n-----END {MARK}-----\n"),
        format!("-----BEGIN PRIVATE KEY-----\n{MARK}\n-----END {MARK}-----\n"),
    ] {
        seen.refused(config().tls_key_file(file("bad.key", text)))
            .await;
    }
    let marked = file("marked.key", format!("{MARK}\n{good}"));
    let config = config().tls_key_file(marked);
    seen.config(&config);
    let client = Client::connect_with(config).await.unwrap();
    let lock = Lock::new(&client, "lock").unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    assert!(client.shutdown(ms(2000)).await.is_clean());

    let text = log.text();
    for expected in [
        "connection lost",
        "connected again",
        "acquire",
        "renew",
        "cannot log in again",
    ] {
        assert!(text.contains(expected), "not in the log: {expected:?}");
    }
    let leak = text.lines().find(|line| line.contains("MARKED"));
    assert_eq!(leak, None);
}
