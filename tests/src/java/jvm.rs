//! A Java process that runs the driver, and its replies.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use stanchion_testkit::{Signal, send_signal};
use tokio::sync::oneshot;

use super::maven::class_path;

/// A Java process that runs the driver; killed when dropped.
#[derive(Debug)]
pub struct Jvm {
    child: Mutex<Child>,
    stdin: Mutex<ChildStdin>,
    pending: Arc<Mutex<HashMap<u64, oneshot::Sender<Reply>>>>,
    ids: AtomicU64,
}

impl Jvm {
    /// The JVM that most tests share; it ends with this process. Returns `None` after a message if it cannot be started.
    pub fn shared() -> Option<Arc<Self>> {
        static SHARED: OnceLock<Option<Arc<Jvm>>> = OnceLock::new();
        SHARED.get_or_init(Self::start).clone()
    }

    /// A JVM for one test.
    pub fn start() -> Option<Arc<Self>> {
        // The process is too short-lived for the optimising compiler to pay off.
        Self::start_with(&["-XX:TieredStopAtLevel=1"])
    }

    pub fn start_with(options: &[&str]) -> Option<Arc<Self>> {
        let mut child = Command::new("java")
            .args(["-Xshare:auto", "-XX:+UseSerialGC", "-Xmx512m"])
            .args(options)
            .args(["-cp", class_path()?, "interop.Driver"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let pending = Arc::default();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        deliver(stdout, Arc::clone(&pending));
        Some(Arc::new(Self {
            child: Mutex::new(child),
            stdin: Mutex::new(stdin),
            pending,
            ids: AtomicU64::new(1),
        }))
    }

    /// Sends a command. The reply arrives later.
    pub(super) fn send(&self, mut command: Map<String, Value>) -> Pending {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        command.insert("id".into(), json!(id));
        let text = Value::Object(command).to_string();
        let (sender, reply) = oneshot::channel();
        self.pending.lock().unwrap().insert(id, sender);
        writeln!(self.stdin.lock().unwrap(), "{text}").unwrap();
        Pending {
            command: text,
            reply,
        }
    }

    /// Returns whether the process runs.
    pub(super) fn is_alive(&self) -> bool {
        let ended = self.child.lock().unwrap().try_wait().unwrap();
        ended.is_none()
    }

    /// Stops the process with SIGSTOP, like a long pause.
    pub fn pause(&self) {
        send_signal(&self.child.lock().unwrap(), Signal::Stop);
    }

    /// Continues the process with SIGCONT.
    pub fn resume(&self) {
        send_signal(&self.child.lock().unwrap(), Signal::Cont);
    }

    /// Kills the process with SIGKILL. Commands in flight get no reply.
    pub fn kill(&self) {
        let mut child = self.child.lock().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Passes each reply to the caller that waits for it, on a thread that ends with the output.
fn deliver(stdout: ChildStdout, pending: Arc<Mutex<HashMap<u64, oneshot::Sender<Reply>>>>) {
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let reply: Reply = serde_json::from_str(&line).unwrap();
            let sender = pending.lock().unwrap().remove(&reply.id);
            // The caller may have dropped its receiver.
            let _ = sender.unwrap().send(reply);
        }
        // Dropping the senders ends all waits for a process that has ended.
        pending.lock().unwrap().clear();
    });
}

/// A reply. Times are on the clock of [`stanchion_testkit::machine_clock`], in ns.
#[derive(Debug, Deserialize)]
pub struct Reply {
    id: u64,
    /// The id of the Java thread, the second half of an owner.
    pub thread: u64,
    #[serde(default)]
    value: Value,
    error: Option<String>,
    #[expect(dead_code, reason = "shown in the messages of panics")]
    message: Option<String>,
    /// When the operation began.
    pub from: u64,
    /// When the operation ended.
    pub to: u64,
}

impl Reply {
    /// The return value of the operation.
    ///
    /// # Panics
    /// If the operation threw.
    pub fn value(&self) -> &Value {
        assert!(self.error.is_none(), "Java threw: {self:?}");
        &self.value
    }

    pub fn bool(&self) -> bool {
        self.value().as_bool().unwrap()
    }

    pub fn int(&self) -> i64 {
        self.value().as_i64().unwrap()
    }

    pub fn text(&self) -> &str {
        self.value().as_str().unwrap()
    }

    /// Returns whether the operation did not throw.
    pub fn is_done(&self) -> bool {
        self.error.is_none()
    }

    /// The exception's simple name.
    ///
    /// # Panics
    /// If the operation did not throw.
    pub fn error(&self) -> &str {
        self.error.as_deref().unwrap()
    }
}

/// A command in flight. Dropping it discards the reply; the command still runs.
#[derive(Debug)]
pub struct Pending {
    command: String,
    reply: oneshot::Receiver<Reply>,
}

impl Pending {
    /// The reply, which must come within `limit`.
    pub async fn within(self, limit: Duration) -> Reply {
        let Self { command, reply } = self;
        let reply = tokio::time::timeout(limit, reply).await;
        reply
            .unwrap_or_else(|_| panic!("no answer from Java within {limit:?} to {command}"))
            .unwrap_or_else(|_| panic!("Java ended before it answered {command}"))
    }

    /// Returns whether Java has not replied yet.
    pub fn is_waiting(&mut self) -> bool {
        self.reply.is_empty()
    }
}
