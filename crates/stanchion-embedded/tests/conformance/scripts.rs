//! Scripts of the kinds that locks are made of, driven through random histories on both servers.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::{Pair, real};
use stanchion_embedded::Engine;

/// Each script, and its arguments behind the count of keys. In arguments, `?` stands for an owner.
const SCRIPTS: &[(&str, &str)] = &[
    // An exclusive lock that mints a token, which is left out of the reply: it is the time.
    (
        "local call = redis.call
         local ttl = call('PTTL', KEYS[1])
         if ttl ~= -2 and not call('HGET', KEYS[1], ARGV[1]) then return {0, ttl > 0} end
         local t = call('TIME')
         local now = t[1] * 1000000 + t[2]
         local token, text = now, t[1] .. string.sub('00000' .. t[2], -6)
         local last = call('SET', KEYS[2], text, 'GET')
         if last and last + 0 >= now then
           token = last + 1
           call('SET', KEYS[2], string.format('%.0f', token))
         end
         call('HSET', KEYS[1], ARGV[1], '1')
         if ttl == -2 or ttl < ARGV[2] + 0 then
           local e = redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
           if e ~= 1 then call('HDEL', KEYS[1], ARGV[1]) return e end
         end
         return {1, token >= now}",
        "2 lock fence ? 100000",
    ),
    (
        "if not redis.call('HGET', KEYS[1], ARGV[1]) then return {-1, 0} end
         redis.call('PEXPIRE', KEYS[1], ARGV[2], 'GT')
         redis.call('HSET', KEYS[1], ARGV[1], ARGV[3] + 1)
         return {1, ARGV[3] + 1}",
        "1 lock ? 200000 1",
    ),
    (
        "if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then return {-1, 0, 0} end
         local p = redis.pcall(ARGV[3], ARGV[2], '0')
         return {1, 0, type(p) == 'number' and p or -1}",
        "1 lock ? channel PUBLISH",
    ),
    (
        "local r = {} for i = 1, #KEYS do
           local h = redis.pcall('HEXISTS', KEYS[i], ARGV[1])
           if h == 1 then redis.pcall('PEXPIRE', KEYS[i], ARGV[2], 'GT') end
           r[i] = type(h) == 'number' and h or -1
         end return r",
        "3 lock fence rw ? 300000",
    ),
    // Readers and a writer in one hash.
    (
        "local m = redis.call('HMGET', KEYS[1], 'mode', ARGV[1])
         if m[1] == 'write' then return {0, redis.call('PTTL', KEYS[1]) > 0} end
         if m[1] then redis.call('HSET', KEYS[1], ARGV[1], 1)
         else redis.call('HSET', KEYS[1], 'mode', 'read', ARGV[1], 1) end
         redis.call('SET', KEYS[1] .. ':' .. ARGV[1], '1', 'PX', ARGV[2])
         redis.call('PEXPIRE', KEYS[1], ARGV[2])
         return {1, redis.call('HLEN', KEYS[1])}",
        "1 rw ? 100000",
    ),
    (
        "local had = redis.call('HDEL', KEYS[1], ARGV[1])
         redis.call('DEL', KEYS[1] .. ':' .. ARGV[1])
         if had == 0 then return {-1, 0} end
         if redis.call('HLEN', KEYS[1]) > 1 then
           local a, n = redis.call('HGETALL', KEYS[1]), 0
           for j = 1, #a, 2 do if a[j] ~= 'mode' then n = n + (tonumber(a[j + 1]) or 0) end end
           return {1, n}
         end
         redis.call('DEL', KEYS[1])
         return {1, 'free'}",
        "1 rw ?",
    ),
    // Permits with a deadline each.
    (
        "local free = (redis.call('GET', KEYS[1]) or 3) + 0
         if redis.call('ZSCORE', KEYS[2], ARGV[1]) then
           redis.call('ZREM', KEYS[2], '')
           redis.call('ZADD', KEYS[2], 'XX', 'GT', ARGV[2], ARGV[1])
           return {1, free, 'again'}
         end
         if free < 1 then
           local z = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
           return {0, z[1], math.max(z[2] - 1000, 0)}
         end
         redis.call('SET', KEYS[1], free - 1)
         redis.call('ZADD', KEYS[2], string.format('%.0f', 1700000000000 + ARGV[2]), ARGV[1])
         return {1, free - 1}",
        "2 free permits ? 5000",
    ),
    (
        "local ids = redis.call('ZRANGEBYSCORE', KEYS[2], 0, '(1700000006000', 'LIMIT', 0, 2)
         if #ids == 0 then return {0, 0} end
         redis.call('ZREM', KEYS[2], unpack(ids))
         return {redis.call('INCRBY', KEYS[1], #ids), ids}",
        "2 free permits",
    ),
    // A queue with deadlines.
    (
        "if redis.call('EXISTS', KEYS[1], KEYS[2]) == 2 then return redis.call('LLEN', KEYS[2]) end
         local new = redis.call('ZADD', KEYS[3], 10 + redis.call('ZCARD', KEYS[3]), ARGV[1]) == 1
         if new then redis.call('RPUSH', KEYS[2], ARGV[1]) end
         return {redis.call('LINDEX', KEYS[2], 0), new, redis.call('ZRANK', KEYS[3], ARGV[1])}",
        "3 lock queue deadlines ?",
    ),
    (
        "local h = redis.call('LPOP', KEYS[1])
         if not h then return redis.status_reply('EMPTY') end
         redis.call('ZREM', KEYS[2], h)
         return {h, redis.call('ZCOUNT', KEYS[2], '-inf', '+inf')}",
        "2 queue deadlines",
    ),
    (
        "local n = redis.call('LREM', KEYS[1], 1, ARGV[1])
         return {n, redis.call('ZREM', KEYS[2], ARGV[1]), redis.call('LRANGE', KEYS[1], 0, -1)}",
        "2 queue deadlines ?",
    ),
    // A script that stops half way: what it did stays.
    (
        "redis.call('HINCRBY', KEYS[1], ARGV[1], 1) return redis.call('INCR', KEYS[1])",
        "1 rw ?",
    ),
    // A latch.
    (
        "local v = redis.call('GET', KEYS[1])
         if not v then redis.call('SET', KEYS[1], 3, 'NX') return 3 end
         if v - 1 > 0 then return redis.call('DECR', KEYS[1]) end
         redis.call('DEL', KEYS[1])
         return {0, redis.pcall('SPUBLISH', ARGV[1], '0')}",
        "1 latch channel",
    ),
];

const KEYS: &[&str] = &[
    "lock",
    "rw",
    "free",
    "permits",
    "queue",
    "deadlines",
    "latch",
];

#[test]
fn histories_of_lock_scripts_give_the_same_replies_and_data() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let Some(server) = real() else { return };
    let engine = Engine::new();
    let history = vec((0..SCRIPTS.len(), 0..4_u8), 1..80);
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    TestRunner::new(config)
        .run(&history, |history| {
            runtime.block_on(async {
                let mut pair = Pair::new(&server, &engine).await;
                pair.fresh(2).await;
                for (script, owner) in history {
                    let (source, rest) = SCRIPTS[script];
                    let rest = rest.replace('?', &format!("owner:{owner}"));
                    let mut command = vec![b"EVAL".to_vec(), source.as_bytes().to_vec()];
                    command.extend(super::wire::args(&rest));
                    let answers = pair.ask(&command).await;
                    prop_assert!(answers.agree, "{source}: {answers}");
                }
                for key in KEYS {
                    for read in ["TYPE", "GET", "HGETALL"] {
                        let answers = pair.both(&format!("{read} {key}")).await;
                        prop_assert!(answers.agree, "{read} {key}: {answers}");
                    }
                    for read in ["LRANGE", "ZRANGE"] {
                        let answers = pair.both(&format!("{read} {key} 0 -1")).await;
                        prop_assert!(answers.agree, "{read} {key}: {answers}");
                    }
                }
                Ok(())
            })
        })
        .unwrap();
}
