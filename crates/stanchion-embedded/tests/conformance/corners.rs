//! The corners of scripting, one by one: conversions, errors, the sandbox.

use super::{Pair, real};
use stanchion_embedded::Engine;

/// Scripts that get `KEYS = {k1, k2}` and `ARGV = {a, 10, (empty), 0.5}`. `k1` is a hash, `k2` a string.
#[rustfmt::skip]
const CORNERS: &[&str] = &[
    // Replies.
    "return nil", "return false", "return true", "return 3.99", "return -3.99", "return 'text'", "return ''",
    "return {1, 2, nil, 4}", "return {1, {2, 'x', {}}, false, true}", "return {}", "return {ok = 'fine'}",
    "return {err = 'CODE my words'}", "return {err = 'oneword'}", "return {ok = 'a\\r\\nb'}", "return 1e15",
    "return 2^53", "return {a = 1}", "return function() end", "return 1, 2", "return", "return {err = 5}",
    "return {[1] = 'x', ok = 'y'}", "return '\\0\\r\\n\\255'", "return redis.status_reply('S')",
    "return redis.error_reply('E')", "return redis.error_reply('MY words')", "return redis.error_reply('-MY words')",
    "return redis.error_reply()", "return redis.error_reply(1)", "return redis.status_reply()",
    "return redis.sha1hex('')", "return redis.sha1hex(1)", "return redis.sha1hex()",
    "return {redis.error_reply('A b'), 1}", "return 1/0 > 0", "return -0.5", "return {1.9, -1.9}",
    // Arguments.
    "return {KEYS[1], KEYS[2], KEYS[3], 'hidden'}", "return #KEYS * 100 + #ARGV", "return ARGV[4] + 1",
    "redis.call('SET', KEYS[2], 1.5) return redis.call('GET', KEYS[2])",
    "redis.call('SET', KEYS[2], 10) return redis.call('GET', KEYS[2])",
    "redis.call('SET', KEYS[2], 0.1) return redis.call('GET', KEYS[2])",
    "redis.call('SET', KEYS[2], 2^53) return redis.call('GET', KEYS[2])",
    "redis.call('SET', KEYS[2], 1e16) return redis.call('GET', KEYS[2])",
    "redis.call('SET', KEYS[2], 1e17) return redis.call('GET', KEYS[2])",
    "redis.call('SET', KEYS[2], 1e-7) return redis.call('GET', KEYS[2])",
    "redis.call('SET', KEYS[2], -0.0) return redis.call('GET', KEYS[2])",
    "redis.call('SET', KEYS[2], 1/0) return redis.call('GET', KEYS[2])",
    "redis.call('SET', KEYS[2], 123456789012.345) return redis.call('GET', KEYS[2])",
    "redis.call('SET', KEYS[2], '\\0x') return redis.call('GET', KEYS[2])", "return redis.call('SET', KEYS[2], nil)",
    "return redis.call('SET', KEYS[2], true)", "return redis.call()", "return redis.pcall()",
    "return redis.call('SET', KEYS[2], {})", "return redis.call(5)",
    // Replies of commands.
    "return redis.call('GET', 'missing')", "return type(redis.call('GET', 'missing'))",
    "return redis.call('SET', 'n', 1)", "return type(redis.call('SET', 'n', 1))",
    "return redis.call('SET', 'n', 1).ok", "return redis.call('HGETALL', KEYS[1])",
    "return redis.call('HMGET', KEYS[1], 'f', 'none')", "return type(redis.call('HLEN', KEYS[1]))",
    "redis.call('ZADD', 'z', 0.1, 'm') return redis.call('ZSCORE', 'z', 'm')",
    "redis.call('ZADD', 'z', 1, 'm') return redis.call('ZRANGE', 'z', 0, -1, 'WITHSCORES')",
    "redis.call('ZADD', 'z', 1, 'm') return redis.call('ZADD', 'z', 'INCR', 0.5, 'm')",
    "return redis.call('LPOP', 'missing', 2)", "return redis.call('TYPE', KEYS[1])",
    "return redis.call('TYPE', KEYS[1])['ok']", "return redis.call('EXISTS', KEYS[1], KEYS[2])",
    "return redis.call('PING')", "return redis.call('ECHO', 'x')", "return redis.call('publish', 'ch', 'm')",
    "return #redis.call('TIME')", "local t = redis.call('TIME') local u = redis.call('TIME') return t[1] == u[1]",
    "return redis.call('PTTL', 'missing')", "return redis.call('SELECT', 1)",
    "redis.call('SELECT', 1) return redis.call('GET', KEYS[2])",
    // The library `struct`.
    "return struct.pack('>i4', 5)", "return struct.pack('<I2', 258)", "return struct.pack('>h', -2)",
    "return struct.pack('bBhHlLTiI', -1, 255, -2, 65535, -3, 4, 5, -6, 7)", "return struct.pack('i16', -1)",
    "return struct.pack('!bi', 1, 2)", "return struct.pack('!4bl', 1, 2)", "return struct.pack('!2b i x d', 1, 2, 3)",
    "return struct.pack('s', 'ab')", "return struct.pack('c0', 'ab')", "return struct.pack('c1', 'ab')",
    "return pcall(struct.pack, 'c3', 'ab')", "return struct.pack('Bc0', 2, 'ab')", "return struct.pack('Bc0I', 2, 'ab', '7')",
    "return struct.pack('>d', 0.5)", "return struct.pack('<f', -1.5)", "return struct.pack('')",
    "return {struct.unpack('>i4h', struct.pack('>i4h', -5, 300))}", "return {struct.unpack('<I3b', '\\255\\255\\255\\200')}",
    "return {struct.unpack('s', 'ab\\0c')}", "return {struct.unpack('Bc0', '\\2abc')}", "return {struct.unpack('c2x', 'abc')}",
    "return {struct.unpack('!bi', struct.pack('!bi', 1, 2))}", "return {struct.unpack('b', 'abc', 3)}",
    "return {struct.unpack('fLc0', struct.pack('fLc0', 0.25, 3, 'xyz'))}", "return {struct.unpack('i16', struct.pack('i16', 9))}",
    "return tostring(struct.unpack('d', struct.pack('d', 0.1)))", "return tostring(struct.unpack('>f', struct.pack('>f', 0.1)))",
    "return struct.size('!bic3hd')", "return struct.size('>i4 h')", "return struct.size('')",
    "return pcall(struct.size, 's')", "return pcall(struct.size, 'c0')", "return pcall(struct.pack, 'i', 'x')",
    "return pcall(struct.pack, 'i33', 1)", "return pcall(struct.unpack, 'i', 'abc')", "return pcall(struct.unpack, 's', 'abc')",
    "return pcall(struct.unpack, 'c0', 'abc')", "return pcall(struct.pack, 'Z', 1)", "return pcall(struct.pack, '!3', 1)",
    "return pcall(struct.unpack, 'b', 'a', 0)", "return pcall(struct.pack, 'i99999999999', 1)", "struct.pack = 1",
    // Errors of commands.
    "return redis.call('GET', KEYS[1])", "redis.call('GET', KEYS[1])",
    "local x = 1\nreturn redis.call('GET', KEYS[1])", "return redis.pcall('GET', KEYS[1])",
    "return redis.pcall('GET', KEYS[1]).err", "return redis.call('NOSUCH')", "return redis.pcall('NOSUCH')",
    "return redis.call('GET')", "return redis.pcall('GET')", "return redis.call('INCR', KEYS[2])",
    "return redis.call('SUBSCRIBE', 'x')", "return redis.call('EVAL', 'return 1', 0)",
    "return redis.call('AUTH', 'x')", "return redis.call('CLIENT', 'ID')", "return redis.call('SCRIPT', 'FLUSH')",
    "return redis.call('CONFIG', 'GET', 'x')", "return redis.call('SET', KEYS[2], 'v', 'BAD')",
    "return redis.call('SELECT', 99)", "redis.call('SET', 'kept', 1) redis.call('GET', KEYS[1])",
    // Errors caught.
    "local ok, e = pcall(redis.call, 'GET', KEYS[1]) return {ok, type(e), e.err}",
    "local ok, e = pcall(function() return redis.call('GET', KEYS[1]) end) return e",
    "local ok, e = pcall(function() error('mine') end) return {ok, e}",
    "local ok, e = pcall(function() error({err = 'MY own'}) end) return e",
    "local ok, e = pcall(redis.call, 'GET', KEYS[1]) error(e)",
    "local ok, e = pcall(function() redis.call('INCR', KEYS[1]) end) return type(e) == 'table' and e or redis.error_reply(tostring(e))",
    "local ok, e = xpcall(function() redis.call('GET', KEYS[1]) end, function(e) return e.err end) return {ok, e}",
    "return {pcall(function(a, b) return a, b end, 1, 2)}",
    "local c = coroutine.create(function() redis.call('GET', KEYS[1]) end) local ok, e = coroutine.resume(c) return {ok, e.err}",
    "local c = coroutine.wrap(function() coroutine.yield(7) end) return c()",
    // Errors not caught.
    "error('boom')", "error('boom', 0)", "error({err = 'MY words'})", "error()", "error(nil)",
    "local a = nil; return a.b", "return 1 + nil", "return 1 + {}", "return #5", "nosuch()", "return nosuch",
    "x = 1", "function f() end", "redis = nil", "KEYS = {}", "redis.call = nil", "string.x = 1", "math.random = nil",
    "rawset(_G, 'x', 1)", "setmetatable(_G, {})", "_G.x = 1", "return _G.nosuch", "return redis.nosuch",
    "return tostring(redis.nosuch)", "KEYS[1] = 'changed' return KEYS[1]", "string.rep()", "return ('x'):rep(3)",
    "local s = 'x' return s.nosuch == nil", "assert(false)", "assert(nil, 'words')",
    "assert(false, {err = 'A table'})", "\n\n\nerror('line four')", "local function f() error('deep') end f()",
    "local function f() return redis.call('GET', KEYS[1]) end return f()", "local x = unpack(5) return x", "tonumber({})",
    "return tonumber('0x10')", "return tonumber('abc') == nil", "return tostring(1e15)", "return tostring(0.1)",
    "return tostring(12345678901234567890)", "table.concat({{}})", "for i = 1, 'x' do end",
    // What does not compile.
    "this is not lua", "return (", "return 'open", "x x", "local = 1", "", "  ", "-- a comment", "goto x",
    // Libraries.
    "math.randomseed(7) return math.random(1000000)",
    "math.randomseed(0) return {math.random(10), math.random(5, 9), math.random(100)}", "return math.floor(3.7)",
    "return math.huge > 1", "return string.format('%.0f', 1700000000123456)", "return string.format('%d', 3)",
    "return table.concat({1, 'a', 2.5}, ',')", "return string.match('a:b', '^(.*):')",
    "return select('#', 1, nil, 3)", "return next({}) == nil", "return {tostring(nil), tostring(true), type(print)}",
    "return os", "return io", "return require", "return dofile", "return loadfile", "return type(loadstring)",
    "return loadstring('return 5')()", "local f = loadstring('x = 1') return {pcall(f)}", "return type(debug)",
    "return package", "return getfenv", "return setfenv", "return newproxy", "return module", "return _VERSION",
    "return string.sub('00000' .. 42, -6)", "local t = {3, 1, 2} table.sort(t) return t",
    "return #string.rep('x', 100000)", "return string.gsub('hello', 'l', 'L')", "return '5' + 3", "return 10 .. ''",
    "return 7 % 3", "return math.max(1, 5) - math.min(2, 8)", "return redis.LOG_WARNING",
    "return redis.log(redis.LOG_DEBUG, 'x')", "return redis.log()", "return redis.log('x', 'y')",
    "return redis.log(9, 'x')", "return redis.REDIS_VERSION", "return redis.REDIS_VERSION_NUM",
    "return redis.replicate_commands()", "return type(_G.redis)", "return gcinfo() > 0",
    "local t = setmetatable({}, {__index = function() return 4 end}) return t.x", "return {ok = 1}",
    "return load(function() return nil end) ~= nil",
];

#[tokio::test]
async fn scripts_behave_the_same_in_every_corner() {
    let Some(server) = real() else { return };
    let engine = Engine::new();
    let mut wrong = Vec::new();
    for protocol in [2, 3] {
        let mut pair = Pair::new(&server, &engine).await;
        pair.fresh(protocol).await;
        for script in CORNERS {
            pair.both("FLUSHALL").await;
            pair.both("HSET k1 f v g w").await;
            pair.both("SET k2 text").await;
            let command = ["EVAL", script, "2", "k1", "k2", "a", "10", "", "0.5"];
            let command = command.map(|word| word.as_bytes().to_vec());
            let answers = pair.ask(&command).await;
            if !answers.agree {
                wrong.push(format!("{script}{answers}"));
            }
            let keys = pair.both("DBSIZE").await;
            assert!(keys.agree, "keys after {script}: {keys}");
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// `~` is a space in a word.
const COMMANDS: &str = "
    EVALSHA SHA 0 | SCRIPT EXISTS SHA x | SCRIPT LOAD return~1 | SCRIPT LOAD return~( | SCRIPT EXISTS SHA x |
    EVALSHA Upper 0 | EVALSHA short 0 | EVALSHA SHA x | EVALSHA SHA -1 |
    EVALSHA SHA 1 | EVAL return~1 2 a | EVAL return~1 | SCRIPT FLUSH SYNC | SCRIPT FLUSH x | SCRIPT FLUSH ASYNC x |
    SCRIPT EXISTS | SCRIPT LOAD | SCRIPT KILL | SCRIPT | EVALSHA SHA 0 | EVAL return~1 0 | EVALSHA SHA 0 | AUTH x |
    AUTH x y | HELLO 4 | HELLO x | HELLO 2 SETNAME | HELLO 2 AUTH x y | PING a b | CONFIG GET maxmemory | CONFIG GET |
    CONFIG NOSUCH | ROLE | WAIT 0 0 | CLIENT NO-EVICT ON | CLIENT NO-EVICT x | CLIENT SETNAME a~b | CLIENT SETNAME |
    CLIENT KILL 1.2.3.4:5 | CLIENT KILL ID 0 | CLIENT KILL ID 12345 | CLIENT PAUSE x | CLIENT PAUSE -1 |
    CLIENT PAUSE 1 x | CLIENT UNPAUSE | PUBSUB NOSUCH | PUBSUB SHARDNUMSUB c | PUBSUB NUMSUB | SUBSCRIBE ch | GET x |
    PING | PING hi | SUBSCRIBE ch ch2 | UNSUBSCRIBE ch2 | RESET | GET x
";

#[tokio::test]
async fn the_commands_about_scripts_answer_the_same() {
    let Some(server) = real() else { return };
    let engine = Engine::new();
    let mut pair = Pair::new(&server, &engine).await;
    pair.both("SCRIPT FLUSH").await;
    let sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"; // return 1
    for line in COMMANDS.split('|').map(str::trim) {
        let words = line
            .replace("SHA", sha)
            .replace("Upper", &sha.to_uppercase());
        let words = words.split(' ').map(|word| word.replace('~', " "));
        let bytes: Vec<_> = words.map(String::into_bytes).collect();
        let answers = pair.ask(&bytes).await;
        assert!(answers.agree, "{line}: {answers}");
        if line == "SUBSCRIBE ch ch2" {
            assert_eq!(pair.real.reply().await, pair.engine.reply().await);
        }
    }
}
