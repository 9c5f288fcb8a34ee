//! Commands about the server as a whole: information and configuration.

use super::keys::glob;
use super::{Context, Failure, LOADING, NO_SCRIPT, Outcome, Spec, int, timeout};
use crate::reply::Reply;
use crate::resp::Args;
use crate::stats::Stats;

/// The version of Redis whose behaviour this engine has.
pub(super) const VERSION: &str = "7.0.15";

pub(super) const COMMANDS: &[Spec] = &[
    Spec::new("info", -1, LOADING, info),
    Spec::new("config", -2, NO_SCRIPT | LOADING, config),
    Spec::new("command", -1, LOADING, command),
    Spec::new("function", -2, NO_SCRIPT, function),
    Spec::new("role", 1, NO_SCRIPT | LOADING, role),
    Spec::new("wait", 3, NO_SCRIPT, wait),
];

fn info(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let uptime = (ctx.now.micros - ctx.server.started.micros) / 1_000_000;
    let used = ctx.server.memory();
    let server = &*ctx.server;
    let stats = server.stats();
    let loading = u8::from(server.switches.loading);
    let maxmemory = server.config.get("maxmemory").map_or("0", String::as_str);
    let role = match server.switches.read_only {
        true => "slave",
        false => "master",
    };
    let sections = [
        (
            "Server",
            format!(
                "redis_version:{VERSION}\r\nserver_name:stanchion\r\nredis_mode:standalone\r\nrun_id:{}\r\n\
                 tcp_port:0\r\nuptime_in_seconds:{uptime}\r\n",
                server.run_id
            ),
        ),
        (
            "Clients",
            format!("connected_clients:{}\r\n", stats.connections),
        ),
        (
            "Memory",
            format!(
                "used_memory:{used}\r\nmaxmemory:{maxmemory}\r\nmaxmemory_policy:noeviction\r\n"
            ),
        ),
        (
            "Persistence",
            format!("loading:{loading}\r\naof_enabled:0\r\n"),
        ),
        (
            "Stats",
            format!(
                "total_commands_processed:{}\r\npubsub_channels:{}\r\n",
                stats.commands,
                server.channels.channels().len()
            ),
        ),
        (
            "Replication",
            format!("role:{role}\r\nconnected_slaves:0\r\n"),
        ),
        ("Cluster", "cluster_enabled:0\r\n".to_owned()),
        ("Commandstats", command_stats(&stats)),
    ];
    let wanted = |name: &str| {
        let every = ["all", "default", "everything"];
        let is_default = name != "Commandstats";
        let is = |asked: &[u8], word: &str| asked.eq_ignore_ascii_case(word.as_bytes());
        let asks = |asked: &[u8]| {
            is(asked, name)
                || every
                    .iter()
                    .any(|e| is(asked, e) && (is_default || *e != "default"))
        };
        args.len() == 1 && is_default || args.skip(1).iter().any(asks)
    };
    let chosen = sections.into_iter().filter(|(name, _)| wanted(name));
    let text: Vec<_> = chosen
        .map(|(name, facts)| format!("# {name}\r\n{facts}"))
        .collect();
    Ok(Reply::Text(text.join("\r\n")))
}

/// Counts of the calls of each command. Times are not measured.
fn command_stats(stats: &Stats) -> String {
    let line = |(name, calls): (&String, &u64)| {
        format!(
            "cmdstat_{name}:calls={calls},usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=0\r\n"
        )
    };
    stats.by_command.iter().map(line).collect()
}

fn config(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let config = &mut ctx.server.config;
    if args.is(1, "GET") && args.len() > 2 {
        let asked = |name: &str| {
            args.skip(2)
                .iter()
                .any(|pattern| glob(&pattern.to_ascii_lowercase(), name.as_bytes()))
        };
        let found = config.iter().filter(|(name, _)| asked(name));
        let pairs = found.map(|(name, value)| (Reply::bulk(name), Reply::bulk(value)));
        return Ok(Reply::Map(pairs.collect()));
    }
    if args.is(1, "SET") && args.len() > 3 && args.len().is_multiple_of(2) {
        for at in (2..args.len()).step_by(2) {
            let name = String::from_utf8_lossy(&args[at]).to_ascii_lowercase();
            let Some(value) = config.get_mut(&name) else {
                return Err(Failure::new(format!(
                    "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
                )));
            };
            let given = String::from_utf8_lossy(&args[at + 1]).into_owned();
            *value = match name.as_str() {
                "maxmemory" => memory_value(&given)?,
                _ => given,
            };
        }
        ctx.server.apply_config();
        return Ok(Reply::ok());
    }
    if args.is(1, "RESETSTAT") && args.len() == 2 {
        return Ok(Reply::ok());
    }
    let subcommand = args[1].to_ascii_lowercase();
    match subcommand.as_slice() {
        b"get" | b"set" | b"resetstat" => {
            let name = String::from_utf8_lossy(&subcommand);
            Err(Failure::arity(&format!("config|{name}")))
        }
        _ => Err(Failure::unknown_subcommand("config", &args[1])),
    }
}

/// Returns a size in bytes, written as in Redis: `1000`, `100mb`, `1gb`.
fn memory_value(text: &str) -> Outcome<String> {
    let lower = text.to_ascii_lowercase();
    let end = lower
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(lower.len());
    let unit = match &lower[end..] {
        "" | "b" => Some(1),
        "k" => Some(1000),
        "kb" => Some(1024),
        "m" => Some(1_000_000),
        "mb" => Some(1024 * 1024),
        "g" => Some(1_000_000_000),
        "gb" => Some(1024 * 1024 * 1024),
        _ => None,
    };
    let bytes = lower[..end].parse::<u64>().ok().zip(unit);
    let bytes = bytes.and_then(|(number, unit)| number.checked_mul(unit));
    bytes.map(|bytes| bytes.to_string()).ok_or_else(|| {
        Failure::new(
            "ERR CONFIG SET failed (possibly related to argument 'maxmemory') - argument must be a memory value",
        )
    })
}

/// Answers `COMMAND` with an empty list: client libraries send it but do not need the answer.
fn command(_: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match args.get(1).map(<[u8]>::to_ascii_uppercase).as_deref() {
        None | Some(b"DOCS" | b"INFO" | b"LIST") => Ok(Reply::Array(Vec::new())),
        Some(b"COUNT") => Ok(Reply::count(super::count())),
        Some(_) => Err(Failure::unknown_subcommand("command", &args[1])),
    }
}

/// Answers `FUNCTION` as a server without functions does: they cannot be loaded.
fn function(_: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match args.get(1).map(<[u8]>::to_ascii_uppercase).as_deref() {
        Some(b"FLUSH") if args.len() <= 3 => Ok(Reply::ok()),
        Some(b"LIST") if args.len() == 2 => Ok(Reply::Array(Vec::new())),
        _ => Err(Failure::unknown_subcommand("function", &args[1])),
    }
}

fn role(_: &mut Context<'_>, _: Args<'_>) -> Outcome {
    Ok(Reply::Array(vec![
        Reply::bulk("master"),
        Reply::Int(0),
        Reply::Array(Vec::new()),
    ]))
}

/// Answers `WAIT` with 0: there are no replicas to acknowledge.
fn wait(_: &mut Context<'_>, args: Args<'_>) -> Outcome {
    int(&args[1])?;
    timeout(&args[2])?;
    Ok(Reply::Int(0))
}
