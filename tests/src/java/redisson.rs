//! Redisson instances, threads and objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::secs;
use serde_json::{Map, Value, json};

use super::jvm::{Jvm, Pending, Reply};

/// The longest time for an operation that does not wait, on a loaded machine.
const PROMPT: Duration = secs(10);

/// A Redisson instance; closed when dropped.
#[derive(Debug)]
pub struct Redisson {
    jvm: Arc<Jvm>,
    /// The name of the instance in the driver.
    key: String,
    /// The UUID, the first half of an owner.
    pub id: String,
}

impl Redisson {
    /// Connects; `settings` are fields of the driver's `Command`.
    pub async fn connect(jvm: &Arc<Jvm>, settings: Value) -> Self {
        static KEYS: AtomicU64 = AtomicU64::new(1);
        let key = format!("client-{}", KEYS.fetch_add(1, Ordering::Relaxed));
        let mut command = fields(settings);
        command.insert("client".into(), json!(key));
        command.insert("actor".into(), json!(CONTROL));
        command.insert("kind".into(), json!("client"));
        command.insert("op".into(), json!("connect"));
        let reply = jvm.send(command).within(PROMPT * 2).await;
        Self {
            jvm: Arc::clone(jvm),
            key,
            id: reply.text().to_owned(),
        }
    }

    pub fn jvm(&self) -> &Jvm {
        &self.jvm
    }

    /// A Java thread, which is an owner of its own.
    pub fn actor(&self, name: &str) -> Actor {
        Actor {
            jvm: Arc::clone(&self.jvm),
            client: self.key.clone(),
            name: name.to_owned(),
        }
    }

    /// An object that is used by its own thread.
    pub fn object(&self, actor: &str, kind: Kind, name: &str) -> Object {
        self.actor(actor).object(kind, name)
    }

    /// The owner that Redis stores for the thread that gave `reply`.
    pub fn owner(&self, reply: &Reply) -> String {
        format!("{}:{}", self.id, reply.thread)
    }
}

const CONTROL: &str = "control";

impl Drop for Redisson {
    fn drop(&mut self) {
        let close = json!({"client": self.key, "actor": CONTROL, "kind": "client", "op": "close"});
        // The reply is not awaited. After a kill there is no process to send to.
        if self.jvm.is_alive() {
            drop(self.jvm.send(fields(close)));
        }
    }
}

/// A Java thread.
#[derive(Debug, Clone)]
pub struct Actor {
    jvm: Arc<Jvm>,
    client: String,
    name: String,
}

impl Actor {
    pub fn object(&self, kind: Kind, name: &str) -> Object {
        self.target(kind, json!({ "name": name }))
    }

    /// `RedissonMultiLock` over locks with these names.
    pub fn multi(&self, names: &[&str]) -> Object {
        self.target(Kind::Multi, json!({ "names": names }))
    }

    fn target(&self, kind: Kind, target: Value) -> Object {
        let mut target = fields(target);
        target.insert("client".into(), json!(self.client));
        target.insert("actor".into(), json!(self.name));
        target.insert("kind".into(), json!(kind.word()));
        Object {
            jvm: Arc::clone(&self.jvm),
            target,
        }
    }
}

/// The type of a Redisson object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Lock,
    Fair,
    Fenced,
    Spin,
    Multi,
    Read,
    Write,
    Semaphore,
    Leased,
    Latch,
    Limiter,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Fair => "fair",
            Self::Fenced => "fenced",
            Self::Spin => "spin",
            Self::Multi => "multi",
            Self::Read => "read",
            Self::Write => "write",
            Self::Semaphore => "semaphore",
            Self::Leased => "leased",
            Self::Latch => "latch",
            Self::Limiter => "limiter",
        }
    }
}

/// A Redisson object that is used by one thread.
#[derive(Debug, Clone)]
pub struct Object {
    jvm: Arc<Jvm>,
    target: Map<String, Value>,
}

impl Object {
    /// Starts an operation with `arguments` (fields of the driver's `Command`).
    pub fn start(&self, op: &str, arguments: Value) -> Pending {
        let mut command = self.target.clone();
        command.insert("op".into(), json!(op));
        command.append(&mut fields(arguments));
        self.jvm.send(command)
    }

    /// Runs an operation that does not wait.
    pub async fn with(&self, op: &str, arguments: Value) -> Reply {
        self.start(op, arguments).within(PROMPT).await
    }

    /// Runs an operation without arguments that does not wait.
    pub async fn call(&self, op: &str) -> Reply {
        self.with(op, json!({})).await
    }

    /// Runs an operation without arguments that does not wait and must not throw.
    pub async fn done(&self, op: &str) -> Reply {
        let reply = self.call(op).await;
        reply.value();
        reply
    }

    /// Interrupts the thread.
    pub fn interrupt(&self) {
        let mut command = self.target.clone();
        command.insert("op".into(), json!("interrupt"));
        drop(self.jvm.send(command));
    }
}

fn fields(object: Value) -> Map<String, Value> {
    match object {
        Value::Object(fields) => fields,
        other => panic!("not an object: {other}"),
    }
}
