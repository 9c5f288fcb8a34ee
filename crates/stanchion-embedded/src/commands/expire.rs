//! Expiry: set, read and remove the end of a key.

use super::{Context, Failure, Outcome, Spec, WRITE, int};
use crate::reply::Reply;
use crate::resp::Args;

pub(super) const COMMANDS: &[Spec] = &[
    Spec::new("expire", -3, WRITE, |ctx, args| expire(ctx, args, EXPIRE)),
    Spec::new("pexpire", -3, WRITE, |ctx, args| expire(ctx, args, PEXPIRE)),
    Spec::new("expireat", -3, WRITE, |ctx, args| {
        expire(ctx, args, EXPIREAT)
    }),
    Spec::new("pexpireat", -3, WRITE, |ctx, args| {
        expire(ctx, args, PEXPIREAT)
    }),
    Spec::new("ttl", 2, 0, |ctx, args| {
        Ok(left(ctx, args)?.map_or_else(|none| none, |ms| Reply::Int(seconds(ms))))
    }),
    Spec::new("pttl", 2, 0, |ctx, args| {
        Ok(left(ctx, args)?.map_or_else(|none| none, Reply::Int))
    }),
    Spec::new("expiretime", 2, 0, |ctx, args| {
        Ok(end(ctx, args).map_or_else(|none| none, |ms| Reply::Int(seconds(ms))))
    }),
    Spec::new("pexpiretime", 2, 0, |ctx, args| {
        Ok(end(ctx, args).map_or_else(|none| none, Reply::Int))
    }),
    Spec::new("persist", 2, WRITE, persist),
];

/// The unit and origin of a time given by a client.
#[derive(Clone, Copy)]
pub(super) struct TimeForm {
    pub(super) command: &'static str,
    pub(super) seconds: bool,
    pub(super) relative: bool,
}

const EXPIRE: TimeForm = TimeForm::new("expire", true, true);
const PEXPIRE: TimeForm = TimeForm::new("pexpire", false, true);
const EXPIREAT: TimeForm = TimeForm::new("expireat", true, false);
const PEXPIREAT: TimeForm = TimeForm::new("pexpireat", false, false);

impl TimeForm {
    pub(super) const fn new(command: &'static str, seconds: bool, relative: bool) -> Self {
        Self {
            command,
            seconds,
            relative,
        }
    }

    pub(super) fn invalid(self) -> Failure {
        Failure::new(format!(
            "ERR invalid expire time in '{}' command",
            self.command
        ))
    }

    /// Returns the instant in milliseconds since the epoch.
    pub(super) fn instant(self, number: i64, now_ms: i64) -> Outcome<i64> {
        let scale = if self.seconds { 1000 } else { 1 };
        let base = if self.relative { now_ms } else { 0 };
        number
            .checked_mul(scale)
            .and_then(|ms| ms.checked_add(base))
            .ok_or_else(|| self.invalid())
    }
}

/// The conditions `NX`, `XX`, `GT` and `LT`.
#[derive(Default)]
struct Conditions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl Conditions {
    fn parse(args: Args<'_>) -> Outcome<Self> {
        let mut on = Self::default();
        for word in args.iter() {
            match word.to_ascii_uppercase().as_slice() {
                b"NX" => on.nx = true,
                b"XX" => on.xx = true,
                b"GT" => on.gt = true,
                b"LT" => on.lt = true,
                _ => {
                    let word = String::from_utf8_lossy(word);
                    return Err(Failure::new(format!("ERR Unsupported option {word}")));
                }
            }
        }
        if on.nx && (on.xx || on.gt || on.lt) {
            return Err(Failure::new(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if on.gt && on.lt {
            return Err(Failure::new(
                "ERR GT and LT options at the same time are not compatible",
            ));
        }
        Ok(on)
    }

    /// Returns whether a key that ends at `old` may end at `new`. A key without an end counts as the latest.
    fn allow(&self, old: Option<i64>, new: i64) -> bool {
        !(self.nx && old.is_some()
            || self.xx && old.is_none()
            || self.gt && old.is_none_or(|old| new <= old)
            || self.lt && old.is_some_and(|old| new >= old))
    }
}

fn expire(ctx: &mut Context<'_>, args: Args<'_>, form: TimeForm) -> Outcome {
    let conditions = Conditions::parse(args.skip(3))?;
    let end = form.instant(int(&args[2])?, ctx.now.millis())?;
    let keyspace = ctx.keyspace();
    let now = keyspace.now_ms;
    let Some(entry) = keyspace.get_mut(&args[1]) else {
        return Ok(Reply::Int(0));
    };
    if !conditions.allow(entry.expire_at, end) {
        return Ok(Reply::Int(0));
    }
    if end <= now {
        keyspace.remove(&args[1]);
    } else {
        entry.expire_at = Some(end);
    }
    Ok(Reply::Int(1))
}

/// Returns the end of a key, or the reply for a key that has none (-1) or does not exist (-2).
fn end(ctx: &mut Context<'_>, args: Args<'_>) -> Result<i64, Reply> {
    match ctx.keyspace().get(&args[1]) {
        None => Err(Reply::Int(-2)),
        Some(entry) => entry.expire_at.ok_or(Reply::Int(-1)),
    }
}

/// Rounds to the nearest second, without overflow.
fn seconds(ms: i64) -> i64 {
    ms / 1000 + (ms % 1000 + 500) / 1000
}

fn left(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome<Result<i64, Reply>> {
    let now = ctx.now.millis();
    Ok(end(ctx, args).map(|end| (end - now).max(0)))
}

fn persist(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let entry = ctx.keyspace().get_mut(&args[1]);
    let ended = entry.and_then(|entry| entry.expire_at.take());
    Ok(Reply::flag(ended.is_some()))
}
