//! Bare redis-rs: the lower bound for the cost of a lock library.

use anyhow::{Context as _, Result};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{Client, Cmd, IntoConnectionInfo as _, Value};

use crate::contender::Contender;

pub(crate) const ACQUIRE: &str = stanchion_client::in_line!(stanchion_client::minting!(
    include_str!("../../crates/stanchion-lock/lua/acquire.lua")
));
pub(crate) const RELEASE: &str =
    stanchion_client::in_line!(include_str!("../../crates/stanchion-lock/lua/release.lua"));
const HAND_OFF: &str = stanchion_client::in_line!(stanchion_client::minting!(include_str!(
    "../../crates/stanchion-lock/lua/hand_off.lua"
)));
/// A script of the fair lock, as its crate puts it together.
macro_rules! of_fair {
    ($first:literal, $($last:literal),+) => {
        stanchion_client::mint_function!(concat!(
            include_str!(concat!("../../crates/stanchion-fair/lua/", $first, ".lua")),
            include_str!("../../crates/stanchion-fair/lua/queue.lua"),
            $(include_str!(concat!("../../crates/stanchion-fair/lua/", $last, ".lua")),)+
        ))
    };
}
const FAIR_ACQUIRE: &str =
    stanchion_client::minting!(of_fair!("acquire", "stand", "after_acquire"));
const FAIR_RELEASE_AND_ACQUIRE: &str =
    of_fair!("release_and_acquire", "stand", "after_release_and_acquire");
pub(crate) const MINIMAL_ACQUIRE: &str = include_str!("../lua/minimal_acquire.lua");
pub(crate) const MINIMAL_RELEASE: &str = include_str!("../lua/minimal_release.lua");
pub(crate) const REDISSON_ACQUIRE: &str = include_str!("../lua/redisson_acquire.lua");
pub(crate) const REDISSON_RELEASE: &str = include_str!("../lua/redisson_release.lua");

const OWNER: &str = "6f1d3e0a-5a42-4c38-9d52-0c9d5f3c7c11:1234567";
/// Another waiter of the same process.
const NEXT: &str = "6f1d3e0a-5a42-4c38-9d52-0c9d5f3c7c11:1234568";
pub(crate) const LEASE: &str = "30000";
/// In the year 2100: never late.
pub(crate) const NOT_AFTER: &str = "4102444800000000";

/// A connection as the redis crate makes it, only without Nagle's delay.
pub(crate) async fn connect(url: &str) -> Result<MultiplexedConnection> {
    let info = url
        .into_connection_info()?
        .set_tcp_settings(TcpSettings::default().set_nodelay(true));
    Client::open(info)?
        .get_multiplexed_async_connection()
        .await
        .context("cannot connect")
}

/// A script with its keys and arguments.
#[derive(Clone, Debug)]
pub(crate) struct Invocation {
    text: String,
    sha: String,
    keys: Vec<String>,
    args: Vec<String>,
}

impl Invocation {
    pub(crate) fn new(text: impl Into<String>, keys: &[&str], args: &[&str]) -> Self {
        let text = text.into();
        let sha = sha1_smol::Sha1::from(&text).digest().to_string();
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Self {
            text,
            sha,
            keys: owned(keys),
            args: owned(args),
        }
    }

    /// Another script with the same keys and arguments.
    pub(crate) fn with(&self, text: String) -> Self {
        let sha = sha1_smol::Sha1::from(&text).digest().to_string();
        Self {
            text,
            sha,
            ..self.clone()
        }
    }

    pub(crate) async fn load(&self, connection: &mut MultiplexedConnection) -> Result<()> {
        redis::cmd("SCRIPT")
            .arg("LOAD")
            .arg(&self.text)
            .exec_async(connection)
            .await
            .context("SCRIPT LOAD")
    }

    pub(crate) fn command(&self) -> Cmd {
        self.command_as(OWNER, NOT_AFTER)
    }

    /// The command with another owner and another time limit of the request.
    pub(crate) fn command_as(&self, owner: &str, not_after: &str) -> Cmd {
        let mut cmd = Cmd::with_capacity(10, 320);
        cmd.arg("EVALSHA").arg(&self.sha).arg(self.keys.len());
        for text in self.keys.iter().chain(&self.args) {
            cmd.arg(match &**text {
                OWNER => owner,
                NOT_AFTER => not_after,
                other => other,
            });
        }
        cmd
    }
}

/// The two invocations of a cycle.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) acquire: Invocation,
    pub(crate) release: Invocation,
}

impl Pair {
    /// The library's own scripts, as it calls them.
    pub(crate) fn ours(name: &str) -> Self {
        Self::ours_as(name, ACQUIRE, &format!("stanchion_fence:{{{name}}}"))
    }

    /// With another text of the script, or with another fence; the name itself stands for no fence.
    pub(crate) fn ours_as(name: &str, acquire: &str, fence: &str) -> Self {
        let channel = channel(name);
        let (line, wake) = (
            format!("stanchion_line:{{{name}}}"),
            format!("stanchion_wake:{{{name}}}"),
        );
        let keys = [name, fence, &line, &wake];
        let asked = [OWNER, LEASE, NOT_AFTER, "new", "PUBLISH", &channel];
        Self {
            acquire: Invocation::new(acquire, &keys, &asked),
            release: Invocation::new(RELEASE, &keys, &[&channel, "PUBLISH", OWNER, "0"]),
        }
    }

    /// Two hand-offs inside a process, from one owner to another and back.
    pub(crate) fn hand_offs(name: &str) -> Self {
        let ours = Self::ours(name).acquire;
        let keys: Vec<&str> = ours.keys.iter().map(String::as_str).collect();
        let channel = channel(name);
        let pass = |from, to| {
            let args = [&*channel, "PUBLISH", from, to, LEASE, NOT_AFTER, "1"];
            Invocation::new(HAND_OFF, &keys, &args)
        };
        Self {
            acquire: pass(OWNER, NEXT),
            release: pass(NEXT, OWNER),
        }
    }

    pub(crate) fn minimal(name: &str) -> Self {
        Self {
            acquire: Invocation::new(MINIMAL_ACQUIRE, &[name], &[OWNER, LEASE]),
            release: Invocation::new(MINIMAL_RELEASE, &[name, &channel(name)], &[OWNER]),
        }
    }

    pub(crate) fn redisson(name: &str) -> Self {
        Self {
            acquire: Invocation::new(REDISSON_ACQUIRE, &[name], &[LEASE, OWNER]),
            release: Invocation::new(
                REDISSON_RELEASE,
                &[name, &channel(name)],
                &["0", LEASE, OWNER, "PUBLISH"],
            ),
        }
    }

    pub(crate) async fn load(&self, connection: &mut MultiplexedConnection) -> Result<()> {
        self.acquire.load(connection).await?;
        self.release.load(connection).await
    }
}

pub(crate) fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

/// Sends the two invocations of a pair, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Bare {
    connection: MultiplexedConnection,
    pair: Pair,
}

impl Bare {
    pub(crate) async fn new(connection: &MultiplexedConnection, pair: Pair) -> Result<Self> {
        let mut connection = connection.clone();
        pair.load(&mut connection).await?;
        Ok(Self { connection, pair })
    }

    pub(crate) async fn acquire(&mut self) -> Result<Value> {
        let acquire = self.pair.acquire.command();
        Ok(acquire.query_async(&mut self.connection).await?)
    }

    pub(crate) async fn release(&mut self) -> Result<Value> {
        let release = self.pair.release.command();
        Ok(release.query_async(&mut self.connection).await?)
    }
}

/// Owners of one process that take turns at a fair lock: each release acquires for the one that released before.
#[derive(Clone, Debug)]
pub(crate) struct BareFair {
    connection: MultiplexedConnection,
    /// One turn of each.
    turns: Vec<Invocation>,
}

impl BareFair {
    /// The first owner holds and the others wait, except for the last, which is about to.
    pub(crate) async fn new(
        connection: &MultiplexedConnection,
        name: &str,
        owners: usize,
    ) -> Result<Self> {
        let keys = [
            name.to_owned(),
            format!("redisson_lock_queue:{{{name}}}"),
            format!("redisson_lock_timeout:{{{name}}}"),
            format!("stanchion_fair_waiters:{{{name}}}"),
            format!("stanchion_fair_wake:{{{name}}}"),
            format!("stanchion_fence:{{{name}}}"),
        ];
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let channel = channel(name);
        let common = [&*channel, "PUBLISH", "300000"];
        let owner = |nth: usize| format!("{}:{nth}", &OWNER[..36]);
        let mut fair = Self {
            connection: connection.clone(),
            turns: Vec::new(),
        };
        for nth in 0..owners {
            let (from, to) = (owner(nth), owner((nth + owners - 1) % owners));
            let args = [&common[..], &[&from, &to, LEASE, NOT_AFTER, "1"]].concat();
            let turn = Invocation::new(FAIR_RELEASE_AND_ACQUIRE, &keys, &args);
            turn.load(&mut fair.connection).await?;
            fair.turns.push(turn);
        }
        for nth in 0..owners - 1 {
            let owner = owner(nth);
            let args = [&common[..], &[&owner, LEASE, NOT_AFTER, "0", "1"]].concat();
            let acquire = Invocation::new(FAIR_ACQUIRE, &keys, &args);
            acquire.load(&mut fair.connection).await?;
            let asked: Value = acquire.command().query_async(&mut fair.connection).await?;
            drop(asked);
        }
        Ok(fair)
    }

    pub(crate) const fn owners(&self) -> usize {
        self.turns.len()
    }
}

impl Contender for BareFair {
    /// A hand-off of each owner.
    async fn cycle(&mut self) -> Result<()> {
        for turn in &self.turns {
            let turn: Value = turn.command().query_async(&mut self.connection).await?;
            drop(turn);
        }
        Ok(())
    }
}

impl Contender for Bare {
    async fn cycle(&mut self) -> Result<()> {
        let _acquired = self.acquire().await?;
        let _released = self.release().await?;
        Ok(())
    }
}
