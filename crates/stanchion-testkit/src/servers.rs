//! A private Redis or Valkey server.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::admin::{Admin, Value};
use crate::builder::{LOG, Part, Ports, RedisServerBuilder, SOCKET};
use crate::clock::{Deadline, pause};
use crate::clock_shim::ClockShim;
use crate::eventually::LIMIT;
use crate::monitor::Monitor;
use crate::process::{Signal, send};
use crate::tls::write_certificates;

/// The environment variable that names the server binary to test with.
const BINARY: &str = "STANCHION_REDIS_SERVER";

/// A server of its own, in a directory of its own; killed and reaped when dropped.
#[derive(Debug)]
pub struct RedisServer {
    settings: RedisServerBuilder,
    ports: Ports,
    ca_pem: Option<String>,
    clock: Option<ClockShim>,
    child: Option<Child>,
    // Dropped after `child` is dead, see `Drop`.
    dir: TempDir,
}

impl RedisServer {
    /// Returns whether a server can be started here.
    ///
    /// # Panics
    /// If `STANCHION_REDIS_SERVER` names a binary that does not run: a mistake, not a reason to skip.
    #[must_use]
    pub fn available() -> bool {
        binary().is_some()
    }

    /// Starts a fresh server. Returns `None`, with a line on stderr, when none is installed.
    #[must_use]
    pub fn or_skip(test: &str) -> Option<Self> {
        let found = Self::available();
        if !found {
            // The test harness hides the output of `eprintln!` when a test passes.
            let _ = writeln!(
                io::stderr(),
                "SKIPPED {test}: no redis-server, no valkey-server, no {BINARY}"
            );
        }
        found.then(Self::start)
    }

    /// Starts a server with default settings: nothing is written to disk.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Returns settings for a server.
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::default()
    }

    pub(crate) fn launch(settings: RedisServerBuilder) -> Self {
        let dir = tempfile::Builder::new().prefix("stanchion-").tempdir();
        let dir = dir.expect("a temporary directory");
        let ca_pem = settings
            .tls
            .map(|kind| write_certificates(kind, dir.path()));
        let clock = settings
            .steppable_clock
            .then(|| ClockShim::build(dir.path()));
        let mut server = Self {
            ports: settings.ports(),
            settings,
            ca_pem,
            clock,
            child: None,
            dir,
        };
        for _ in 0..10 {
            match server.spawn() {
                Ok(()) => return server,
                // Another process took the port after it was found free.
                Err(log) if server.settings.port.is_none() && log.contains("in use") => {
                    server.ports = server.settings.ports();
                }
                Err(log) => panic!("the server did not start:\n{log}"),
            }
        }
        panic!("no free port in ten attempts");
    }

    /// Starts the process and waits until it answers; the error is its log.
    fn spawn(&mut self) -> Result<(), String> {
        let dir = self.dir.path();
        let is_sentinel = matches!(self.settings.part, Part::Sentinel(_));
        let config = dir.join("redis.conf");
        // A sentinel stores its state in this file.
        if !is_sentinel || !config.exists() {
            fs::write(&config, self.settings.config(dir, &self.ports)).expect("the data dir");
        }
        let binary = binary().expect("a redis-server or valkey-server to start");
        let mut command = Command::new(binary);
        command
            .arg(&config)
            .args(is_sentinel.then_some("--sentinel"))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        if let Some(clock) = &self.clock {
            clock.preload(&mut command);
        }
        let earlier = self.log().len();
        let mut child = command.spawn().expect("the server's binary starts");
        let deadline = Deadline::after(LIMIT);
        while !self.is_ready() {
            let ended = child.try_wait().expect("wait for a child").is_some();
            if ended || deadline.passed() {
                let _ = child.kill();
                let _ = child.wait();
                return Err(self.log().split_off(earlier));
            }
            pause();
        }
        self.child = Some(child);
        Ok(())
    }

    fn is_ready(&self) -> bool {
        let admin = self.admin();
        let call = |args: &[&[u8]]| admin.call(args).unwrap_or(Value::Nil);
        if let Part::Sentinel(id) = &self.settings.part {
            return call(&[b"SENTINEL", b"MYID"]) == Value::Bulk(id.clone().into_bytes());
        }
        // Another server on the same port would answer PING too, but not with this directory.
        let dir = call(&[b"CONFIG", b"GET", b"dir"]);
        let ours = fs::canonicalize(self.dir.path()).expect("the data dir");
        let is_ours = matches!(&dir, Value::Array(pair)
            if pair.get(1) == Some(&Value::Bulk(ours.display().to_string().into_bytes())));
        if !is_ours || call(&[b"PING"]) != Value::Status("PONG".into()) {
            return false;
        }
        if self.settings.part != Part::WholeCluster {
            return true;
        }
        // Refused when the node remembers its slots from before a restart.
        call(&[b"CLUSTER", b"ADDSLOTSRANGE", b"0", b"16383"]);
        let info = call(&[b"CLUSTER", b"INFO"]);
        matches!(&info, Value::Bulk(text) if text.starts_with(b"cluster_state:ok"))
    }

    /// Returns the URL for clients: `redis://` or `rediss://`, with the password if there is one.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.ports.tls.is_some() {
            "rediss"
        } else {
            "redis"
        };
        let password = self.settings.password.as_ref();
        let login = password.map_or_else(String::new, |p| format!(":{p}@"));
        format!("{scheme}://{login}{}/", self.addr())
    }

    /// Returns the address for clients: the TLS port of a TLS server.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        let port = self.ports.tls.unwrap_or(self.ports.plain);
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    /// Returns the port of the cluster bus.
    pub(crate) fn bus_port(&self) -> u16 {
        self.ports.bus.expect("started as a cluster's node")
    }

    /// Returns the URL of the unix socket.
    ///
    /// # Panics
    /// Without [`RedisServerBuilder::unix_socket`].
    #[must_use]
    pub fn unix_url(&self) -> String {
        assert!(self.settings.unix_socket, "started without a unix socket");
        let password = self.settings.password.as_ref();
        let login = password.map_or_else(String::new, |p| format!("?pass={p}"));
        format!("redis+unix://{}{login}", self.unix_path().display())
    }

    /// Returns the path of the unix socket.
    #[must_use]
    pub fn unix_path(&self) -> PathBuf {
        self.dir.path().join(SOCKET)
    }

    /// Returns the authority that TLS clients must trust.
    ///
    /// # Panics
    /// Without [`RedisServerBuilder::tls`].
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        self.ca_pem.as_deref().expect("started without TLS")
    }

    /// Returns the files of a certificate that the server's authority has signed, and of its key.
    #[must_use]
    pub fn client_certificate(&self) -> (PathBuf, PathBuf) {
        self.certificate("client")
    }

    /// Returns the files of a certificate that another authority has signed, and of its key.
    #[must_use]
    pub fn strange_certificate(&self) -> (PathBuf, PathBuf) {
        self.certificate("stranger")
    }

    fn certificate(&self, whose: &str) -> (PathBuf, PathBuf) {
        assert!(self.ca_pem.is_some(), "started without TLS");
        let file = |kind: &str| self.dir.path().join(format!("{whose}.{kind}"));
        (file("crt"), file("key"))
    }

    /// Returns whether the process has been started and not killed.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// Returns the process id.
    ///
    /// # Panics
    /// If the server was killed.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.running().id()
    }

    /// Returns the server's log.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join(LOG)).unwrap_or_default()
    }

    fn running(&self) -> &Child {
        self.child.as_ref().expect("the server runs")
    }

    fn admin(&self) -> Admin {
        Admin {
            addr: SocketAddr::from(([127, 0, 0, 1], self.ports.plain)),
            password: self.settings.password.clone(),
        }
    }

    /// Kills the server (SIGKILL); its directory and port stay for [`RedisServer::restart`].
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Kills the server if it runs, and starts it again on the same port and directory.
    ///
    /// # Panics
    /// If the server does not start; the message contains its log.
    pub fn restart(&mut self) {
        self.kill();
        if let Err(log) = self.spawn() {
            panic!("the server did not restart:\n{log}");
        }
    }

    /// Stops the process (SIGSTOP): connections stay open, nothing answers.
    pub fn stop_signal(&self) {
        send(self.running(), Signal::Stop);
    }

    /// Resumes a stopped process (SIGCONT).
    pub fn cont(&self) {
        send(self.running(), Signal::Cont);
    }

    /// Moves the server's wall clock by `millis`, in addition to earlier steps. The step survives restarts. Returns when a
    /// running server shows it.
    ///
    /// # Panics
    /// Without [`RedisServerBuilder::steppable_clock`].
    pub fn step_clock(&self, millis: i64) {
        let clock = self.clock.as_ref();
        clock
            .expect("started without a steppable clock")
            .step(millis, || {
                let time = self.is_running().then(|| self.try_cli(&["TIME"]))??;
                let part = |part: usize| time.as_texts().get(part)?.parse::<i64>().ok();
                Some(part(0)? * 1_000_000 + part(1)?)
            });
    }

    /// Runs one command on a connection of its own. Blocks; an error reply is a value.
    ///
    /// # Panics
    /// If the server cannot be reached or does not answer within 10 s.
    #[must_use = "an error reply is a value"]
    pub fn cli(&self, args: &[&str]) -> Value {
        let bytes: Vec<&[u8]> = args.iter().map(|a| a.as_bytes()).collect();
        let reply = self.admin().call(&bytes);
        reply.unwrap_or_else(|e| panic!("{args:?}: {e}"))
    }

    /// Runs one command as [`RedisServer::cli`], for use while roles change: returns `None` when the connection breaks or the
    /// reply is an error.
    #[must_use]
    pub fn try_cli(&self, args: &[&str]) -> Option<Value> {
        let bytes: Vec<&[u8]> = args.iter().map(|a| a.as_bytes()).collect();
        self.admin()
            .call(&bytes)
            .ok()
            .filter(|reply| !reply.is_error())
    }

    /// Runs one command as [`RedisServer::cli`]; panics when the reply is an error.
    pub(crate) fn done(&self, args: &[&str]) -> Value {
        let reply = self.cli(args);
        assert!(!reply.is_error(), "{args:?}: {reply}");
        reply
    }

    /// Returns the calls per command since the last [`RedisServer::reset_stats`]; names in lower case (`config|get` for
    /// subcommands).
    ///
    /// Commands inside scripts count too, and those of this crate's own methods.
    #[must_use]
    pub fn commands_processed(&self) -> HashMap<String, u64> {
        let info = self.done(&["INFO", "commandstats"]);
        let entry = |line: &str| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let calls = rest.split(',').next()?.parse().ok()?;
            Some((name.to_ascii_lowercase(), calls))
        };
        info.as_text().lines().filter_map(entry).collect()
    }

    /// Sets the counters of [`RedisServer::commands_processed`] to zero.
    pub fn reset_stats(&self) {
        self.done(&["CONFIG", "RESETSTAT"]);
    }

    /// Deletes every key.
    pub fn flush(&self) {
        self.done(&["FLUSHALL"]);
    }

    /// Returns every key, sorted.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let mut keys = self.done(&["KEYS", "*"]).as_texts();
        keys.sort_unstable();
        keys
    }

    /// Returns the number of subscriptions to `channel` and to those below it, as `channel:x`; shard subscriptions included. Not those to
    /// `channel:stanchion`, by which a subscriber to `channel` says that it is none of Redisson's.
    #[must_use]
    pub fn subscribers(&self, channel: &str) -> usize {
        let below = format!("{}:*", literally(channel));
        let count = |list: &str, command: &str| {
            let names = self.done(&["PUBSUB", list, &below]);
            let mut ask = vec!["PUBSUB", command, channel];
            let names = names.as_array().iter().map(Value::as_text);
            ask.extend(names.filter(|name| !name.ends_with(":stanchion")));
            let counted = self.done(&ask);
            let counts = counted.as_array().iter().skip(1).step_by(2);
            counts.map(Value::as_int).sum::<i64>()
        };
        let total = count("CHANNELS", "NUMSUB") + count("SHARDCHANNELS", "SHARDNUMSUB");
        usize::try_from(total).expect("a count is not negative")
    }

    /// Returns a field of `INFO`; `None` when there is none, or when the connection breaks because roles change.
    #[must_use]
    pub fn info(&self, section: &str, field: &str) -> Option<String> {
        let info = self.try_cli(&["INFO", section])?;
        let mut lines = info.as_text().lines();
        lines.find_map(|line| {
            let (name, value) = line.trim_end().split_once(':')?;
            (name == field).then(|| value.to_owned())
        })
    }

    /// Cuts the connections of this server's replicas, as a network failure between them does.
    pub(crate) fn drop_replicas(&self) {
        self.done(&["CLIENT", "KILL", "TYPE", "replica"]);
    }

    /// Starts to collect every command that the server executes.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        Monitor::start(self.admin())
    }
}

/// Starts several servers at the same time.
pub(crate) fn start_all(settings: impl Iterator<Item = RedisServerBuilder>) -> Vec<RedisServer> {
    let starting: Vec<_> = settings
        .map(|settings| std::thread::spawn(move || settings.start()))
        .collect();
    let started = starting.into_iter().map(std::thread::JoinHandle::join);
    started
        .map(|server| server.expect("the server starts"))
        .collect()
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the server to start: the one named by the environment, else the first found.
fn binary() -> Option<&'static str> {
    static FOUND: OnceLock<Option<String>> = OnceLock::new();
    let find = || {
        if let Ok(named) = std::env::var(BINARY) {
            assert!(runs(&named), "{BINARY}={named} does not run");
            return Some(named);
        }
        let known = ["redis-server", "valkey-server"];
        known.into_iter().find(|b| runs(b)).map(str::to_owned)
    };
    FOUND.get_or_init(find).as_deref()
}

fn runs(binary: &str) -> bool {
    let version = Command::new(binary).arg("--version").output();
    version.is_ok_and(|out| out.status.success())
}

/// A glob pattern that matches `text` only.
fn literally(text: &str) -> String {
    let mut pattern = String::new();
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}
