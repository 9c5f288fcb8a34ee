//! Tests a limiter that is shared with Redisson, with random programs on a redis-server. A script models Redisson; `interop` uses
//! Redisson itself.

use std::time::SystemTime;

use stanchion::limiter::{Attempt, Waiting};
use stanchion_testkit::{RedisServer, Value, cancel_after};
use stanchion_tests::World;

use stanchion_tests::limiter::*;

/// A model of Redisson's `tryAcquire`. KEYS: config, value, log. ARGV: permits, now, 16 bytes. Returns nil if granted, or the
/// milliseconds to wait.
const TRY: &str = "\
local c = redis.call('HMGET', KEYS[1], 'rate', 'interval', 'keepAliveTime')
local rate, interval, k, now = c[1] + 0, c[2] + 0, ARGV[1] + 0, ARGV[2] + 0
local value = redis.call('GET', KEYS[2])
local reply = false
if not value then
  redis.call('SET', KEYS[2], rate)
  value = rate
else
  local back = 0
  for _, entry in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], 0, now - interval)) do
    local _, permits = struct.unpack('Bc0I', entry)
    back = back + permits
  end
  if back > 0 then
    redis.call('ZREMRANGEBYSCORE', KEYS[3], 0, now - interval)
    value = value + back
    if value > rate then
      value = rate
      for _, entry in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
        local _, permits = struct.unpack('Bc0I', entry)
        value = value - permits
      end
    end
    redis.call('SET', KEYS[2], value)
  end
  if value + 0 < k then
    local first = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
    reply = 3 + interval - (now - first[2])
  end
end
if not reply then
  redis.call('ZADD', KEYS[3], ARGV[2], struct.pack('Bc0I', 16, ARGV[3], k))
  redis.call('DECRBY', KEYS[2], k)
end
local ttl = c[3] + 0
if ttl <= 0 then ttl = redis.call('PTTL', KEYS[1]) end
if ttl > 0 then for i = 1, 3 do redis.call('PEXPIRE', KEYS[i], ttl) end end
return reply";

fn now() -> i64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "Redisson reads the clock of its machine"
    )]
    let now = SystemTime::now();
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

/// Requests permits as Redisson does. Returns `None` if granted, or the milliseconds to wait.
fn try_as_redisson(server: &RedisServer, permits: u32, id: u64) -> Option<i64> {
    let (permits, now, id) = (permits.to_string(), now().to_string(), format!("{id:016}"));
    let command = ["EVAL", TRY, "3", NAME, VALUE, LOG, &permits, &now, &id];
    match server.cli(&command) {
        Value::Int(wait) => Some(wait),
        Value::Nil => None,
        other => panic!("{other:?}"),
    }
}

fn entries(server: &RedisServer) -> Vec<Entry> {
    let listed = server.cli(&["ZRANGE", LOG, "0", "-1", "WITHSCORES"]);
    let entry = |pair: &[Value]| {
        let Value::Bulk(entry) = &pair[0] else {
            panic!("{pair:?}");
        };
        let permits = u32::from_le_bytes(entry[17..].try_into().unwrap());
        let score = pair[1].as_text().parse().unwrap();
        (entry.clone(), score, i64::from(permits))
    };
    listed.as_array().chunks(2).map(entry).collect()
}

#[tokio::test]
async fn random_programs_with_redisson_never_exceed_the_quota() {
    for seed in 0..6_u64 {
        let Some(world) = World::server("random_programs_with_redisson") else {
            return;
        };
        let World::Server(server) = &world else {
            panic!("the world is a server");
        };
        let mut rng = fastrand::Rng::with_seed(seed);
        let (rate, interval) = (rng.u32(3..10), rng.u64(60..200));
        let share = [0, 30, 50, 90][rng.usize(0..4)];
        let waiting = if rng.bool() {
            Waiting::Booked { horizon: ms(1000) }
        } else {
            Waiting::Asked
        };
        let api = limiter(&world.client().await, &format!("{rate}/{interval}ms")).waiting(waiting);
        let _ = granted(&api, 1).await;
        let (mut seen, mut waiters) = (Seen::default(), Vec::new());
        let whole = i64::try_from(interval).unwrap();
        for step in 0..400 {
            let permits = if rng.u8(0..4) > 0 {
                1
            } else {
                rng.u32(1..=rate)
            };
            if rng.u8(0..100) < share {
                try_as_redisson(server, permits, seed * 100_000 + step);
            } else if rng.bool() {
                let attempt = api.try_acquire_many(permits).await.unwrap();
                if let Attempt::Granted(grant) = attempt
                    && rng.u8(0..5) == 0
                {
                    grant.refund().await.unwrap();
                }
            } else {
                let (api, polls) = (api.clone(), rng.usize(2..40));
                let given_up = rng.u8(0..5) == 0;
                waiters.push(tokio::spawn(async move {
                    if given_up {
                        cancel_after(api.acquire_many(permits), polls).await;
                    } else {
                        api.acquire_many(permits).await.unwrap();
                    }
                }));
                if waiters.len() > 8 {
                    waiters.remove(0).abort();
                }
            }
            tokio::time::sleep(ms(rng.u64(0..8))).await;
            seen.update(&entries(server), now(), whole);
        }
        for waiter in waiters {
            waiter.abort();
        }
        seen.check(i64::from(rate), whole);
    }
}
