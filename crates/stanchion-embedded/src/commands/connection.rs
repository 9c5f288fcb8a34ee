//! Commands about the connection: handshake, login, database, quit.

use super::{Context, Failure, LOADING, NO_AUTH, NO_SCRIPT, Outcome, Spec};
use crate::keyspace::number::parse_int;
use crate::reply::{Protocol, Reply};
use crate::resp::Args;
use crate::server::{DATABASES, Session};

const ALWAYS: u8 = NO_SCRIPT | LOADING | NO_AUTH;

pub(super) const COMMANDS: &[Spec] = &[
    Spec::new("hello", -1, ALWAYS, hello),
    Spec::new("auth", -2, ALWAYS, auth),
    Spec::new("quit", -1, ALWAYS, quit),
    // A browser can be made to send HTTP to a local port. Commands that are smuggled into its lines are not executed.
    Spec::new("post", -1, ALWAYS, refuse_http),
    Spec::new("host:", -1, ALWAYS, refuse_http),
    Spec::new("reset", 1, ALWAYS, reset),
    Spec::new("ping", -1, 0, ping),
    Spec::new("echo", 2, LOADING, |_, args| Ok(Reply::bulk(&args[1]))),
    Spec::new("select", 2, LOADING, select),
];

impl Context<'_> {
    pub(super) fn session_mut(&mut self) -> Outcome<&mut Session> {
        self.server
            .sessions
            .get_mut(&self.session)
            .ok_or_else(|| Failure::new("ERR the connection is closed"))
    }
}

fn hello(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let protocol = match args.get(1) {
        None => None,
        Some(version) => match parse_int(version) {
            Some(2) => Some(Protocol::Resp2),
            Some(3) => Some(Protocol::Resp3),
            Some(_) => return Err(Failure::new("NOPROTO unsupported protocol version")),
            None => {
                return Err(Failure::new(
                    "ERR Protocol version is not an integer or out of range",
                ));
            }
        },
    };
    let (mut login, mut name) = (None, None);
    let mut at = 2;
    while at < args.len() {
        if args.is(at, "AUTH") && at + 2 < args.len() {
            login = Some((&args[at + 1], &args[at + 2]));
            at += 3;
        } else if args.is(at, "SETNAME") && at + 1 < args.len() {
            name = Some(client_name(&args[at + 1])?);
            at += 2;
        } else {
            let option = String::from_utf8_lossy(&args[at]);
            return Err(Failure::new(format!(
                "ERR Syntax error in HELLO option '{option}'"
            )));
        }
    }
    if let Some((user, password)) = login {
        log_in(ctx, user, password)?;
    }
    let session = ctx.session_mut()?;
    if !session.is_authenticated {
        return Err(Failure::new(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
             <proto> AUTH <user> <pass> option can be used to authenticate the client and select the \
             RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        session.name = name;
    }
    if let Some(protocol) = protocol {
        session.protocol = protocol;
    }
    let version = match session.protocol {
        Protocol::Resp2 => 2,
        Protocol::Resp3 => 3,
    };
    ctx.protocol = ctx.session_mut()?.protocol;
    let id = i64::try_from(ctx.session).unwrap_or(i64::MAX);
    let role = match ctx.server.switches.read_only {
        true => "replica",
        false => "master",
    };
    let facts = [
        ("server", Reply::bulk("redis")),
        ("version", Reply::bulk(super::admin::VERSION)),
        ("proto", Reply::Int(version)),
        ("id", Reply::Int(id)),
        ("mode", Reply::bulk("standalone")),
        ("role", Reply::bulk(role)),
        ("modules", Reply::Array(Vec::new())),
    ];
    let facts = facts.map(|(key, value)| (Reply::bulk(key), value));
    Ok(Reply::Map(facts.into()))
}

/// Checks the name of a client. Spaces are refused, as the name appears in lines of text.
pub(super) fn client_name(bytes: &[u8]) -> Outcome<String> {
    match String::from_utf8(bytes.to_vec()) {
        Ok(name) if name.bytes().all(|b| b.is_ascii_graphic()) => Ok(name),
        _ => Err(Failure::new(
            "ERR Client names cannot contain spaces, newlines or special characters.",
        )),
    }
}

fn log_in(ctx: &mut Context<'_>, user: &[u8], password: &[u8]) -> Outcome<()> {
    let right = match &ctx.server.switches.password {
        None => true,
        Some(wanted) => wanted.as_bytes() == password,
    };
    if user != b"default" || !right {
        return Err(Failure::new(
            "WRONGPASS invalid username-password pair or user is disabled.",
        ));
    }
    ctx.session_mut()?.is_authenticated = true;
    Ok(())
}

fn auth(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match args.len() {
        2 if ctx.server.switches.password.is_none() => {
            return Err(Failure::new(
                "ERR AUTH <password> called without any password configured for the default user. Are \
                 you sure your configuration is correct?",
            ));
        }
        2 => log_in(ctx, b"default", &args[1])?,
        3 => log_in(ctx, &args[1], &args[2])?,
        _ => return Err(Failure::syntax()),
    }
    Ok(Reply::ok())
}

fn quit(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let session = ctx.session_mut()?;
    let mut pipe = session.connection.lock();
    pipe.send(&Reply::ok(), session.protocol);
    pipe.finish_sending();
    Ok(Reply::ok())
}

/// Ends the connection without an answer, as Redis does.
fn refuse_http(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    ctx.session_mut()?.connection.lock().cut();
    Ok(Reply::ok())
}

fn reset(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let needs_login = ctx.server.switches.password.is_some();
    ctx.server.channels.remove_session(ctx.session);
    ctx.server.shard_channels.remove_session(ctx.session);
    ctx.server.tracking.remove_session(ctx.session);
    let session = ctx.session_mut()?;
    session.channels.clear();
    session.shard_channels.clear();
    session.protocol = Protocol::Resp2;
    session.db = 0;
    session.name.clear();
    session.is_authenticated = !needs_login;
    Ok(Reply::Status("RESET".to_owned()))
}

fn ping(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 2 {
        return Err(Failure::arity("ping"));
    }
    let echoed = args.get(1);
    let session = ctx.server.sessions.get(&ctx.session);
    if session.is_some_and(Session::is_subscriber_only) {
        let echoed = Reply::bulk(echoed.unwrap_or_default());
        return Ok(Reply::Array(vec![Reply::bulk("pong"), echoed]));
    }
    Ok(echoed.map_or_else(|| Reply::Status("PONG".to_owned()), Reply::bulk))
}

fn select(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let index = parse_int(&args[1]).ok_or_else(Failure::not_an_integer)?;
    if i32::try_from(index).is_err() {
        return Err(Failure::new(format!(
            "ERR value is out of range, value must between {} and {}",
            i32::MIN,
            i32::MAX
        )));
    }
    let index = usize::try_from(index)
        .ok()
        .filter(|&index| index < DATABASES)
        .ok_or_else(|| Failure::new("ERR DB index is out of range"))?;
    // In a script the selection ends with the script.
    match &mut ctx.server.script {
        Some(script) => script.db = index,
        None => ctx.session_mut()?.db = index,
    }
    Ok(Reply::ok())
}
