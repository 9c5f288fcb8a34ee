//! `OBJECT ENCODING`, how Redis 7.0 would pack a value, and `MEMORY USAGE`. The engine packs nothing: the answers are for tests.

use super::{Context, Failure, Outcome, Spec};
use crate::keyspace::Value;
use crate::keyspace::number::parse_int;
use crate::reply::Reply;
use crate::resp::Args;

pub(super) const COMMANDS: &[Spec] = &[
    Spec::new("object", -2, 0, object),
    Spec::new("memory", -2, 0, memory),
];

/// Answers `MEMORY USAGE` with the bytes of the key and of its value, without the server's structures for finding them.
fn memory(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if !args.is(1, "USAGE") {
        return Err(Failure::unknown_subcommand("memory", &args[1]));
    }
    let sampled = args.len() == 5 && args.is(3, "SAMPLES");
    if args.len() != 3 && !sampled {
        return Err(match args.len() {
            2 => Failure::arity("memory|usage"),
            _ => Failure::syntax(),
        });
    }
    let Some(entry) = ctx.keyspace().get(&args[2]) else {
        return Ok(Reply::Nil);
    };
    let bytes: usize = match &entry.value {
        Value::Str(text) => text.len(),
        Value::List(items) => items.iter().map(Vec::len).sum(),
        Value::Hash(fields) => fields
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum(),
        Value::Zset(members) => members.iter().map(|(member, _)| member.len() + 8).sum(),
    };
    Ok(Reply::count(args[2].len() + bytes))
}

fn object(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if !args.is(1, "ENCODING") {
        return Err(Failure::unknown_subcommand("object", &args[1]));
    }
    if args.len() != 3 {
        return Err(Failure::arity("object|encoding"));
    }
    let limit = |name: &str, old: &str, otherwise: usize| {
        // Each limit has two names; a value that was set counts.
        let config = &ctx.server.config;
        let read = |name: &str| config.get(name).and_then(|text| text.parse().ok());
        let values = [read(name), read(old)];
        let changed = values.into_iter().flatten().find(|n| *n != otherwise);
        changed.unwrap_or(otherwise)
    };
    let hash = (
        limit("hash-max-listpack-entries", "hash-max-ziplist-entries", 512),
        limit("hash-max-listpack-value", "hash-max-ziplist-value", 64),
    );
    let zset = (
        limit("zset-max-listpack-entries", "zset-max-ziplist-entries", 128),
        limit("zset-max-listpack-value", "zset-max-ziplist-value", 64),
    );
    let Some(entry) = ctx.keyspace().get(&args[2]) else {
        return Ok(Reply::Nil);
    };
    let encoding = match &entry.value {
        Value::Str(text) if parse_int(text).is_some() => "int",
        Value::Str(text) if text.len() <= 44 => "embstr",
        Value::Str(_) => "raw",
        Value::List(_) => "quicklist",
        Value::Hash(fields) => {
            let is_short = |(name, value): (&[u8], &[u8])| name.len().max(value.len()) <= hash.1;
            match fields.len() <= hash.0 && fields.iter().all(is_short) {
                true => "listpack",
                false => "hashtable",
            }
        }
        Value::Zset(members) => {
            let is_short = members.iter().all(|(member, _)| member.len() <= zset.1);
            match members.len() <= zset.0 && is_short {
                true => "listpack",
                false => "skiplist",
            }
        }
    };
    Ok(Reply::bulk(encoding))
}
