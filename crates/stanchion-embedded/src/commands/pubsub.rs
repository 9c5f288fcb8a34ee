//! Channels: publish, subscribe, inspect.

use super::keys::glob;
use super::{Context, Failure, LOADING, NO_SCRIPT, Outcome, REPLICATED, Run, Spec};
use crate::reply::Reply;
use crate::resp::Args;
use crate::server::ADMIN;
use crate::server::pubsub::Family;

pub(super) const COMMANDS: &[Spec] = &[
    Spec::new("publish", 3, LOADING | REPLICATED, |ctx, args| {
        publish(ctx, args, Family::Plain)
    }),
    Spec::new("spublish", 3, LOADING | REPLICATED, |ctx, args| {
        publish(ctx, args, Family::Shard)
    }),
    many("subscribe", -2, |ctx, args| {
        subscribe(ctx, args, Family::Plain)
    }),
    many("ssubscribe", -2, |ctx, args| {
        subscribe(ctx, args, Family::Shard)
    }),
    many("unsubscribe", -1, |ctx, args| {
        unsubscribe(ctx, args, Family::Plain)
    }),
    many("sunsubscribe", -1, |ctx, args| {
        unsubscribe(ctx, args, Family::Shard)
    }),
    Spec::new("pubsub", -2, LOADING, look),
];

const fn many(
    name: &'static str,
    arity: i8,
    run: fn(&mut Context<'_>, Args<'_>) -> Outcome<Vec<Reply>>,
) -> Spec {
    Spec {
        name,
        arity,
        flags: NO_SCRIPT | LOADING,
        run: Run::Many(run),
    }
}

fn publish(ctx: &mut Context<'_>, args: Args<'_>, family: Family) -> Outcome {
    if ctx.session != ADMIN {
        ctx.server.stats.published += 1;
    }
    let receivers = ctx.server.publish(family, &args[1], &args[2]);
    Ok(Reply::count(receivers))
}

fn confirmation(verb: &str, family: Family, channel: Reply, count: usize) -> Reply {
    Reply::Push(vec![
        Reply::bulk(format!("{}{verb}", family.prefix())),
        channel,
        Reply::count(count),
    ])
}

fn subscribe(ctx: &mut Context<'_>, args: Args<'_>, family: Family) -> Outcome<Vec<Reply>> {
    if ctx.session == ADMIN {
        return Err(Failure::new("ERR only a connection can subscribe"));
    }
    let mut confirmations = Vec::new();
    for channel in args.skip(1).iter() {
        let count = ctx.server.subscribe(ctx.session, family, channel);
        let channel = Reply::bulk(channel);
        confirmations.push(confirmation("subscribe", family, channel, count));
    }
    Ok(confirmations)
}

/// Unsubscribes from the given channels, or from all of them if none is given. Without any subscription it sends one
/// confirmation without a channel.
fn unsubscribe(ctx: &mut Context<'_>, args: Args<'_>, family: Family) -> Outcome<Vec<Reply>> {
    let mut channels: Vec<Vec<u8>> = args.skip(1).iter().map(<[u8]>::to_vec).collect();
    if channels.is_empty()
        && let Some(session) = ctx.server.sessions.get(&ctx.session)
    {
        channels = match family {
            Family::Plain => session.channels.iter().cloned().collect(),
            Family::Shard => session.shard_channels.iter().cloned().collect(),
        };
    }
    if channels.is_empty() {
        return Ok(vec![confirmation("unsubscribe", family, Reply::Nil, 0)]);
    }
    let mut confirmations = Vec::new();
    for channel in channels {
        let count = ctx.server.unsubscribe(ctx.session, family, &channel);
        let channel = Reply::Bulk(channel);
        confirmations.push(confirmation("unsubscribe", family, channel, count));
    }
    Ok(confirmations)
}

fn look(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (what, family) = match args[1].to_ascii_uppercase().as_slice() {
        b"NUMSUB" => ("NUMSUB", Family::Plain),
        b"SHARDNUMSUB" => ("NUMSUB", Family::Shard),
        b"CHANNELS" => ("CHANNELS", Family::Plain),
        b"SHARDCHANNELS" => ("CHANNELS", Family::Shard),
        b"NUMPAT" => return Ok(Reply::Int(0)),
        _ => return Err(Failure::unknown_subcommand("pubsub", &args[1])),
    };
    let subscriptions = ctx.server.subscriptions(family);
    let mut items = Vec::new();
    if what == "NUMSUB" {
        for channel in args.skip(2).iter() {
            items.push(Reply::bulk(channel));
            items.push(Reply::count(subscriptions.listeners(channel)));
        }
    } else {
        let fits = |channel: &&[u8]| args.get(2).is_none_or(|pattern| glob(pattern, channel));
        let channels = subscriptions.channels().into_iter().filter(fits);
        items.extend(channels.map(Reply::bulk));
    }
    Ok(Reply::Array(items))
}
