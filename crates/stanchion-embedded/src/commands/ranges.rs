//! Ranges of sorted sets, by rank and by score.

use super::{Context, Failure, Outcome, Spec, WRITE, int, positions};
use crate::keyspace::number::parse_double;
use crate::keyspace::zset::{ScoreLimit, Zset};
use crate::reply::Reply;
use crate::resp::Args;

pub(super) const COMMANDS: &[Spec] = &[
    Spec::new("zrange", -4, 0, zrange),
    Spec::new("zrangebyscore", -4, 0, zrangebyscore),
    Spec::new("zremrangebyscore", 4, WRITE, zremrangebyscore),
    Spec::new("zcount", 4, 0, zcount),
];

/// The options after the two ends of a range.
#[derive(Default)]
struct RangeOptions {
    by_score: bool,
    reverse: bool,
    with_scores: bool,
    limit: Option<(i64, i64)>,
}

impl RangeOptions {
    fn parse(args: Args<'_>, by_score: bool) -> Outcome<Self> {
        let mut options = Self {
            by_score,
            ..Self::default()
        };
        let is_zrange = !by_score;
        let mut at = 4;
        while at < args.len() {
            if args.is(at, "WITHSCORES") {
                options.with_scores = true;
            } else if args.is(at, "LIMIT") && at + 2 < args.len() {
                options.limit = Some((int(&args[at + 1])?, int(&args[at + 2])?));
                at += 2;
            } else if is_zrange && args.is(at, "REV") {
                options.reverse = true;
            } else if is_zrange && args.is(at, "BYSCORE") {
                options.by_score = true;
            } else {
                return Err(Failure::syntax());
            }
            at += 1;
        }
        // A count of -1 means all, which counts as no limit.
        if options.limit.is_some_and(|(_, count)| count != -1) && !options.by_score {
            return Err(Failure::new(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        Ok(options)
    }
}

fn zrange(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let options = RangeOptions::parse(args, false)?;
    range(ctx, args, &options)
}

fn zrangebyscore(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let options = RangeOptions::parse(args, true)?;
    range(ctx, args, &options)
}

fn range(ctx: &mut Context<'_>, args: Args<'_>, options: &RangeOptions) -> Outcome {
    let resp3 = ctx.resp3();
    let found = if options.by_score {
        let (min, max) = match options.reverse {
            true => limits(&args[3], &args[2])?,
            false => limits(&args[2], &args[3])?,
        };
        match ctx.keyspace().zset(&args[1])? {
            None => Vec::new(),
            Some(zset) => by_score(zset, min, max, options),
        }
    } else {
        let (start, stop) = (int(&args[2])?, int(&args[3])?);
        match ctx.keyspace().zset(&args[1])? {
            None => Vec::new(),
            Some(zset) => by_rank(zset, start, stop, options),
        }
    };
    Ok(render(found, options, resp3))
}

fn by_rank<'a>(
    zset: &'a Zset,
    start: i64,
    stop: i64,
    options: &RangeOptions,
) -> Vec<(&'a [u8], f64)> {
    let wanted = positions(start, stop, zset.len()).unwrap_or(0..0);
    let (skip, take) = (wanted.start, wanted.len());
    match options.reverse {
        true => zset.iter().rev().skip(skip).take(take).collect(),
        false => zset.iter().skip(skip).take(take).collect(),
    }
}

fn by_score<'a>(
    zset: &'a Zset,
    min: ScoreLimit,
    max: ScoreLimit,
    options: &RangeOptions,
) -> Vec<(&'a [u8], f64)> {
    let (offset, count) = options.limit.unwrap_or((0, -1));
    let Ok(skip) = usize::try_from(offset) else {
        return Vec::new();
    };
    // A negative count means all.
    let take = usize::try_from(count).unwrap_or(usize::MAX);
    if options.reverse {
        let all: Vec<_> = zset.between(min, max).collect();
        all.into_iter().rev().skip(skip).take(take).collect()
    } else {
        zset.between(min, max).skip(skip).take(take).collect()
    }
}

fn render(found: Vec<(&[u8], f64)>, options: &RangeOptions, resp3: bool) -> Reply {
    let mut items = Vec::with_capacity(found.len());
    for (member, score) in found {
        match (options.with_scores, resp3) {
            (false, _) => items.push(Reply::bulk(member)),
            (true, false) => items.extend([Reply::bulk(member), Reply::Double(score)]),
            (true, true) => items.push(Reply::Array(vec![
                Reply::bulk(member),
                Reply::Double(score),
            ])),
        }
    }
    Reply::Array(items)
}

fn zremrangebyscore(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (min, max) = limits(&args[2], &args[3])?;
    let keyspace = ctx.keyspace();
    let Some(zset) = keyspace.zset_mut(&args[1])? else {
        return Ok(Reply::Int(0));
    };
    let doomed: Vec<_> = zset.between(min, max).map(|(m, _)| m.to_vec()).collect();
    for member in &doomed {
        zset.remove(member);
    }
    keyspace.remove_if_empty(&args[1]);
    Ok(Reply::count(doomed.len()))
}

fn zcount(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (min, max) = limits(&args[2], &args[3])?;
    let zset = ctx.keyspace().zset(&args[1])?;
    Ok(Reply::count(
        zset.map_or(0, |zset| zset.between(min, max).count()),
    ))
}

fn limits(min: &[u8], max: &[u8]) -> Outcome<(ScoreLimit, ScoreLimit)> {
    Ok((limit(min)?, limit(max)?))
}

fn limit(text: &[u8]) -> Outcome<ScoreLimit> {
    let (exclusive, number) = match text {
        [b'(', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    // An empty text is zero here, as for strtod.
    let score = match number {
        [] => Some(0.0),
        _ => parse_double(number),
    };
    let score = score.ok_or_else(|| Failure::new("ERR min or max is not a float"))?;
    Ok(ScoreLimit { score, exclusive })
}
