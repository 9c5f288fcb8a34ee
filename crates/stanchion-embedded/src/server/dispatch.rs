//! Dispatch of commands to their functions, with the checks of Redis in the order of Redis.

use super::{ADMIN, Server, SessionId};
use crate::clock::Now;
use crate::commands::{
    self, Context, DENY_OOM, Failure, LOADING, NO_AUTH, NO_SCRIPT, Outcome, REPLICATED, Run,
    ScriptCommand, Spec, WRITE,
};
use crate::reply::{Protocol, Reply};
use crate::resp::Args;

/// The error of Redis when `maxmemory` is reached and nothing may be evicted.
const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";
const READ_ONLY: &str = "READONLY You can't write against a read only replica.";
const NOW_LOADING: &str = "LOADING Redis is loading the dataset in memory";
const TRY_AGAIN: &str = "TRYAGAIN Multiple keys request during rehashing of slot";
const NON_LOCAL: &str = "ERR Script attempted to access a non local key in a cluster node";
const NO_LOGIN: &str = "NOAUTH Authentication required.";

/// The result of dispatching a command.
#[derive(Debug)]
pub(crate) enum Dispatched {
    Done(Reply),
    /// One reply for each channel.
    DoneMany(Vec<Reply>),
    /// All checks passed; the interpreter has to run it.
    Script(ScriptCommand),
}

impl Server {
    /// Checks and runs one command of a session.
    pub(crate) fn dispatch(&mut self, id: SessionId, args: Args<'_>) -> Dispatched {
        match self.try_dispatch(id, args) {
            Ok(done) => done,
            Err(Failure(text)) => Dispatched::Done(Reply::Error(text.into_owned())),
        }
    }

    fn try_dispatch(&mut self, id: SessionId, args: Args<'_>) -> Outcome<Dispatched> {
        let spec = commands::find(&args[0]);
        if id != ADMIN
            && let Some(error) = self.switches.take_failure(&args[0])
        {
            return Err(Failure::new(error));
        }
        let spec = spec.ok_or_else(|| commands::unknown(args))?;
        if !spec.accepts(args.len()) {
            return Err(Failure::arity(spec.name));
        }
        if id != ADMIN {
            self.check(id, spec)?;
            self.stats.count_command(spec.name);
        }
        let now = self.clock.now();
        let Some(session) = self.sessions.get(&id) else {
            return Err(Failure::new("ERR the connection is closed"));
        };
        let mut context = Context {
            db: session.db,
            protocol: session.protocol,
            session: id,
            now,
            server: self,
        };
        match spec.run {
            Run::Plain(run) => run(&mut context, args).map(Dispatched::Done),
            Run::Many(run) => run(&mut context, args).map(Dispatched::DoneMany),
            Run::Script(command) => Ok(Dispatched::Script(command)),
        }
    }

    fn check(&mut self, id: SessionId, spec: &Spec) -> Outcome<()> {
        let session = self.sessions.get(&id);
        if !spec.is(NO_AUTH) && session.is_some_and(|s| !s.is_authenticated) {
            return Err(Failure::new(NO_LOGIN));
        }
        if spec.is(DENY_OOM) && self.is_out_of_memory(false) {
            return Err(Failure::new(OUT_OF_MEMORY));
        }
        if self.switches.read_only && spec.is(WRITE) {
            return Err(Failure::new(READ_ONLY));
        }
        let session = self.sessions.get(&id);
        let in_subscriber_mode = [
            "subscribe",
            "unsubscribe",
            "ssubscribe",
            "sunsubscribe",
            "ping",
            "quit",
            "reset",
        ];
        if session.is_some_and(super::Session::is_subscriber_only)
            && !in_subscriber_mode.contains(&spec.name)
        {
            return Err(Failure::new(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET \
                 are allowed in this context",
                spec.name
            )));
        }
        if self.switches.loading && !spec.is(LOADING) {
            return Err(Failure::new(NOW_LOADING));
        }
        Ok(())
    }

    /// Returns whether `CLIENT PAUSE` holds this command back now.
    pub(crate) fn is_held_back(&mut self, args: Args<'_>) -> bool {
        let Some(pause) = self.pause_now() else {
            return false;
        };
        let Some(spec) = commands::find(&args[0]) else {
            return false;
        };
        // CLIENT UNPAUSE must get through.
        if spec.name == "client" {
            return false;
        }
        !pause.writes_only || spec.is(WRITE | REPLICATED)
    }

    /// Runs `redis.call`: one command inside the running script.
    pub(crate) fn call_from_script(&mut self, args: Args<'_>) -> Outcome {
        let Some(mut script) = self.script else {
            return Err(Failure::new("ERR no script is running"));
        };
        let spec = commands::find(&args[0])
            .ok_or_else(|| Failure::new("ERR Unknown Redis command called from script"))?;
        if !spec.accepts(args.len()) {
            return Err(Failure::new(
                "ERR Wrong number of args calling Redis command from script",
            ));
        }
        let Run::Plain(run) = spec.run else {
            return Err(not_from_script());
        };
        if spec.is(NO_SCRIPT) {
            return Err(not_from_script());
        }
        if spec.is(WRITE) && self.switches.read_only {
            return Err(Failure::new(READ_ONLY));
        }
        if spec.is(DENY_OOM) && self.is_out_of_memory(script.has_written) {
            return Err(Failure::new(OUT_OF_MEMORY));
        }
        if script.in_migration {
            let keys = match spec.name {
                "time" | "publish" | "spublish" | "pubsub" => 0,
                "exists" | "del" | "unlink" => usize::MAX,
                _ => 1,
            };
            let mut keys = args.skip(1).iter().take(keys);
            if keys.any(|key| self.lacks(script.db, script.now, key)) {
                return Err(Failure::new(NON_LOCAL));
            }
        }
        // A write without effect counts too, and one that fails.
        script.has_written |= spec.is(WRITE);
        self.script = Some(script);
        let mut context = Context {
            session: script.session,
            db: script.db,
            now: script.now,
            protocol: Protocol::Resp2,
            server: self,
        };
        run(&mut context, args)
    }

    /// Starts a script with the first `keys` of `args` as keys. It sees this time until it ends.
    pub(crate) fn begin_script(
        &mut self,
        session: SessionId,
        args: Args<'_>,
        keys: usize,
    ) -> Outcome<Now> {
        let now = self.clock.now();
        let db = self.sessions.get(&session).map_or(0, |s| s.db);
        let missing = session != ADMIN
            && self.switches.migrating
            && (args.iter().take(keys)).any(|key| self.lacks(db, now, key));
        if missing && keys > 1 {
            return Err(Failure::new(TRY_AGAIN));
        }
        self.script = Some(super::ScriptRun {
            session,
            db,
            now,
            has_written: false,
            in_migration: session != ADMIN && self.switches.migrating && !missing,
        });
        Ok(now)
    }

    fn lacks(&mut self, db: usize, now: Now, key: &[u8]) -> bool {
        let keyspace = &mut self.databases[db];
        keyspace.now_ms = now.millis();
        !keyspace.contains(key)
    }

    pub(crate) fn end_script(&mut self) {
        self.script = None;
    }
}

fn not_from_script() -> Failure {
    Failure::new("ERR This Redis command is not allowed from script")
}
