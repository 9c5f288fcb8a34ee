//! `CLIENT TRACKING`: who is told of which write, and in which words.

use stanchion_embedded::Engine;

use crate::wire::{Wire, args};
use crate::{Pair, real};

/// Returns the pushes that have come until now, and the answer to a `PING` behind them.
async fn heard<S>(wire: &mut Wire<S>) -> Vec<String>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    wire.send(&args("PING")).await;
    let mut heard = Vec::new();
    while heard.last().is_none_or(|reply| reply != "+PONG\\r\\n") {
        let reply = wire.reply().await.expect("it is open");
        heard.push(reply.escape_ascii().to_string());
    }
    heard
}

/// The first word is the connection. Up to its `EXISTS k absent`, the connection `told` has read no key with tracking on.
const LINES: &str = "
    told CLIENT TRACKING; told CLIENT TRACKING x; told EXISTS k; other SET k 1; told CLIENT TRACKING ON;
    other SET k 2; told EXISTS k absent; other SET k 3; other SET k 4; other HSET absent f v;
    told HGET absent f; other HSET absent f w; told EXISTS k; other PEXPIRE k 100000; told EXISTS k;
    other DEL k; told EXISTS k; other DEL k; other HDEL k f; other PEXPIRE k 1000; other ZADD k 1 a;
    told ZCARD k; other ZADD k 2 b; told LLEN list; other RPUSH list a b; told LRANGE list 0 -1;
    other LPOP list; told GET own; told SET own 1; told GET own; told INCR own; told EXISTS a b c;
    other DEL a b c; other SET b 1; told EXISTS a b c; other DEL a b c; told EXISTS k; told SELECT 1;
    other FLUSHALL; told EXISTS k; other SET k 1; told EXISTS k; told CLIENT TRACKING OFF; other SET k 2;
    told CLIENT TRACKING ON; other SET k 3; told EVAL READ 1 k; other EVAL WRITE 1 k; other EVAL WRITE 1 k;
    told EVAL READ 1 k; other EVAL READ 1 k; other SET k 3; told EXISTS k; told RESET; other SET k 4
";

const READ: &str = "return redis.call('EXISTS', KEYS[1])";
const WRITE: &str = "redis.call('SET', KEYS[1], '1') redis.call('SET', KEYS[1], '2') return 1";

#[tokio::test]
async fn writes_are_reported_as_by_a_real_server() {
    let Some(server) = real() else { return };
    let engine = Engine::new();
    let mut told = Pair::new(&server, &engine).await;
    let mut other = Pair::new(&server, &engine).await;
    told.fresh(3).await;
    other.fresh(3).await;
    for line in LINES.split(';').map(str::trim) {
        let (who, command) = line.split_once(' ').unwrap();
        let pair = if who == "told" { &mut told } else { &mut other };
        let words = command.split(' ').map(|word| match word {
            "READ" => READ.into(),
            "WRITE" => WRITE.into(),
            word => word.into(),
        });
        let answers = pair.ask(&words.collect::<Vec<_>>()).await;
        assert!(answers.agree, "{line}: {answers}");
        let (real, engine) = (heard(&mut told.real).await, heard(&mut told.engine).await);
        assert_eq!(real, engine, "{line}");
    }
}
