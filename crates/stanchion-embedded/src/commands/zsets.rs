//! Sorted sets: members and scores. Ranges are in the file next to this one.

use super::{Context, DENY_OOM, Failure, Outcome, Spec, WRITE, float};
use crate::keyspace::zset::Zset;
use crate::reply::Reply;
use crate::resp::Args;

pub(super) const COMMANDS: &[Spec] = &[
    Spec::new("zadd", -4, WRITE | DENY_OOM, zadd),
    Spec::new("zincrby", 4, WRITE | DENY_OOM, zincrby),
    Spec::new("zrem", -3, WRITE, zrem),
    Spec::new("zscore", 3, 0, zscore),
    Spec::new("zcard", 2, 0, zcard),
    Spec::new("zrank", 3, 0, zrank),
];

/// The options of `ZADD`.
#[derive(Clone, Copy, Default)]
struct AddOptions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
    ch: bool,
    incr: bool,
}

/// The effect of `ZADD` on one member.
enum Added {
    New(f64),
    Changed(f64),
    Same(f64),
    Refused,
}

impl AddOptions {
    /// Parses the options. Returns them with the index of the first score.
    fn parse(args: Args<'_>) -> Outcome<(Self, usize)> {
        let mut on = Self::default();
        let mut at = 2;
        while at < args.len() {
            match args[at].to_ascii_uppercase().as_slice() {
                b"NX" => on.nx = true,
                b"XX" => on.xx = true,
                b"GT" => on.gt = true,
                b"LT" => on.lt = true,
                b"CH" => on.ch = true,
                b"INCR" => on.incr = true,
                _ => break,
            }
            at += 1;
        }
        let left = args.len() - at;
        if left == 0 || left % 2 == 1 {
            return Err(Failure::syntax());
        }
        if on.nx && on.xx {
            return Err(Failure::new(
                "ERR XX and NX options at the same time are not compatible",
            ));
        }
        if on.nx && (on.gt || on.lt) || on.gt && on.lt {
            return Err(Failure::new(
                "ERR GT, LT, and/or NX options at the same time are not compatible",
            ));
        }
        if on.incr && left > 2 {
            return Err(Failure::new(
                "ERR INCR option supports a single increment-element pair",
            ));
        }
        Ok((on, at))
    }

    fn apply(self, zset: &mut Zset, member: &[u8], score: f64) -> Outcome<Added> {
        let Some(old) = zset.score(member) else {
            if self.xx {
                return Ok(Added::Refused);
            }
            zset.set(member, score);
            return Ok(Added::New(score));
        };
        if self.nx {
            return Ok(Added::Refused);
        }
        let new = if self.incr { old + score } else { score };
        if new.is_nan() {
            return Err(Failure::new("ERR resulting score is not a number (NaN)"));
        }
        if self.gt && new <= old || self.lt && new >= old {
            return Ok(Added::Refused);
        }
        if new == old {
            return Ok(Added::Same(new));
        }
        zset.set(member, new);
        Ok(Added::Changed(new))
    }
}

fn zadd(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (options, first) = AddOptions::parse(args)?;
    add(ctx, args, options, first)
}

fn zincrby(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let options = AddOptions {
        incr: true,
        ..AddOptions::default()
    };
    add(ctx, args, options, 2)
}

/// Adds the pairs of score and member that start at argument `first`.
fn add(ctx: &mut Context<'_>, args: Args<'_>, options: AddOptions, first: usize) -> Outcome {
    let mut pairs = Vec::with_capacity((args.len() - first) / 2);
    for at in (first..args.len()).step_by(2) {
        pairs.push((float(&args[at])?, &args[at + 1]));
    }
    let keyspace = ctx.keyspace();
    let mut counted = 0;
    let mut last = Added::Refused;
    // With XX a key that does not exist is not created.
    if !options.xx || keyspace.zset(&args[1])?.is_some() {
        let zset = keyspace.zset_or_new(&args[1])?;
        for (score, member) in pairs {
            last = options.apply(zset, member, score)?;
            counted += match last {
                Added::New(_) => usize::from(!options.xx),
                Added::Changed(_) => usize::from(options.ch),
                Added::Same(_) | Added::Refused => 0,
            };
        }
        keyspace.remove_if_empty(&args[1]);
    }
    Ok(match (options.incr, last) {
        (false, _) => Reply::count(counted),
        (true, Added::Refused) => Reply::Nil,
        (true, Added::New(score) | Added::Changed(score) | Added::Same(score)) => {
            Reply::Double(score)
        }
    })
}

fn zrem(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let keyspace = ctx.keyspace();
    let Some(zset) = keyspace.zset_mut(&args[1])? else {
        return Ok(Reply::Int(0));
    };
    let removed = args.skip(2).iter().filter(|member| zset.remove(member));
    let removed = removed.count();
    keyspace.remove_if_empty(&args[1]);
    Ok(Reply::count(removed))
}

fn zscore(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let zset = ctx.keyspace().zset(&args[1])?;
    let score = zset.and_then(|zset| zset.score(&args[2]));
    Ok(score.map_or(Reply::Nil, Reply::Double))
}

fn zcard(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let zset = ctx.keyspace().zset(&args[1])?;
    Ok(Reply::count(zset.map_or(0, Zset::len)))
}

fn zrank(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let zset = ctx.keyspace().zset(&args[1])?;
    let rank = zset.and_then(|zset| zset.rank(&args[2]));
    Ok(rank.map_or(Reply::Nil, Reply::count))
}
