//! Hashes.

use super::{Context, DENY_OOM, Failure, Outcome, Spec, WRITE, int};
use crate::keyspace::number::parse_int;
use crate::reply::Reply;
use crate::resp::Args;

pub(super) const COMMANDS: &[Spec] = &[
    Spec::new("hset", -4, WRITE | DENY_OOM, hset),
    Spec::new("hmset", -4, WRITE | DENY_OOM, hmset),
    Spec::new("hsetnx", 4, WRITE | DENY_OOM, hsetnx),
    Spec::new("hget", 3, 0, hget),
    Spec::new("hmget", -3, 0, hmget),
    Spec::new("hdel", -3, WRITE, hdel),
    Spec::new("hexists", 3, 0, hexists),
    Spec::new("hincrby", 4, WRITE | DENY_OOM, hincrby),
    Spec::new("hlen", 2, 0, hlen),
    Spec::new("hgetall", 2, 0, hgetall),
    Spec::new("hkeys", 2, 0, hkeys),
    Spec::new("hvals", 2, 0, hvals),
    Spec::new("hrandfield", -2, 0, hrandfield),
];

/// The most fields that `HRANDFIELD` repeats.
const MOST_REPEATED: usize = 1 << 20;

fn hset(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() % 2 == 1 {
        return Err(Failure::arity("hset"));
    }
    let hash = ctx.keyspace().hash_or_new(&args[1])?;
    let mut new = 0;
    for at in (2..args.len()).step_by(2) {
        new += usize::from(hash.set(&args[at], &args[at + 1]));
    }
    Ok(Reply::count(new))
}

fn hmset(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() % 2 == 1 {
        return Err(Failure::arity("hmset"));
    }
    hset(ctx, args).map(|_| Reply::ok())
}

fn hsetnx(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let hash = ctx.keyspace().hash_or_new(&args[1])?;
    let is_new = hash.get(&args[2]).is_none();
    if is_new {
        hash.set(&args[2], &args[3]);
    }
    Ok(Reply::flag(is_new))
}

fn hget(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let hash = ctx.keyspace().hash(&args[1])?;
    let value = hash.and_then(|hash| hash.get(&args[2]));
    Ok(value.map_or(Reply::Nil, Reply::bulk))
}

fn hmget(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let hash = ctx.keyspace().hash(&args[1])?;
    let value = |field| hash.and_then(|hash| hash.get(field));
    let values = args.skip(2).iter().map(value);
    Ok(Reply::Array(
        values
            .map(|value| value.map_or(Reply::Nil, Reply::bulk))
            .collect(),
    ))
}

fn hdel(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let keyspace = ctx.keyspace();
    let Some(hash) = keyspace.hash_mut(&args[1])? else {
        return Ok(Reply::Int(0));
    };
    let removed = args.skip(2).iter().filter(|field| hash.remove(field));
    let removed = removed.count();
    keyspace.remove_if_empty(&args[1]);
    Ok(Reply::count(removed))
}

fn hexists(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let hash = ctx.keyspace().hash(&args[1])?;
    Ok(Reply::flag(
        hash.is_some_and(|hash| hash.get(&args[2]).is_some()),
    ))
}

fn hincrby(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let by = int(&args[3])?;
    let keyspace = ctx.keyspace();
    let old = match keyspace.hash(&args[1])?.and_then(|hash| hash.get(&args[2])) {
        None => 0,
        Some(text) => {
            parse_int(text).ok_or_else(|| Failure::new("ERR hash value is not an integer"))?
        }
    };
    let new = old
        .checked_add(by)
        .ok_or_else(|| Failure::new("ERR increment or decrement would overflow"))?;
    let hash = keyspace.hash_or_new(&args[1])?;
    hash.set(&args[2], new.to_string().as_bytes());
    Ok(Reply::Int(new))
}

fn hlen(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let hash = ctx.keyspace().hash(&args[1])?;
    Ok(Reply::count(hash.map_or(0, |hash| hash.len())))
}

fn hgetall(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let hash = ctx.keyspace().hash(&args[1])?;
    let pairs = hash.into_iter().flat_map(|hash| hash.iter());
    Ok(Reply::Map(
        pairs
            .map(|(field, value)| (Reply::bulk(field), Reply::bulk(value)))
            .collect(),
    ))
}

fn hkeys(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let hash = ctx.keyspace().hash(&args[1])?;
    let pairs = hash.into_iter().flat_map(|hash| hash.iter());
    Ok(Reply::Array(
        pairs.map(|(field, _)| Reply::bulk(field)).collect(),
    ))
}

fn hvals(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let hash = ctx.keyspace().hash(&args[1])?;
    let pairs = hash.into_iter().flat_map(|hash| hash.iter());
    Ok(Reply::Array(
        pairs.map(|(_, value)| Reply::bulk(value)).collect(),
    ))
}

/// Returns random fields: distinct ones for a positive count, possibly repeated ones for a negative count.
fn hrandfield(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let with_values = args.len() > 3;
    if args.len() > 4 || (with_values && !args.is(3, "WITHVALUES")) {
        return Err(Failure::syntax());
    }
    let count = args.get(2).map(int).transpose()?;
    let mut seed = ctx.server.random();
    let resp3 = ctx.resp3();
    let Some(hash) = ctx.keyspace().hash(&args[1])? else {
        return Ok(count.map_or(Reply::Nil, |_| Reply::Array(Vec::new())));
    };
    let mut fields: Vec<_> = hash.iter().collect();
    let mut pick = |len: usize| {
        seed = scramble(seed);
        usize::try_from(seed % len.max(1) as u64).unwrap_or_default()
    };
    let Some(count) = count else {
        let at = pick(fields.len());
        return Ok(fields
            .get(at)
            .map_or(Reply::Nil, |(name, _)| Reply::bulk(name)));
    };
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    // Redis tries it, up to half of the 64-bit range.
    if count < 0 && wanted > MOST_REPEATED {
        return Err(Failure::new("ERR value is out of range"));
    }
    let chosen: Vec<_> = if count < 0 {
        (0..wanted).map(|_| fields[pick(fields.len())]).collect()
    } else {
        // A request for all fields gets them in their order.
        if wanted < fields.len() {
            for at in 0..wanted {
                let other = at + pick(fields.len() - at);
                fields.swap(at, other);
            }
        }
        fields.truncate(wanted);
        fields
    };
    let pair = |(name, value): (&[u8], &[u8])| match (with_values, resp3) {
        (false, _) => vec![Reply::bulk(name)],
        (true, false) => vec![Reply::bulk(name), Reply::bulk(value)],
        (true, true) => vec![Reply::Array(vec![Reply::bulk(name), Reply::bulk(value)])],
    };
    Ok(Reply::Array(chosen.into_iter().flat_map(pair).collect()))
}

/// Returns the next number of a pseudo-random sequence (splitmix64).
fn scramble(seed: u64) -> u64 {
    let mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
