//! Runs scripts directly on the engine, in states and with refusals that clients rarely cause.
//!
//! A [`Desk`] replaces what a script finds around it: the subscribers of channels, and the commands that its user may not run.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use stanchion::embedded::{Engine, Reply};

/// Owners of two processes of stanchion's, and one of Redisson's.
pub const A: &str = "aaaaaaaa-0000-8000-8000-000000000000:1";
/// Another process.
pub const B: &str = "bbbbbbbb-0000-8000-8000-000000000000:1";
/// A third process.
pub const C: &str = "cccccccc-0000-8000-8000-000000000000:1";

/// Replaces `redis` for the script behind it. `@refused` and `@heard` are the fields of tables, `@full`: the server is at maxmemory, which
/// refuses a command that may need memory, unless the script has called another write before. `@moves`: the slot is moving away, and the
/// server refuses a command with a key that is missing.
const PRELUDE: &str = "local redis = (function(real, refused, heard, full, moves)
  local grows = ' SET HSET HINCRBY ZADD INCRBY DECRBY RPUSH LINSERT '
  local shrinks = ' DEL UNLINK HDEL ZREM PEXPIRE LPOP LREM '
  local function run(how, command, ...)
    if refused[command] then return { err = 'NOPERM no right to ' .. command } end
    local word = ' ' .. command .. ' '
    if moves and not string.find(' TIME PUBLISH SPUBLISH PUBSUB ', word, 1, true) then
      for i = 1, string.find(' EXISTS DEL UNLINK ', word, 1, true) and select('#', ...) or 1 do
        if real.call('EXISTS', (select(i, ...))) == 0 then
          return { err = 'ERR Script attempted to access a non local key in a cluster node' }
        end
      end
    end
    if full and string.find(grows, word, 1, true) then return { err = 'OOM command not allowed' } end
    if string.find(shrinks, word, 1, true) then full = false end
    if command == 'PUBLISH' or command == 'SPUBLISH' then
      local channel, message = ...
      real.call('RPUSH', 'messages', channel .. ' ' .. message)
      return heard[command .. ' ' .. channel] or 0
    end
    if command ~= 'PUBSUB' then return how(command, ...) end
    local counted, publish = {}, ... == 'SHARDNUMSUB' and 'SPUBLISH ' or 'PUBLISH '
    for i, channel in ipairs({ select(2, ...) }) do
      counted[2 * i - 1], counted[2 * i] = channel, heard[publish .. channel] or 0
    end
    return counted
  end
  local function call(...)
    local reply = run(real.call, ...)
    if type(reply) == 'table' and reply.err then error(reply) end
    return reply
  end
  return setmetatable({ call = call, pcall = function(...) return run(real.pcall, ...) end }, { __index = real })
end)(redis, { @refused }, { @heard }, @full, @moves) ";

/// Returns all keys with their contents and TTLs, as text, without the messages.
const DUMP: &str = "local out = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind, content = redis.call('TYPE', key).ok, nil
  if kind == 'hash' then content = redis.call('HGETALL', key)
  elseif kind == 'zset' then content = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif kind == 'list' then content = redis.call('LRANGE', key, 0, -1)
  else content = { redis.call('GET', key) } end
  if key ~= 'messages' then
    out[#out + 1] = key .. ' = ' .. table.concat(content, ' ') .. ', TTL ' .. redis.call('PTTL', key)
  end
end
table.sort(out)
return table.concat(out, '\\n')";

/// A script, and how a test calls it: the text, its keys, and the arguments.
pub type Run<'a> = (&'a str, &'a [&'a str], &'a [&'a str]);

/// Runs scripts.
#[derive(Debug)]
pub struct Desk {
    engine: Engine,
    refused: Vec<&'static str>,
    heard: BTreeMap<String, usize>,
    is_full: bool,
    moves: bool,
}

impl Default for Desk {
    fn default() -> Self {
        Self::new()
    }
}

impl Desk {
    /// An empty server in virtual time. Nothing is subscribed, and every command is permitted.
    #[must_use]
    pub fn new() -> Self {
        Self {
            engine: Engine::in_virtual_time(),
            refused: Vec::new(),
            heard: BTreeMap::new(),
            is_full: false,
            moves: false,
        }
    }

    /// Sets the commands that the user of the scripts has no right to.
    pub fn refuse(&mut self, commands: &[&'static str]) {
        self.refused = commands.to_vec();
    }

    /// Sets whether the server is at maxmemory.
    pub fn fill(&mut self, is_full: bool) {
        self.is_full = is_full;
    }

    /// Moves the slot away: from now on the server refuses to access a key that is missing. Real servers start a script only if all its keys
    /// exist.
    pub fn migrate(&mut self) {
        self.moves = true;
    }

    /// Sets the number of subscribers of a channel, for messages sent with `PUBLISH`.
    pub fn subscribe(&mut self, channel: &str, count: usize) {
        self.heard.insert(format!("PUBLISH {channel}"), count);
    }

    /// The same for `SPUBLISH`.
    pub fn subscribe_sharded(&mut self, channel: &str, count: usize) {
        self.heard.insert(format!("SPUBLISH {channel}"), count);
    }

    /// Runs a script. Returns its reply as text.
    pub fn run(&self, (script, keys, args): Run<'_>) -> String {
        let refused = self.refused.iter();
        let refused: String = refused.map(|it| format!("{it} = true, ")).collect();
        let heard: String = self.heard.iter().fold(String::new(), |mut text, (it, n)| {
            write!(text, "['{it}'] = {n}, ").unwrap();
            text
        });
        let prelude = PRELUDE.replace('\n', " ");
        let prelude = prelude
            .replace("@refused", &refused)
            .replace("@heard", &heard)
            .replace("@full", &self.is_full.to_string())
            .replace("@moves", &self.moves.to_string());
        let script = format!("{prelude}\n{script}");
        let count = keys.len().to_string();
        let mut command = vec!["EVAL", &script, &count];
        command.extend(keys);
        command.extend(args);
        text(&self.engine.execute(&command))
    }

    /// Runs a plain command. Returns its reply as text.
    pub fn command(&self, command: &[&str]) -> String {
        let reply = text(&self.engine.execute(command));
        assert!(!reply.starts_with("error"), "{command:?}: {reply}");
        reply
    }

    /// Adds entries to a queue of processes, with the arrivals 1, 2, …
    pub fn queue(&self, line: &str, entries: &[&str]) {
        for (n, entry) in entries.iter().enumerate() {
            self.command(&["ZADD", line, &(n + 1).to_string(), entry]);
        }
        self.command(&["PEXPIRE", line, "150000"]);
    }

    /// Returns the messages since the last call, each with its channel.
    pub fn messages(&self) -> Vec<String> {
        let all = self.engine.execute(&["LRANGE", "messages", "0", "-1"]);
        self.command(&["DEL", "messages"]);
        let Reply::Array(all) = all else {
            panic!("{all:?}")
        };
        all.iter().map(text).collect()
    }

    /// Returns all keys, with their contents and TTLs.
    #[must_use]
    pub fn keys(&self) -> String {
        self.command(&["EVAL", DUMP, "0"])
    }

    /// The server's time in µs. A script takes no time.
    #[must_use]
    pub fn now(&self) -> u64 {
        let script = "local t = redis.call('TIME') return t[1] * 1000000 + t[2]";
        self.command(&["EVAL", script, "0"]).parse().unwrap()
    }
}

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Int(n) => n.to_string(),
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Status(text) | Reply::Text(text) => text.clone(),
        Reply::Nil => "nil".to_owned(),
        Reply::Error(error) => format!("error {error}"),
        Reply::Array(items) => {
            let items: Vec<String> = items.iter().map(text).collect();
            format!("[{}]", items.join(" "))
        }
        Reply::Double(n) => n.to_string(),
        Reply::Map(pairs) => {
            let pairs: Vec<String> = pairs
                .iter()
                .map(|(field, value)| format!("{} {}", text(field), text(value)))
                .collect();
            format!("{{{}}}", pairs.join(" "))
        }
        other => panic!("{other:?}"),
    }
}
