//! Reading the keys that a scan has listed.
//!
//! Plain commands, many in one write: a script that sends the same commands costs the server three times as much. A key may change between
//! two writes, as between the listing and the first of them. A command that is refused leaves its detail out: a user without the right to
//! a key sees it listed.

use std::time::Duration;

use stanchion::QueryError;
use stanchion::console::Reply;

use super::{Command, Found, HashSeen, Server};
use crate::beside;
use crate::wording::Owner;

/// The fields that Redisson's rate limiters have.
const OF_LIMITER: [&str; 4] = ["rate", "interval", "type", "keepAliveTime"];

/// A key of interest, by its type.
enum Shape {
    /// Derived from a name; the command that counts its members.
    Derived(Option<&'static str>),
    Hash,
}

/// A hash of interest, by the name of one of its fields.
enum Hash {
    /// The owner is the only field, or one of several.
    Hold {
        owner: Vec<u8>,
        alone: bool,
    },
    Limiter,
}

/// Reads keys into `found`. Returns the time that this took the server.
pub(super) async fn read(
    server: &Server<'_>,
    keys: &[Vec<u8>],
    found: &mut Found,
) -> Result<Duration, QueryError> {
    let types = keys.iter().map(|key| vec![b"TYPE".as_slice(), key]);
    let (types, first) = server.timed(types.collect()).await?;

    let mut commands: Vec<Command<'_>> = Vec::new();
    let mut shapes = Vec::new();
    for (key, kind) in keys.iter().zip(types) {
        let kind = kind.ok();
        let kind = kind.as_ref().and_then(Reply::as_text).unwrap_or_default();
        let size = match kind {
            "list" => Some("LLEN"),
            "zset" => Some("ZCARD"),
            "hash" => Some("HLEN"),
            _ => None,
        };
        if beside::is_derived(key) && kind != "none" {
            commands.push(vec![b"PTTL", key]);
            commands.extend(size.map(|size| vec![size.as_bytes(), key]));
            shapes.push((key, Shape::Derived(size)));
        } else if kind == "hash" {
            // Without the values, which may be large: most hashes of other programs are read no further.
            commands.push(vec![b"HRANDFIELD", key, b"2"]);
            shapes.push((key, Shape::Hash));
        }
    }
    let (replies, second) = server.timed(commands).await?;

    let mut replies = replies.into_iter();
    let mut next = || replies.next().and_then(Result::ok);
    let mut hashes = Vec::new();
    for (key, shape) in shapes {
        match shape {
            Shape::Derived(size) => {
                let ttl = ttl(next());
                let members = size.and_then(|_| number(next()));
                found.derived(key, ttl, members.unwrap_or(1));
            }
            Shape::Hash => {
                let fields = next();
                let fields = fields.as_ref().and_then(Reply::as_array);
                hashes.extend(hash(fields.unwrap_or_default()).map(|hash| (key, hash)));
            }
        }
    }

    let mut commands: Vec<Command<'_>> = Vec::new();
    for (key, hash) in &hashes {
        let value = |field| vec![b"HGET".as_slice(), key, field];
        commands.push(vec![b"PTTL", key]);
        match hash {
            Hash::Hold { owner, alone } => {
                commands.push(value(owner));
                if !alone {
                    commands.extend([vec![b"HLEN".as_slice(), key], value(b"mode")]);
                }
            }
            Hash::Limiter => {
                commands.extend([value(b"rate"), value(b"interval"), value(b"type")]);
            }
        }
    }
    let (replies, third) = server.timed(commands).await?;

    let mut replies = replies.into_iter();
    let mut next = || replies.next().and_then(Result::ok);
    for (key, hash) in &hashes {
        let ttl = ttl(next());
        match hash {
            Hash::Hold { owner, alone } => {
                let count = number(next());
                let (fields, mode) = match alone {
                    true => (None, None),
                    false => (number(next()), next()),
                };
                // Otherwise it was released in the meantime, or is no lock.
                if let Some(count) = count {
                    found.hold(
                        key,
                        HashSeen {
                            ttl,
                            fields: fields.unwrap_or(1),
                            mode: mode
                                .as_ref()
                                .and_then(Reply::as_text)
                                .unwrap_or_default()
                                .to_owned(),
                            owner: String::from_utf8_lossy(owner).into_owned(),
                            count,
                        },
                    );
                }
            }
            Hash::Limiter => {
                let numbers = [number(next()), number(next()), number(next())];
                if numbers.iter().all(Option::is_some) {
                    found.limiter(key, ttl);
                }
            }
        }
    }
    Ok(first + second + third)
}

fn ttl(reply: Option<Reply>) -> i64 {
    reply.and_then(|reply| reply.as_int()).unwrap_or(-2)
}

fn number(reply: Option<Reply>) -> Option<u64> {
    reply?.as_int()?.try_into().ok()
}

/// Finds out what a hash is by the names of some fields. `None`: another program's.
fn hash(fields: &[Reply]) -> Option<Hash> {
    let mut names = fields.iter().filter_map(|field| match field {
        Reply::Bulk(name) => Some(name),
        _ => None,
    });
    // A read-write lock has this one next to its holders.
    let field = names.find(|name| *name != b"mode")?;
    let text = String::from_utf8_lossy(field);
    if !Owner::of(&text).client.is_empty() {
        let (owner, alone) = (field.clone(), fields.len() == 1);
        return Some(Hash::Hold { owner, alone });
    }
    OF_LIMITER.contains(&&*text).then_some(Hash::Limiter)
}
