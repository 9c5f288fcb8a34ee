//! `CLIENT`: the list of clients, their names, pausing and killing them.

use super::connection::client_name;
use super::{Context, Failure, LOADING, NO_SCRIPT, Outcome, Spec, int, timeout};
use crate::clock::Now;
use crate::reply::{Protocol, Reply};
use crate::resp::Args;
use crate::server::{Pause, Session};

pub(super) const COMMANDS: &[Spec] = &[Spec::new("client", -2, NO_SCRIPT | LOADING, client)];

fn client(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let subcommand = args[1].to_ascii_lowercase();
    let arity = |fits: bool| match fits {
        true => Ok(()),
        false => {
            let name = String::from_utf8_lossy(&subcommand);
            Err(Failure::arity(&format!("client|{name}")))
        }
    };
    let count = args.len();
    match subcommand.as_slice() {
        b"id" => {
            arity(count == 2)?;
            Ok(Reply::Int(i64::try_from(ctx.session).unwrap_or(i64::MAX)))
        }
        b"setname" => {
            arity(count == 3)?;
            ctx.session_mut()?.name = client_name(&args[2])?;
            Ok(Reply::ok())
        }
        b"getname" => {
            arity(count == 2)?;
            let name = &ctx.session_mut()?.name;
            Ok(match name.is_empty() {
                true => Reply::Nil,
                false => Reply::bulk(name),
            })
        }
        b"setinfo" => {
            arity(count == 4)?;
            set_info(ctx, args)
        }
        b"no-evict" => {
            arity(count == 3)?;
            match args.is(2, "ON") || args.is(2, "OFF") {
                true => Ok(Reply::ok()),
                false => Err(Failure::syntax()),
            }
        }
        b"info" => {
            arity(count == 2)?;
            let now = ctx.now;
            Ok(Reply::Text(describe(ctx.session_mut()?, now)))
        }
        b"list" => {
            let now = ctx.now;
            let lines = ctx.server.open_sessions().map(|s| describe(s, now));
            Ok(Reply::Text(lines.collect()))
        }
        b"tracking" => {
            arity(count >= 3)?;
            track(ctx, args)
        }
        b"kill" => {
            arity(count >= 3)?;
            kill(ctx, args)
        }
        b"pause" => {
            arity(count == 3 || count == 4)?;
            pause(ctx, args)
        }
        b"unpause" => {
            arity(count == 2)?;
            ctx.server.pause = None;
            ctx.server.wake_all();
            Ok(Reply::ok())
        }
        _ => Err(Failure::unknown_subcommand("client", &args[1])),
    }
}

/// Answers `CLIENT SETINFO`, which Redis has only since 7.2: every recent client library sends it on connect.
fn set_info(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let value = client_name(&args[3])?;
    let session = ctx.session_mut()?;
    match args[2].to_ascii_lowercase().as_slice() {
        b"lib-name" => session.library[0] = value,
        b"lib-ver" => session.library[1] = value,
        _ => {
            let option = String::from_utf8_lossy(&args[2]);
            return Err(Failure::new(format!("ERR Unrecognized option '{option}'")));
        }
    }
    Ok(Reply::ok())
}

fn address(session: &Session) -> String {
    format!("127.0.0.1:{}", session.id)
}

fn describe(session: &Session, now: Now) -> String {
    let version = match session.protocol {
        Protocol::Resp2 => 2,
        Protocol::Resp3 => 3,
    };
    let flags = if session.subscriptions() > 0 {
        'P'
    } else {
        'N'
    };
    format!(
        "id={} addr={} laddr=127.0.0.1:0 name={} age={} db={} flags={flags} sub={} psub=0 ssub={} resp={version} \
         user=default lib-name={} lib-ver={}\n",
        session.id,
        address(session),
        session.name,
        (now.micros - session.since.micros) / 1_000_000,
        session.db,
        session.channels.len(),
        session.shard_channels.len(),
        session.library[0],
        session.library[1],
    )
}

fn is_pubsub(session: &Session) -> bool {
    session.subscriptions() > 0
}

fn track(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 3 {
        return Err(Failure::new(
            "ERR this server tracks in the default mode only, without options",
        ));
    }
    let (on, id) = (args.is(2, "ON"), ctx.session);
    match on || args.is(2, "OFF") {
        true if on => ctx.server.track(id),
        true => ctx.server.tracking.remove_session(id),
        false => return Err(Failure::syntax()),
    }
    Ok(Reply::ok())
}

fn kill(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let me = ctx.session;
    if args.len() == 3 {
        // The old form names one address.
        let wanted = String::from_utf8_lossy(&args[2]).into_owned();
        return match ctx.server.kill(|s| address(s) == wanted) {
            0 => Err(Failure::new("ERR No such client")),
            _ => Ok(Reply::ok()),
        };
    }
    let (mut id, mut addr, mut kind, mut skip_me) = (None, None, None, true);
    let mut at = 2;
    while at < args.len() {
        let value = args.get(at + 1).ok_or_else(Failure::syntax)?;
        match args[at].to_ascii_uppercase().as_slice() {
            b"ID" => {
                let number = int(value).ok().and_then(|n| u64::try_from(n).ok());
                let invalid = || Failure::new("ERR client-id should be greater than 0");
                id = Some(number.filter(|n| *n > 0).ok_or_else(invalid)?);
            }
            b"ADDR" => addr = Some(String::from_utf8_lossy(value).into_owned()),
            b"TYPE" => kind = Some(value.to_ascii_lowercase()),
            b"SKIPME" => skip_me = args.is(at + 1, "YES"),
            b"USER" | b"LADDR" => {}
            _ => return Err(Failure::syntax()),
        }
        at += 2;
    }
    let chosen = |session: &Session| {
        let kind_fits = kind.as_deref().is_none_or(|kind| match kind {
            b"normal" => !is_pubsub(session),
            b"pubsub" => is_pubsub(session),
            _ => false,
        });
        id.is_none_or(|id| session.id == id)
            && addr.as_ref().is_none_or(|addr| address(session) == *addr)
            && kind_fits
            && !(skip_me && session.id == me)
    };
    Ok(Reply::count(ctx.server.kill(chosen)))
}

fn pause(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let millis = timeout(&args[2])?;
    let writes_only = match args.len() {
        4 if args.is(3, "WRITE") => true,
        4 if !args.is(3, "ALL") => {
            return Err(Failure::new("ERR CLIENT PAUSE mode must be WRITE or ALL"));
        }
        _ => false,
    };
    let micros = ctx.now.micros.saturating_add(millis.saturating_mul(1000));
    ctx.server.pause = Some(Pause {
        until: Now { micros },
        writes_only,
    });
    Ok(Reply::ok())
}
