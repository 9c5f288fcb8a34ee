//! Redisson's objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::jvm::{Jvm, Pending, Reply};

/// The longest time for an operation that waits for nobody, on a loaded machine.
const PROMPT: Duration = Duration::from_secs(10);

/// A Redisson instance; closed when dropped.
#[derive(Debug)]
pub(crate) struct Redisson {
    jvm: Arc<Jvm>,
    /// Its name in the driver.
    key: String,
    /// Its UUID, the first half of its owners.
    pub(crate) id: String,
}

impl Redisson {
    /// Connects; `settings` are fields of the driver's `Command`.
    pub(crate) async fn connect(jvm: &Arc<Jvm>, settings: Value) -> Self {
        static KEYS: AtomicU64 = AtomicU64::new(1);
        let key = format!("client-{}", KEYS.fetch_add(1, Ordering::Relaxed));
        let mut command = fields(settings);
        command.insert("client".into(), json!(key));
        command.insert("actor".into(), json!(CONTROL));
        command.insert("kind".into(), json!("client"));
        command.insert("op".into(), json!("connect"));
        let reply = jvm.ask(command).within(PROMPT * 2).await;
        Self {
            jvm: Arc::clone(jvm),
            key,
            id: reply.text().to_owned(),
        }
    }

    /// A thread of its own, which is an owner of its own.
    pub(crate) fn actor(&self, name: &str) -> Actor {
        Actor {
            jvm: Arc::clone(&self.jvm),
            client: self.key.clone(),
            name: name.to_owned(),
        }
    }

    /// An object used by a thread of its own.
    pub(crate) fn object(&self, actor: &str, kind: Kind, name: &str) -> Object {
        self.actor(actor).object(kind, name)
    }

    /// The owner that Redis stores for the thread that gave `reply`.
    pub(crate) fn owner(&self, reply: &Reply) -> String {
        format!("{}:{}", self.id, reply.thread)
    }
}

const CONTROL: &str = "control";

impl Drop for Redisson {
    fn drop(&mut self) {
        let close = json!({"client": self.key, "actor": CONTROL, "kind": "client", "op": "close"});
        // Nobody waits for it. After a kill there is nobody to tell.
        if self.jvm.is_alive() {
            drop(self.jvm.ask(fields(close)));
        }
    }
}

/// A Java thread.
#[derive(Debug, Clone)]
pub(crate) struct Actor {
    jvm: Arc<Jvm>,
    client: String,
    name: String,
}

impl Actor {
    pub(crate) fn object(&self, kind: Kind, name: &str) -> Object {
        self.target(kind, json!({ "name": name }))
    }

    /// `RedissonMultiLock` over locks with these names.
    pub(crate) fn multi(&self, names: &[&str]) -> Object {
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

/// The Redisson object that a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
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

/// An object of Redisson's in the hands of one thread.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    jvm: Arc<Jvm>,
    target: Map<String, Value>,
}

impl Object {
    /// Starts an operation with `arguments` (fields of the driver's `Command`).
    pub(crate) fn start(&self, op: &str, arguments: Value) -> Pending {
        let mut command = self.target.clone();
        command.insert("op".into(), json!(op));
        command.append(&mut fields(arguments));
        self.jvm.ask(command)
    }

    /// An operation that waits for nobody.
    pub(crate) async fn with(&self, op: &str, arguments: Value) -> Reply {
        self.start(op, arguments).within(PROMPT).await
    }

    /// An operation without arguments that waits for nobody.
    pub(crate) async fn call(&self, op: &str) -> Reply {
        self.with(op, json!({})).await
    }

    /// An operation without arguments that waits for nobody and must not throw.
    pub(crate) async fn done(&self, op: &str) -> Reply {
        let reply = self.call(op).await;
        reply.value();
        reply
    }

    /// Interrupts the thread in what it is doing.
    pub(crate) fn interrupt(&self) {
        let mut command = self.target.clone();
        command.insert("op".into(), json!("interrupt"));
        drop(self.jvm.ask(command));
    }
}

fn fields(object: Value) -> Map<String, Value> {
    match object {
        Value::Object(fields) => fields,
        other => panic!("not an object: {other}"),
    }
}
