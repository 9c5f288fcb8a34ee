//! Measures acquire and release pairs through redis-rs: `cargo run --release --example pairs`.

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, RedisConnectionInfo, RedisResult, Script};
use stanchion_embedded::Engine;

const PAIRS: u32 = 100_000;

const ACQUIRE: &str = "
    local call = redis.call
    local ttl = call('PTTL', KEYS[1])
    if ttl ~= -2 and not call('HGET', KEYS[1], ARGV[1]) then return {0, ttl} end
    local t = call('TIME')
    local now = t[1] * 1000000 + t[2]
    if now > ARGV[3] * 1000 + 999 then return {-2, now} end
    local token, text = now, t[1] .. string.sub('00000' .. t[2], -6)
    local last = call('SET', KEYS[2], text, 'GET')
    if last and last + 0 >= now then
      token = last + 1
      call('SET', KEYS[2], string.format('%.0f', token))
    end
    call('HSET', KEYS[1], ARGV[1], '1')
    if ttl == -2 or ttl < ARGV[2] + 0 then call('PEXPIRE', KEYS[1], ARGV[2]) end
    return {1, token, now}";

const RELEASE: &str = "
    if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then return {-1, 0, 0} end
    local p = redis.pcall('PUBLISH', ARGV[2], '0')
    return {1, 0, type(p) == 'number' and p or -1}";

#[tokio::main(flavor = "current_thread")]
async fn main() -> RedisResult<()> {
    let engine = Engine::new();
    let stream = engine.connect()?;
    let info = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
    let config = AsyncConnectionConfig::new();
    let (mut client, driver) =
        MultiplexedConnection::new_with_config(&info, stream, config).await?;
    tokio::spawn(driver);
    let (acquire, release) = (Script::new(ACQUIRE), Script::new(RELEASE));
    let start = tokio::time::Instant::now();
    for _ in 0..PAIRS {
        let taken: (i64, i64, i64) = acquire
            .key("{orders}")
            .key("fence:{orders}")
            .arg("owner:1")
            .arg(30_000)
            .arg(u32::MAX as u64 * 1000)
            .invoke_async(&mut client)
            .await?;
        assert_eq!(taken.0, 1);
        let freed: (i64, i64, i64) = release
            .key("{orders}")
            .arg("owner:1")
            .arg("channel:{orders}")
            .invoke_async(&mut client)
            .await?;
        assert_eq!(freed.0, 1);
    }
    let seconds = start.elapsed().as_secs_f64();
    #[expect(clippy::print_stdout, reason = "the figure is the point")]
    {
        println!("{:.0} pairs/s", f64::from(PAIRS) / seconds);
    }
    Ok(())
}
