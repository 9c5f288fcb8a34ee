//! Lists.

use super::{Context, DENY_OOM, Failure, Outcome, Spec, WRITE, int, positions};
use crate::keyspace::number::parse_int;
use crate::reply::Reply;
use crate::resp::Args;

pub(super) const COMMANDS: &[Spec] = &[
    Spec::new("rpush", -3, WRITE | DENY_OOM, |ctx, args| {
        push(ctx, args, End::Back)
    }),
    Spec::new("lpush", -3, WRITE | DENY_OOM, |ctx, args| {
        push(ctx, args, End::Front)
    }),
    Spec::new("lpop", -2, WRITE, |ctx, args| {
        pop(ctx, args, "lpop", End::Front)
    }),
    Spec::new("rpop", -2, WRITE, |ctx, args| {
        pop(ctx, args, "rpop", End::Back)
    }),
    Spec::new("lindex", 3, 0, lindex),
    Spec::new("linsert", 5, WRITE | DENY_OOM, linsert),
    Spec::new("lrem", 4, WRITE, lrem),
    Spec::new("lrange", 4, 0, lrange),
    Spec::new("llen", 2, 0, llen),
];

#[derive(Clone, Copy)]
enum End {
    Front,
    Back,
}

fn push(ctx: &mut Context<'_>, args: Args<'_>, end: End) -> Outcome {
    let list = ctx.keyspace().list_or_new(&args[1])?;
    for element in args.skip(2).iter() {
        match end {
            End::Front => list.push_front(element.to_vec()),
            End::Back => list.push_back(element.to_vec()),
        }
    }
    Ok(Reply::count(list.len()))
}

fn pop(ctx: &mut Context<'_>, args: Args<'_>, name: &str, end: End) -> Outcome {
    if args.len() > 3 {
        return Err(Failure::arity(name));
    }
    let count = match args.get(2) {
        None => None,
        Some(text) => Some(
            parse_int(text)
                .and_then(|n| usize::try_from(n).ok())
                .ok_or_else(|| Failure::new("ERR value is out of range, must be positive"))?,
        ),
    };
    let keyspace = ctx.keyspace();
    let Some(list) = keyspace.list_mut(&args[1])? else {
        return Ok(match count {
            None => Reply::Nil,
            Some(_) => Reply::NilArray,
        });
    };
    let wanted = count.unwrap_or(1).min(list.len());
    let mut popped: Vec<Reply> = Vec::with_capacity(wanted);
    for _ in 0..wanted {
        let element = match end {
            End::Front => list.pop_front(),
            End::Back => list.pop_back(),
        };
        popped.extend(element.map(Reply::Bulk));
    }
    keyspace.remove_if_empty(&args[1]);
    Ok(match count {
        Some(_) => Reply::Array(popped),
        None => popped.pop().unwrap_or(Reply::Nil),
    })
}

fn lindex(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let Some(list) = ctx.keyspace().list(&args[1])? else {
        return Ok(Reply::Nil);
    };
    let at = int(&args[2])?;
    let element = positions(at, at, list.len())
        .filter(|_| at >= 0 || at.unsigned_abs() <= list.len() as u64)
        .and_then(|range| list.get(range.start));
    Ok(element.map_or(Reply::Nil, Reply::bulk))
}

fn linsert(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let behind = match args[2].to_ascii_lowercase().as_slice() {
        b"before" => 0,
        b"after" => 1,
        _ => return Err(Failure::syntax()),
    };
    let Some(list) = ctx.keyspace().list_mut(&args[1])? else {
        return Ok(Reply::Int(0));
    };
    let Some(at) = list.iter().position(|element| *element == args[3]) else {
        return Ok(Reply::Int(-1));
    };
    list.insert(at + behind, args[4].to_vec());
    Ok(Reply::count(list.len()))
}

fn lrem(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let count = int(&args[2])?;
    let keyspace = ctx.keyspace();
    let Some(list) = keyspace.list_mut(&args[1])? else {
        return Ok(Reply::Int(0));
    };
    let limit = match count {
        0 => usize::MAX,
        _ => usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX),
    };
    let mut removed = 0;
    while removed < limit {
        let found = match count < 0 {
            true => list.iter().rposition(|element| *element == args[3]),
            false => list.iter().position(|element| *element == args[3]),
        };
        let Some(at) = found else { break };
        list.remove(at);
        removed += 1;
    }
    keyspace.remove_if_empty(&args[1]);
    Ok(Reply::count(removed))
}

fn lrange(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (start, stop) = (int(&args[2])?, int(&args[3])?);
    let Some(list) = ctx.keyspace().list(&args[1])? else {
        return Ok(Reply::Array(Vec::new()));
    };
    let range = positions(start, stop, list.len()).unwrap_or(0..0);
    Ok(Reply::Array(list.range(range).map(Reply::bulk).collect()))
}

fn llen(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let list = ctx.keyspace().list(&args[1])?;
    Ok(Reply::count(list.map_or(0, |list| list.len())))
}
