//! Strings and counters.

use super::expire::TimeForm;
use super::{Context, DENY_OOM, Failure, Outcome, Spec, WRITE, int};
use crate::keyspace::Value;
use crate::keyspace::number::parse_int;
use crate::reply::Reply;
use crate::resp::Args;

pub(super) const COMMANDS: &[Spec] = &[
    Spec::new("get", 2, 0, get),
    Spec::new("getrange", 4, 0, getrange),
    Spec::new("strlen", 2, 0, strlen),
    Spec::new("set", -3, WRITE | DENY_OOM, set),
    Spec::new("setnx", 3, WRITE | DENY_OOM, setnx),
    Spec::new("setex", 4, WRITE | DENY_OOM, |ctx, args| {
        setex(ctx, args, TimeForm::new("setex", true, true))
    }),
    Spec::new("psetex", 4, WRITE | DENY_OOM, |ctx, args| {
        setex(ctx, args, TimeForm::new("psetex", false, true))
    }),
    Spec::new("getset", 3, WRITE | DENY_OOM, getset),
    Spec::new("getdel", 2, WRITE, getdel),
    Spec::new("mget", -2, 0, mget),
    Spec::new("mset", -3, WRITE | DENY_OOM, mset),
    Spec::new("append", 3, WRITE | DENY_OOM, append),
    Spec::new("incr", 2, WRITE | DENY_OOM, |ctx, args| {
        add(ctx, &args[1], 1)
    }),
    Spec::new("decr", 2, WRITE | DENY_OOM, |ctx, args| {
        add(ctx, &args[1], -1)
    }),
    Spec::new("incrby", 3, WRITE | DENY_OOM, |ctx, args| {
        add(ctx, &args[1], int(&args[2])?)
    }),
    Spec::new("decrby", 3, WRITE | DENY_OOM, decrby),
];

fn get(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let value = ctx.keyspace().string(&args[1])?;
    Ok(value.map_or(Reply::Nil, Reply::bulk))
}

fn getrange(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (start, stop) = (int(&args[2])?, int(&args[3])?);
    let value = ctx
        .keyspace()
        .string(&args[1])?
        .map_or(&[][..], Vec::as_slice);
    let len = i64::try_from(value.len()).unwrap_or(i64::MAX);
    let backwards = start < 0 && stop < 0 && start > stop;
    let at = |n: i64| {
        if n < 0 {
            n.saturating_add(len).max(0)
        } else {
            n
        }
    };
    let (start, stop) = (at(start), at(stop).min(len - 1));
    if backwards || start > stop {
        return Ok(Reply::bulk(b""));
    }
    let index = |n: i64| usize::try_from(n).unwrap_or_default();
    Ok(Reply::bulk(&value[index(start)..=index(stop)]))
}

fn strlen(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let value = ctx.keyspace().string(&args[1])?;
    Ok(Reply::count(value.map_or(0, |value| value.len())))
}

fn decrby(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let by = int(&args[2])?
        .checked_neg()
        .ok_or_else(|| Failure::new("ERR decrement would overflow"))?;
    add(ctx, &args[1], by)
}

fn add(ctx: &mut Context<'_>, key: &[u8], by: i64) -> Outcome {
    let keyspace = ctx.keyspace();
    let old = match keyspace.string(key)? {
        None => 0,
        Some(text) => parse_int(text).ok_or_else(Failure::not_an_integer)?,
    };
    let new = old
        .checked_add(by)
        .ok_or_else(|| Failure::new("ERR increment or decrement would overflow"))?;
    *keyspace.string_or_new(key)? = new.to_string().into_bytes();
    Ok(Reply::Int(new))
}

/// The options of `SET`.
#[derive(Default)]
struct SetOptions {
    nx: bool,
    xx: bool,
    get: bool,
    keep_ttl: bool,
    end: Option<(TimeForm, i64)>,
}

impl SetOptions {
    fn parse(args: Args<'_>) -> Outcome<Self> {
        let mut options = Self::default();
        let mut at = 3;
        let mut time = None;
        while at < args.len() {
            match args[at].to_ascii_uppercase().as_slice() {
                b"NX" if !options.xx => options.nx = true,
                b"XX" if !options.nx => options.xx = true,
                b"GET" => options.get = true,
                b"KEEPTTL" if time.is_none() => options.keep_ttl = true,
                word @ (b"EX" | b"PX" | b"EXAT" | b"PXAT")
                    if time.is_none() && !options.keep_ttl && at + 1 < args.len() =>
                {
                    let seconds = word[0] == b'E';
                    let relative = word.len() == 2;
                    at += 1;
                    time = Some((TimeForm::new("set", seconds, relative), at));
                }
                _ => return Err(Failure::syntax()),
            }
            at += 1;
        }
        if let Some((form, at)) = time {
            let number = int(&args[at])?;
            if number <= 0 {
                return Err(form.invalid());
            }
            options.end = Some((form, number));
        }
        Ok(options)
    }
}

fn set(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let options = SetOptions::parse(args)?;
    let key = &args[1];
    let now = ctx.now.millis();
    let keyspace = ctx.keyspace();
    let end = match options.end {
        Some((form, number)) => Some(form.instant(number, now)?),
        None => None,
    };
    let old = match options.get {
        true => Some(keyspace.string(key)?.map_or(Reply::Nil, Reply::bulk)),
        false => None,
    };
    if options.nx || options.xx {
        let there = keyspace.contains(key);
        if there && options.nx || !there && options.xx {
            return Ok(old.unwrap_or(Reply::Nil));
        }
    }
    let end = match options.keep_ttl {
        true => keyspace.get(key).and_then(|entry| entry.expire_at),
        false => end,
    };
    keyspace.put(key, Value::Str(args[2].to_vec()), end);
    Ok(old.unwrap_or_else(Reply::ok))
}

fn setnx(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let keyspace = ctx.keyspace();
    let is_new = !keyspace.contains(&args[1]);
    if is_new {
        keyspace.put(&args[1], Value::Str(args[2].to_vec()), None);
    }
    Ok(Reply::flag(is_new))
}

fn setex(ctx: &mut Context<'_>, args: Args<'_>, form: TimeForm) -> Outcome {
    let number = int(&args[2])?;
    if number <= 0 {
        return Err(form.invalid());
    }
    let end = form.instant(number, ctx.now.millis())?;
    ctx.keyspace()
        .put(&args[1], Value::Str(args[3].to_vec()), Some(end));
    Ok(Reply::ok())
}

fn getset(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let old = get(ctx, args)?;
    ctx.keyspace()
        .put(&args[1], Value::Str(args[2].to_vec()), None);
    Ok(old)
}

fn getdel(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let old = get(ctx, args)?;
    ctx.keyspace().remove(&args[1]);
    Ok(old)
}

/// A key that holds something else counts as absent.
fn mget(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let keyspace = ctx.keyspace();
    let mut values = Vec::with_capacity(args.len() - 1);
    for key in args.skip(1).iter() {
        let value = keyspace.string(key).ok().flatten();
        values.push(value.map_or(Reply::Nil, Reply::bulk));
    }
    Ok(Reply::Array(values))
}

fn mset(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len().is_multiple_of(2) {
        return Err(Failure::arity("mset"));
    }
    let keyspace = ctx.keyspace();
    for at in (1..args.len()).step_by(2) {
        keyspace.put(&args[at], Value::Str(args[at + 1].to_vec()), None);
    }
    Ok(Reply::ok())
}

fn append(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let value = ctx.keyspace().string_or_new(&args[1])?;
    value.extend_from_slice(&args[2]);
    Ok(Reply::count(value.len()))
}
