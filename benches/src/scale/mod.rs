//! Costs as a number grows, in parts that do not depend on the speed of the network: commands, CPU time and bytes.
//!
//! The number is that of the held locks of one process, of the clients of one server, or of the names with a waiting client.

mod clients;
mod free;
mod held;
mod names;

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use stanchion::{Background, Client, ClientConfig};
use stanchion_testkit::RedisServer;

use crate::chart::{Chart, Scale, Series, Shape};
use crate::measure::{Plan, Spread};
use crate::report::{Report, Target};
use crate::watchdog::cpu_time;

pub(crate) fn measure(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    free::measure(server, plan, report)?;
    server.flush();
    held::measure(server, plan, report)?;
    server.flush();
    clients::measure(server, plan, report)?;
    server.flush();
    names::measure(server, plan, report)
}

/// The length of one measurement: a renewal interval of the default lease, in which each hold is renewed once.
fn span(plan: Plan) -> Duration {
    plan.run * 5
}

/// A client without a thread of its own: a thread for each of 1000 clients would measure the scheduler.
async fn connect(url: &str) -> Result<Client> {
    let config = ClientConfig::new(url).background(Background::CurrentRuntime);
    Ok(Client::connect_with(config).await?)
}

/// CPU time and commands since a moment.
struct Meter<'a> {
    server: &'a RedisServer,
    began: Instant,
    client: Duration,
    spent: Duration,
}

/// The readings of a meter.
#[derive(Clone, Copy, Debug)]
struct Readings {
    seconds: f64,
    /// CPU time of the server's process and of this one, in seconds.
    server: f64,
    client: f64,
    /// Scripts and subscriptions.
    requests: f64,
    /// Renewed leases, if no other script sets one.
    renewals: f64,
    /// Checks of idle connections: `TIME` outside of scripts.
    checks: f64,
    /// Time in scripts by the server's count, in µs.
    script_micros: f64,
}

impl<'a> Meter<'a> {
    fn start(server: &'a RedisServer) -> Result<Self> {
        server.reset_stats();
        Ok(Self {
            server,
            began: Instant::now(),
            client: cpu_time(),
            spent: server_cpu(server)?,
        })
    }

    fn read(&self) -> Result<Readings> {
        let server = server_cpu(self.server)? - self.spent;
        let client = cpu_time() - self.client;
        let seconds = self.began.elapsed().as_secs_f64();
        let info = self.server.cli(&["INFO", "commandstats"]);
        let (mut requests, mut scripts, mut times) = (0.0, 0.0, 0.0);
        let (mut renewals, mut script_micros) = (0.0, 0.0);
        for line in info.as_text().lines() {
            let Some((name, fields)) = line
                .strip_prefix("cmdstat_")
                .and_then(|line| line.split_once(':'))
            else {
                continue;
            };
            let field = |name: &str| {
                let mut fields = fields.split(',');
                let value = fields.find_map(|field| field.strip_prefix(name)?.parse::<f64>().ok());
                value.with_context(|| format!("{name} is missing: {line}"))
            };
            let calls = field("calls=")?;
            match name {
                "evalsha" | "eval" => {
                    requests += calls;
                    scripts += calls;
                    script_micros += field("usec=")?;
                }
                "subscribe" | "unsubscribe" => requests += calls,
                "time" => times += calls,
                "pexpire" => renewals += calls,
                _ => {}
            }
        }
        Ok(Readings {
            seconds,
            server: server.as_secs_f64(),
            client: client.as_secs_f64(),
            requests,
            renewals,
            // A script reads the clock once.
            checks: (times - scripts).max(0.0),
            script_micros,
        })
    }
}

/// The CPU time of all threads of the server's process, from the scheduler's statistics, which count nanoseconds.
fn server_cpu(server: &RedisServer) -> Result<Duration> {
    let mut nanos = 0;
    for task in fs::read_dir(format!("/proc/{}/task", server.pid()))? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        let spent = text.split(' ').next().context("schedstat is empty")?;
        nanos += spent.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanos))
}

/// The server's own count of its memory.
fn server_memory(server: &RedisServer) -> Result<f64> {
    let bytes = server.info("memory", "used_memory").context("no memory")?;
    Ok(bytes.trim().parse()?)
}

/// A number with commas.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Two significant digits, with commas.
pub(crate) fn rounded(number: f64) -> String {
    let decade = 10f64.powf(number.log10().floor() - 1.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count"
    )]
    let whole = ((number / decade).round() * decade).round() as usize;
    grouped(whole)
}

/// Bytes for each of `count`; nothing for so few that the server's own memory decides.
fn bytes_each(bytes: f64, count: usize, what: &str) -> String {
    if count < 1000 {
        return String::new();
    }
    format!("; {bytes:.0} bytes for {what}")
}

/// Adds a row without a target.
fn shown(report: &mut Report, what: String, value: f64, note: String) {
    report.row("scale", what, Spread::one(value), Target::None, note);
}

/// A line for each name, along the sizes.
fn chart(
    file: &str,
    title: &str,
    along: &str,
    sizes: &[usize],
    series: Vec<Series>,
    source: String,
) -> Chart {
    Chart {
        file: file.into(),
        title: title.into(),
        unit: "% of a core".into(),
        along: along.into(),
        categories: sizes.iter().map(usize::to_string).collect(),
        series,
        scale: Scale::Log,
        shape: Shape::Lines,
        source,
    }
}

#[test]
fn numbers_have_commas() {
    let texts = [7, 999, 1000, 100_000, 1_234_567].map(grouped);
    assert_eq!(texts, ["7", "999", "1,000", "100,000", "1,234,567"]);
}
