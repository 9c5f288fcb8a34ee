//! Random sequences of commands, outside and inside of scripts, then a dump of everything.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::replies::alike;
use super::wire::args;
use super::{Answers, Pair, differences, real};
use stanchion_embedded::Engine;

/// Commands with placeholders: K key, V value, F field, N integer, S score, L limit of a score range, C options
/// of EXPIRE, Z options of ZADD, O options of SET. Ends are X after (never compared with each other: the two
/// servers are not in the same millisecond), A at, P at once or never.
#[rustfmt::skip]
const TEMPLATES: &[&str] = &[
    "GET K", "GETRANGE K N N", "STRLEN K", "SET K V", "SET K V O", "SET K V O O", "SET K V PX X", "SET K V EX X GET", "SET K V PX P",
    "SET K V KEEPTTL", "SET K V GET NX", "DEL K", "DEL K K", "UNLINK K", "EXISTS K K", "TYPE K", "INCR K", "DECR K",
    "INCRBY K N", "DECRBY K N", "PEXPIRE K X", "PEXPIRE K X NX", "EXPIRE K X XX", "PEXPIREAT K A C",
    "PEXPIREAT K A C C", "PEXPIRE K P", "PEXPIREAT K N", "EXPIRE K P", "EXPIREAT K N", "PTTL K", "TTL K",
    "PEXPIRETIME K", "EXPIRETIME K", "PERSIST K", "HSET K F V", "HSET K F V F V", "HSET K F", "HGET K F",
    "HMGET K F F", "HDEL K F", "HDEL K F F", "HEXISTS K F", "HINCRBY K F N", "HLEN K", "HGETALL K", "HKEYS K",
    "HVALS K", "HRANDFIELD K 100", "HRANDFIELD K 100 WITHVALUES", "HRANDFIELD K 0", "HRANDFIELD K x", "HRANDFIELD K 9 V",
    "RPUSH K V", "LPUSH K V V", "LPOP K", "RPOP K", "LPOP K N", "RPOP K N", "LINDEX K N", "LREM K N V",
    "LINSERT K BEFORE V V", "LINSERT K after V V", "LINSERT K V V V",
    "LRANGE K N N", "LLEN K", "ZADD K S F", "ZADD K S F S F", "ZADD K Z S F", "ZADD K Z Z S F", "ZADD K Z S F S F",
    "ZREM K F", "ZREM K F F", "ZSCORE K F", "ZRANGE K N N", "ZRANGE K N N WITHSCORES", "ZRANGE K N N REV",
    "ZRANGE K L L BYSCORE", "ZRANGE K L L BYSCORE REV WITHSCORES", "ZRANGE K L L BYSCORE LIMIT N N",
    "ZRANGE K N N LIMIT N N", "ZRANGEBYSCORE K L L", "ZRANGEBYSCORE K L L WITHSCORES LIMIT N N",
    "ZRANGEBYSCORE K L L LIMIT N", "ZREMRANGEBYSCORE K L L", "ZCARD K", "ZRANK K F", "ZCOUNT K L L", "ZINCRBY K S F",
    "ZRANGEBYSCORE K L L REV", "DBSIZE", "FLUSHDB", "SELECT N", "SELECT 0", "ECHO V", "PING", "PING V", "NOSUCH V F",
    "GET", "GET K K", "HSET K", "EXPIRE K", "PUBLISH K V", "SPUBLISH K V", "WAIT 0 N", "PUBSUB NUMSUB K",
    "PUBSUB CHANNELS", "UNSUBSCRIBE K", "SUNSUBSCRIBE", "CONFIG SET nosuch V", "SCRIPT NOSUCH", "CLIENT NOSUCH",
    "CLIENT GETNAME", "CLIENT SETNAME V", "CLIENT KILL ID N", "SCAN x", "SCAN 0 COUNT 0", "SCAN 0 MATCH K",
    "SCAN 0 TYPE hash MATCH K COUNT 1000", "SCAN 0 NOSUCH V", "SCAN 0 MATCH", "EVALSHA V N", "EVAL V", "AUTH V",
    "SETNX K V", "SETEX K X V", "SETEX K P V", "PSETEX K X V", "PSETEX K P V", "GETSET K V", "GETDEL K", "MGET K K K", "MSET K V",
    "MSET K V K V", "MSET K V K", "APPEND K V", "HMSET K F V", "HMSET K F V F", "HSETNX K F V",
    "HELLO N", "HELLO V", "FLUSHALL V", "TYPE", "COMMAND V",
];

/// The words for a placeholder, one of which is empty for `V`.
fn choices(placeholder: char) -> &'static str {
    match placeholder {
        'K' => "k1 k2 k3",
        'V' => "a b 10 -3  9223372036854775807 3.5",
        'F' => "f g h i",
        'N' => "0 1 2 -1 -2 -100 100 x 1.5 9223372036854775807 -9223372036854775808",
        'P' => "0 -1 -100 x 9223372036854775807 -9223372036854775808",
        'A' => "4000000000000 4100000000000 4200000000000",
        'X' => "50000 100000 200000",
        'S' => "0 1 1.5 -2 0.1 3e10 inf -inf x nan 12345678901234567890",
        'L' => "0 1 (1 1.5 -inf +inf (3e10 x -2 (",
        'C' => "NX XX GT lt no",
        'Z' => "NX xx GT LT CH INCR",
        'O' => "NX XX GET KEEPTTL PXAT no",
        _ => "",
    }
}

/// Fills in a template: each placeholder takes the next number as its choice.
fn fill(template: &str, numbers: &[usize]) -> Vec<Vec<u8>> {
    let mut numbers = numbers.iter();
    let word = |word: &str| {
        let words = match word.as_bytes() {
            [one] => choices(char::from(*one)),
            _ => "",
        };
        let words: Vec<&str> = words.split(' ').collect();
        let text = match words[..] {
            [""] => word,
            _ => words[numbers.next().unwrap() % words.len()],
        };
        text.as_bytes().to_vec()
    };
    template.split(' ').map(word).collect()
}

/// A script that runs the command, and returns the type of its reply, too.
fn scripted(command: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let script = "local reply = redis.call(unpack(ARGV)) return {type(reply), reply}";
    let eval = ["EVAL", script, "0"].map(|word| word.as_bytes().to_vec());
    [&eval[..], command].concat()
}

/// Returns whether the two say the same. Replies about the time left may differ by the time between the two servers.
fn same(command: &[Vec<u8>], answers: &Answers) -> bool {
    if answers.agree {
        return true;
    }
    let number = |reply: &[u8]| -> Option<i64> {
        let reply = reply
            .strip_prefix(b"*2\r\n$6\r\nnumber\r\n")
            .unwrap_or(reply);
        let digits = reply.strip_prefix(b":")?.strip_suffix(b"\r\n")?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    };
    let name = String::from_utf8_lossy(&command[0]).to_ascii_uppercase();
    let is_time = name.ends_with("TTL") || name.ends_with("EXPIRETIME");
    match (is_time, number(&answers.real), number(&answers.engine)) {
        (true, Some(a), Some(b)) if a > 0 && b > 0 => (a - b).abs() < 1000,
        // A number of 2^63 from a script: the server's cast is not defined.
        (_, Some(i64::MIN), Some(i64::MAX)) => true,
        _ => false,
    }
}

async fn dump(pair: &mut Pair) -> Result<(), TestCaseError> {
    pair.both("SELECT 0").await;
    for key in ["k1", "k2", "k3"] {
        for read in [
            "TYPE K",
            "GET K",
            "HGETALL K",
            "LRANGE K 0 -1",
            "ZRANGE K 0 -1 WITHSCORES",
            "PTTL K",
        ] {
            let command = args(&read.replace('K', key));
            let answers = pair.ask(&command).await;
            prop_assert!(same(&command, &answers), "{read} of {key}: {answers}");
        }
    }
    Ok(())
}

#[test]
fn random_commands_have_the_same_replies_and_leave_the_same_data() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let Some(server) = real() else { return };
    let engine = Engine::new();
    let numbers = vec(0_usize..1000, 8);
    let steps = (0..TEMPLATES.len(), numbers, any::<bool>());
    let sequences = (2_u8..=3, vec(steps, 1..60));
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let run = |(protocol, sequence): (u8, Vec<(usize, Vec<usize>, bool)>)| {
        runtime.block_on(async {
            let mut pair = Pair::new(&server, &engine).await;
            pair.fresh(protocol).await;
            for (template, numbers, in_script) in &sequence {
                let command = fill(TEMPLATES[*template], numbers);
                // Valkey 9 runs WAIT in a script; Redis and the engine refuse it.
                let differs = command[0] == b"WAIT" || differences::known(&command);
                let in_script = *in_script && !differs;
                let mut answers = match in_script {
                    true => pair.ask(&scripted(&command)).await,
                    false => pair.ask(&command).await,
                };
                // The two do not refuse a command in a script with the same words.
                answers.agree |= in_script && alike(&answers.real, &answers.engine);
                // The greeting holds facts about the server, not about the command.
                let greets = answers.real.windows(6).any(|word| word == b"server");
                let said = command.join(&b' ').escape_ascii().to_string();
                prop_assert!(
                    command[0] == b"HELLO" && greets || same(&command, &answers),
                    "{said}: {answers}"
                );
            }
            dump(&mut pair).await
        })
    };
    TestRunner::new(config).run(&sequences, run).unwrap();
}

#[tokio::test]
async fn every_condition_of_expire_meets_every_end() {
    let Some(server) = real() else { return };
    let mut pair = Pair::new(&server, &Engine::new()).await;
    pair.fresh(2).await;
    let conditions = [
        "", "NX", "XX", "GT", "LT", "XX GT", "XX LT", "NX GT", "GT LT", "NX XX", "no",
    ];
    for old in ["", "4000000000000", "4100000000000", "4200000000000"] {
        for condition in conditions {
            for new in ["4100000000000", "1", "0", "-5", "9223372036854775807", "x"] {
                pair.both("SET k1 v").await;
                if !old.is_empty() {
                    pair.both(&format!("PEXPIREAT k1 {old}")).await;
                }
                let command = format!("PEXPIREAT k1 {new} {condition}");
                let answers = pair.both(&command).await;
                assert!(answers.agree, "{command} after {old}: {answers}");
                for read in ["PEXPIRETIME k1", "EXPIRETIME k1"] {
                    let answers = pair.both(read).await;
                    assert!(
                        answers.agree,
                        "{read} after {command} after {old}: {answers}"
                    );
                }
            }
        }
    }
}
