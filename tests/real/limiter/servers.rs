//! Tests of limiters on a redis-server: the bytes of entries, real time, the cost of scripts, and a cluster.

mod neighbours;

use stanchion::limiter::Attempt;
use stanchion::{ClientConfig, RateLimiter};
use stanchion_testkit::{RedisServer, Value};
use stanchion_tests::{World, cluster};
use tokio::time::Instant;

use stanchion_tests::limiter::*;

fn server(world: &World) -> &RedisServer {
    match world {
        World::Server(server) => server,
        World::Engine(_) => panic!("the world is a server"),
    }
}

#[tokio::test]
async fn an_entry_has_redissons_bytes() {
    let Some(world) = World::server("an_entry_has_redissons_bytes") else {
        return;
    };
    let api = limiter(&world.client().await, "70000/m");
    let _ = granted(&api, 65_543).await;
    let entries = server(&world).cli(&["ZRANGE", LOG, "0", "-1"]);
    let [Value::Bulk(entry)] = entries.as_array() else {
        panic!("{entries:?}");
    };
    assert_eq!(
        (entry.len(), entry[0], &entry[1..5]),
        (21, 16, &b"stn0"[..])
    );
    assert_eq!(entry[17..], [7, 0, 1, 0]);
    // As Redisson unpacks it.
    let unpack =
        "local _, p = struct.unpack('Bc0I', redis.call('ZRANGE', KEYS[1], 0, 0)[1]); return p";
    assert_eq!(
        server(&world).cli(&["EVAL", unpack, "1", LOG]).as_int(),
        65_543
    );
    let config = server(&world).cli(&["HGETALL", NAME]).as_texts();
    let expected = [
        "rate",
        "70000",
        "interval",
        "60000",
        "type",
        "0",
        "keepAliveTime",
        "3600000",
    ];
    assert_eq!(config, expected);
    assert_eq!(world.admin(&["GET", VALUE]), "4457");
}

#[tokio::test]
async fn clients_never_exceed_the_quota_by_the_servers_clock() {
    let Some(world) = World::server("clients_never_exceed_the_quota") else {
        return;
    };
    let (started, record) = (Instant::now(), Record::default());
    let mut tasks = Vec::new();
    for client in world.fleet(4).await {
        for _ in 0..16 {
            let (api, record) = (limiter(&client, "50/500ms"), record.clone());
            tasks.push(tokio::spawn(async move {
                loop {
                    api.acquire().await.unwrap();
                    record.note(started, 1);
                }
            }));
        }
    }
    tokio::time::sleep(ms(4_000)).await;
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    // Judged by the scores in the log, which are times of the server's clock. Replies may be delayed.
    let total = record.total();
    assert!((350..=450).contains(&total), "{total} of 450");
    let scores = server(&world).cli(&["ZRANGE", LOG, "0", "-1", "WITHSCORES"]);
    let scores: Vec<i64> = scores
        .as_array()
        .chunks(2)
        .map(|pair| pair[1].as_text().parse().unwrap())
        .collect();
    for window in scores.windows(51) {
        assert!(window[50] - window[0] >= 500, "{window:?}");
    }
}

/// P11: a request removes expired entries in a bounded time, also after a pause.
#[tokio::test]
async fn ten_thousand_expired_entries_cost_a_bounded_time() {
    let Some(world) = World::server("ten_thousand_expired_entries") else {
        return;
    };
    let api = limiter(&world.client().await, "20000/1s");
    let _ = granted(&api, 1).await;
    let fill = "local t = redis.call('TIME') local ms = math.floor((t[1] * 1000000 + t[2]) / 1000) \
                for i = 1, 10000 do redis.call('ZADD', KEYS[2], ms, struct.pack('Bc0I', 16, string.format('%016d', i), 1)) end \
                return redis.call('DECRBY', KEYS[1], 10000)";
    let _ = server(&world)
        .cli(&["EVAL", fill, "2", VALUE, LOG])
        .as_int();
    tokio::time::sleep(ms(1_100)).await;
    // A run removes 512 entries, so 20 runs remove all 10001.
    let mut each = [0.0; 2];
    for (phase, each) in each.iter_mut().enumerate() {
        server(&world).reset_stats();
        for _ in 0..20 {
            let _ = granted(&api, 1).await;
        }
        let stats = server(&world)
            .info("commandstats", "cmdstat_evalsha")
            .unwrap();
        let micros = stats.split("usec_per_call=").nth(1).unwrap();
        *each = micros.split(',').next().unwrap().parse().unwrap();
        println!("phase {phase}: {each} usec a run");
    }
    // The measured times are in the page of the limiter. These limits are much larger, because the machine may be busy.
    assert!(each[0] < 10_000.0 && each[1] < 1_000.0, "{each:?} us");
    assert_eq!(server(&world).cli(&["ZCARD", LOG]).as_int(), 40);
    assert_eq!(world.admin(&["GET", VALUE]), "19960");
}

/// The log merges entries. A merged entry must not expire before its last permit.
#[tokio::test]
async fn a_long_interval_keeps_a_short_log() {
    let Some(world) = World::server("a_long_interval_keeps_a_short_log") else {
        return;
    };
    let api = limiter(&world.client().await, "1000000/1d");
    let _ = granted(&api, 1).await;
    // 100,000 entries of the last 22 h, as clients with other clocks leave them.
    let fill = "local t = redis.call('TIME') local ms = math.floor((t[1] * 1000000 + t[2]) / 1000) \
                for i = 1, 100000 do redis.call('ZADD', KEYS[2], ms - 80000000 + i * 799, struct.pack('Bc0I', 16, string.format('%016d', i), 1)) end \
                return redis.call('DECRBY', KEYS[1], 100000)";
    let _ = server(&world)
        .cli(&["EVAL", fill, "2", VALUE, LOG])
        .as_int();
    let before = free_at(&world);
    for _ in 0..3_000 {
        let _ = granted(&api, 1).await;
    }
    let entries = server(&world).cli(&["ZCARD", LOG]).as_int();
    println!("{entries} entries for 103001 permits");
    assert!(entries <= 1024 + 3_001, "{entries} entries");
    let status = api.status().await.unwrap();
    assert_eq!(status.free, 1_000_000 - 103_001);
    // At no time have more permits expired than without the merge: an entry expires with its last permit.
    for (at, ended) in free_at(&world) {
        let then = before
            .range(..=at)
            .next_back()
            .map_or(0, |(_, ended)| *ended);
        assert!(ended <= then + 3_001, "{ended} at {at}, {then} before");
    }
}

/// Returns for each score the number of permits that have expired one interval later.
fn free_at(world: &World) -> std::collections::BTreeMap<i64, u64> {
    let entries = server(world).cli(&["ZRANGE", LOG, "0", "-1", "WITHSCORES"]);
    let mut sum = 0;
    entries
        .as_array()
        .chunks(2)
        .map(|pair| {
            let Value::Bulk(entry) = &pair[0] else {
                panic!("{pair:?}");
            };
            sum += u64::from(u32::from_le_bytes(entry[17..].try_into().unwrap()));
            (pair[1].as_text().parse().unwrap(), sum)
        })
        .collect()
}

#[tokio::test]
async fn a_cluster_has_all_keys_of_a_name_in_one_slot() {
    let Some(cluster) = cluster() else { return };
    let client = stanchion::Client::connect_with(ClientConfig::new(cluster.url()))
        .await
        .unwrap();
    for name in ["api", "{tag}:api", "with space"] {
        let api = RateLimiter::new(&client, name, quota("2/s")).unwrap();
        let started = Instant::now();
        for _ in 0..5 {
            api.acquire().await.unwrap();
        }
        assert!(started.elapsed() >= ms(2_000));
        assert!(matches!(
            api.try_acquire_many(2).await.unwrap(),
            Attempt::Limited(_)
        ));
        assert!(api.danger().delete().await.unwrap());
    }
}
