//! The Lua interpreter, its sandbox, and the errors of scripts.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use mlua::chunk::ChunkMode;
use mlua::{
    Function, HookTriggers, Lua, LuaOptions, LuaString, MultiValue, StdLib, Table, Value, VmState,
};

use super::convert::{single, to_lua, to_reply, to_request};
use super::{library, packing};
use crate::clock::Now;
use crate::keyspace::number::truncate;
use crate::locked;
use crate::outcome::{Failure, Outcome};
use crate::reply::Reply;
use crate::resp::{Args, Request};
use crate::server::Server;

/// The name of scripts in error messages, as in Redis.
const SCRIPT: &str = "@user_script";
const PRELUDE: &str = "@prelude";
/// The time after which a script is stopped, in microseconds: the server does nothing else until then. Redis answers `BUSY`
/// from then on.
const LONGEST_RUN: i64 = 5_000_000;

/// The additional time on the machine's clock during an exploration, in which millions of scripts run and the machine may be busy.
const EXPLORED: i64 = 60_000_000;
/// The number of instructions between two checks of the clock, and the number from [`LARGE`] on: one instruction can read a
/// text of half of [`MEMORY`] as a number, which takes half a second. So a script is stopped after 7 s at the latest.
const WATCH: u32 = 100;
const WATCH_CLOSELY: u32 = 4;
/// The memory in use from which on texts may be so long that a few instructions take long.
const LARGE: usize = 4 * 1024 * 1024;
/// The memory of all scripts together, in bytes. A request has at most as much.
pub(super) const MEMORY: usize = 64 * 1024 * 1024;
/// The memory in use after a script above which a fresh interpreter takes over. Lua 5.1 collects no garbage when an
/// allocation fails, and a script may have stopped its collector: so an interpreter may never get its room back.
const FULL: usize = MEMORY / 4;

/// An error of `redis.call` that propagates through a script.
#[derive(Debug)]
struct Raised(String);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// One interpreter with its sandbox.
#[derive(Debug)]
pub(super) struct Interpreter {
    lua: Lua,
    /// The globals of scripts.
    environment: Table,
    /// The table behind the environment that holds `KEYS` and `ARGV`.
    scope: Table,
    /// The function that runs a script and reports the line where it failed.
    protect: Function,
    random: Random,
    limit: Limit,
}

impl Interpreter {
    pub(super) fn new(server: &Arc<Mutex<Server>>) -> mlua::Result<Self> {
        let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH;
        // The plain pcall of Lua suffices: no code of this crate panics on purpose.
        let options = LuaOptions::new().catch_rust_panics(false);
        let lua = Lua::new_with(libraries, options)?;
        lua.set_memory_limit(MEMORY)?;
        let limit = Limit::new(server);
        let random = Random::default();
        let host = host_functions(&lua, &limit, &random)?;
        library::add(&lua, &host, &limit)?;
        packing::add(&lua, &host)?;
        let strings = lua.load(include_str!("strings.lua")).set_name(PRELUDE);
        let (strings, tables): (Table, Table) = strings.call(&host)?;
        let prelude = lua.load(include_str!("prelude.lua")).set_name(PRELUDE);
        let (environment, scope, protect) = prelude.call((host, strings, tables))?;
        // Not before: only a script has a time limit.
        limit.watch(&lua, WATCH)?;
        Ok(Self {
            lua,
            environment,
            scope,
            protect,
            random,
            limit,
        })
    }

    /// Returns whether scripts have left so much memory in use that the next one may find no room.
    pub(super) fn is_full(&self) -> bool {
        self.lua.used_memory() > FULL
    }

    pub(super) fn compile(&self, source: &[u8]) -> Outcome<Function> {
        self.lua
            .load(source)
            .set_name(SCRIPT)
            .set_mode(ChunkMode::Text)
            .set_environment(self.environment.clone())
            .into_function()
            .map_err(|error| {
                let reason = match error {
                    mlua::Error::SyntaxError { message, .. } => message,
                    other => other.to_string(),
                };
                Failure::new(format!(
                    "ERR Error compiling script (new function): {reason}"
                ))
            })
    }

    /// Runs a script with the first `keys` of `args` as `KEYS` and the rest as `ARGV`.
    pub(super) fn call(
        &self,
        script: &Function,
        digest: &[u8],
        args: Args<'_>,
        keys: usize,
        now: Now,
    ) -> Outcome {
        // Redis continues the sequence of the last script; here the numbers of a script depend on nothing else.
        self.random.seed(0);
        self.limit.begin(now);
        let outcome = self.try_call(script, digest, args, keys);
        // The arguments may be large, and are garbage now.
        for name in ["KEYS", "ARGV"] {
            // OK: where there is no room for an empty table the interpreter is full, and is replaced.
            let _ = self
                .lua
                .create_table()
                .and_then(|empty| self.scope.raw_set(name, empty));
        }
        outcome.unwrap_or_else(|error| Err(Failure::new(format!("ERR {error}"))))
    }

    fn try_call(
        &self,
        script: &Function,
        digest: &[u8],
        args: Args<'_>,
        keys: usize,
    ) -> mlua::Result<Outcome> {
        self.scope.raw_set("KEYS", self.strings(args, 0, keys)?)?;
        self.scope
            .raw_set("ARGV", self.strings(args, keys, args.len())?)?;
        let (ok, value): (bool, Value) = self.protect.call(script)?;
        if ok {
            return Ok(Ok(to_reply(value)?));
        }
        let Value::Table(failure) = value else {
            // Raised where no handler runs, such as out of memory.
            let text = value.to_string()?;
            return Ok(Err(Failure::new(format!("ERR {text}"))));
        };
        let text = match failure.raw_get("err")? {
            Value::String(text) => text.to_string_lossy(),
            _ => "ERR unknown error".to_owned(),
        };
        let digest = String::from_utf8_lossy(digest);
        Ok(Err(Failure::new(
            match failure.raw_get::<Option<i64>>("line")? {
                Some(line) => format!("{text} script: {digest}, on {SCRIPT}:{line}."),
                None => text,
            },
        )))
    }

    fn strings(&self, args: Args<'_>, from: usize, to: usize) -> mlua::Result<Table> {
        let table = self.lua.create_table_with_capacity(to - from, 0)?;
        for at in from..to {
            table.raw_push(self.lua.create_string(&args[at])?)?;
        }
        Ok(table)
    }
}

/// Stops scripts that run for too long.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    server: Arc<Mutex<Server>>,
    /// The time at which the running script is stopped, in microseconds of the server's clock.
    stop_at: Arc<AtomicI64>,
    /// The same on the machine's clock, since `made`: a virtual clock does not advance while a script runs, and any clock may be set back.
    stop_after: Arc<AtomicI64>,
    made: Instant,
    /// True once the running script was stopped: nothing that it calls may catch an error any more.
    is_over: Arc<AtomicBool>,
}

impl Limit {
    #[expect(
        clippy::disallowed_methods,
        reason = "the time that passes while a script runs, whatever the engine's clock says"
    )]
    fn new(server: &Arc<Mutex<Server>>) -> Self {
        Self {
            server: Arc::clone(server),
            stop_at: Arc::default(),
            stop_after: Arc::default(),
            made: Instant::now(),
            is_over: Arc::default(),
        }
    }

    /// Allows a script that starts `now` its time.
    fn begin(&self, now: Now) {
        let stop_at = now.micros.saturating_add(LONGEST_RUN);
        self.stop_at.store(stop_at, Ordering::Relaxed);
        let stop_after = self.passed().saturating_add(LONGEST_RUN);
        self.stop_after.store(stop_after, Ordering::Relaxed);
        self.is_over.store(false, Ordering::Relaxed);
    }

    /// Checks the clock after every `every` instructions while scripts run; a coroutine inherits the hook.
    fn watch(&self, lua: &Lua, every: u32) -> mlua::Result<()> {
        let limit = self.clone();
        let triggers = HookTriggers::new().every_nth_instruction(every);
        lua.set_global_hook(triggers, move |lua, _| {
            limit.look()?;
            let closely = lua.used_memory() > LARGE;
            // Set again each time: another coroutine may count by the other number.
            if closely || every != WATCH {
                limit.watch(lua, if closely { WATCH_CLOSELY } else { WATCH })?;
            }
            Ok(VmState::Continue)
        })
    }

    /// Microseconds of the machine's clock.
    fn passed(&self) -> i64 {
        i64::try_from(self.made.elapsed().as_micros()).unwrap_or(i64::MAX)
    }

    /// Fails when the time of the running script has passed.
    pub(super) fn look(&self) -> mlua::Result<()> {
        let server = locked(&self.server);
        let more = if server.outbox.is_some() { EXPLORED } else { 0 };
        if server.clock.now().micros >= self.stop_at.load(Ordering::Relaxed)
            || self.passed() >= self.stop_after.load(Ordering::Relaxed) + more
        {
            self.is_over.store(true, Ordering::Relaxed);
        }
        drop(server);
        self.not_over()
    }

    /// Fails once the running script was stopped, also if the clock was set back since.
    fn not_over(&self) -> mlua::Result<()> {
        match self.is_over.load(Ordering::Relaxed) {
            true => Err(raise(
                "ERR the script ran for more than 5 s and was stopped",
            )),
            false => Ok(()),
        }
    }
}

/// Returns the functions from which the prelude builds the sandbox.
fn host_functions(lua: &Lua, limit: &Limit, random: &Random) -> mlua::Result<Table> {
    let host = lua.create_table()?;
    let caller = Caller::new(limit);
    let call = caller.clone();
    host.set(
        "call",
        lua.create_function(move |lua, values| match call.call(&values)? {
            Ok(reply) => to_lua(lua, reply),
            Err(Failure(text)) => Err(mlua::Error::external(Raised(text.into_owned()))),
        })?,
    )?;
    host.set(
        "pcall",
        lua.create_function(move |lua, values| match caller.call(&values)? {
            Ok(reply) => to_lua(lua, reply),
            Err(Failure(text)) => to_lua(lua, Reply::Error(text.into_owned())),
        })?,
    )?;
    // Called where a script would catch an error. A stopped script catches none: it could go on in a loop around `pcall`.
    let limit = limit.clone();
    host.set(
        "caught",
        lua.create_function(move |lua, problem| {
            limit.not_over()?;
            tidy(lua, problem)
        })?,
    )?;
    host.set("locate", lua.create_function(locate)?)?;
    host.set("sha1hex", lua.create_function(sha1hex)?)?;
    host.set("status_reply", lua.create_function(status_reply)?)?;
    host.set("error_reply", lua.create_function(error_reply)?)?;
    host.set("log", lua.create_function(log)?)?;
    let (draw, seed) = (random.clone(), random.clone());
    host.set(
        "random",
        lua.create_function(move |_, (low, high)| draw.between(low, high))?,
    )?;
    host.set(
        "randomseed",
        lua.create_function(move |_, number: f64| {
            seed.seed(truncate(number));
            Ok(())
        })?,
    )?;
    Ok(host)
}

/// The runner of commands for `redis.call` and `redis.pcall`.
#[derive(Clone)]
struct Caller {
    limit: Limit,
    /// Reused by each call, to save allocations.
    request: Arc<Mutex<Request>>,
}

impl Caller {
    fn new(limit: &Limit) -> Self {
        Self {
            limit: limit.clone(),
            request: Arc::default(),
        }
    }

    /// Runs a command. Fails as a whole once the script was stopped: commands may be slow, and are few instructions.
    fn call(&self, values: &MultiValue) -> mlua::Result<Outcome> {
        self.limit.look()?;
        Ok(self.answer(values))
    }

    fn answer(&self, values: &MultiValue) -> Outcome {
        if values.is_empty() {
            return Err(Failure::new(
                "ERR Please specify at least one argument for this redis lib call",
            ));
        }
        let mut request = locked(&self.request);
        if !to_request(values, &mut request) {
            return Err(Failure::new(
                "ERR Lua redis lib command arguments must be strings or integers",
            ));
        }
        locked(&self.limit.server).call_from_script(request.args())
    }
}

/// Converts an error for a script: an error of `redis.call` to a table with its text, others unchanged.
fn tidy(lua: &Lua, problem: Value) -> mlua::Result<Value> {
    match &problem {
        Value::Error(error) => Ok(Value::Table(single(
            lua,
            "err",
            error_text(error).as_bytes(),
        )?)),
        _ => Ok(problem),
    }
}

fn error_text(error: &mlua::Error) -> String {
    match error.downcast_ref::<Raised>() {
        Some(Raised(text)) => text.clone(),
        None => {
            let text = root(error).to_string();
            let text = text.trim_start_matches("runtime error: ");
            format!("ERR {text}")
        }
    }
}

fn root(error: &mlua::Error) -> &mlua::Error {
    match error {
        mlua::Error::CallbackError { cause, .. } => root(cause),
        other => other,
    }
}

/// Converts the error that ends a script to a table with its text and the script's line.
fn locate(lua: &Lua, problem: Value) -> mlua::Result<Table> {
    let failure = match tidy(lua, problem)? {
        Value::Table(table) => table,
        other => {
            let text = format!("ERR {}", other.to_string()?);
            single(lua, "err", text.as_bytes())?
        }
    };
    // Level 0 is this function. C functions and the prelude lie above the script's own line.
    let mut level = 1;
    while let Some(line) = lua.inspect_stack(level, |frame| {
        let is_script = frame.source().source.as_deref() == Some(SCRIPT);
        is_script.then(|| frame.current_line()).flatten()
    }) {
        if let Some(line) = line {
            failure.raw_set("line", line)?;
            break;
        }
        level += 1;
    }
    Ok(failure)
}

fn one_string(values: &MultiValue) -> Option<LuaString> {
    match (values.len(), values.front()) {
        (1, Some(Value::String(text))) => Some(text.clone()),
        _ => None,
    }
}

fn sha1hex(_: &Lua, values: MultiValue) -> mlua::Result<String> {
    match (values.len(), values.front()) {
        (1, Some(Value::String(text))) => Ok(sha1_smol::Sha1::from(&*text.as_bytes())
            .digest()
            .to_string()),
        (1, Some(other)) => Ok(sha1_smol::Sha1::from(other.to_string()?)
            .digest()
            .to_string()),
        _ => Err(raise("ERR wrong number of arguments")),
    }
}

fn raise(text: &str) -> mlua::Error {
    mlua::Error::external(Raised(text.to_owned()))
}

fn status_reply(lua: &Lua, values: MultiValue) -> mlua::Result<Table> {
    match one_string(&values) {
        Some(text) => single(lua, "ok", &text.as_bytes()),
        None => single(lua, "err", b"ERR wrong number or type of arguments"),
    }
}

/// Returns an error with this text. A single word gets the code `ERR` in front.
fn error_reply(lua: &Lua, values: MultiValue) -> mlua::Result<Table> {
    let Some(text) = one_string(&values) else {
        return single(lua, "err", b"ERR wrong number or type of arguments");
    };
    let text = text.to_string_lossy();
    let text = text.strip_prefix('-').unwrap_or(&text);
    let text = text.trim_matches(['\r', '\n']);
    match text.contains(' ') {
        true => single(lua, "err", text.as_bytes()),
        false => single(lua, "err", format!("ERR {text}").as_bytes()),
    }
}

/// Checks the arguments of `redis.log` as Redis does, and does nothing else: there is no log file.
fn log(_: &Lua, values: MultiValue) -> mlua::Result<()> {
    if values.len() < 2 {
        return Err(raise("ERR redis.log() requires two arguments or more."));
    }
    match values.front() {
        Some(Value::Integer(0..=3)) => Ok(()),
        Some(Value::Integer(_)) => Err(raise("ERR Invalid debug level.")),
        _ => Err(raise("ERR First argument must be a number (log level).")),
    }
}

/// The generator behind `math.random`: the same numbers in every run, as in Redis (`lrand48`).
#[derive(Clone, Debug, Default)]
struct Random(Arc<AtomicU64>);

impl Random {
    fn seed(&self, seed: i64) {
        let low = u64::from_ne_bytes(seed.to_ne_bytes()) & 0xffff_ffff;
        self.0.store(low << 16 | 0x330e, Ordering::Relaxed);
    }

    /// Draws a number in `0.0..1.0`.
    fn draw(&self) -> f64 {
        let state = self.0.load(Ordering::Relaxed);
        let next = state.wrapping_mul(0x5_deec_e66d).wrapping_add(11) & 0xffff_ffff_ffff;
        self.0.store(next, Ordering::Relaxed);
        let limit = i32::MAX.unsigned_abs();
        let bits = u32::try_from(next >> 17).unwrap_or_default();
        f64::from(bits % limit) / f64::from(limit)
    }

    fn between(&self, low: Option<f64>, high: Option<f64>) -> mlua::Result<f64> {
        let drawn = self.draw();
        let (low, high) = match (low, high) {
            (None, _) => return Ok(drawn),
            (Some(high), None) => (1.0, high),
            (Some(low), Some(high)) => (low, high),
        };
        if low > high {
            return Err(mlua::Error::runtime(
                "bad argument to 'random' (interval is empty)",
            ));
        }
        Ok((drawn * (high - low + 1.0)).floor() + low)
    }
}
