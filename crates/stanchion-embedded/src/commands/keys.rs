//! Keys of any type: delete, exists, type, list.

use super::{Context, Failure, LOADING, Outcome, Spec, WRITE, int};
use crate::reply::Reply;
use crate::resp::Args;

pub(super) const COMMANDS: &[Spec] = &[
    Spec::new("del", -2, WRITE, del),
    Spec::new("unlink", -2, WRITE, del),
    Spec::new("exists", -2, 0, exists),
    Spec::new("type", 2, 0, type_of),
    Spec::new("dbsize", 1, 0, dbsize),
    Spec::new("keys", 2, 0, keys),
    Spec::new("scan", -2, 0, scan),
    Spec::new("flushdb", -1, WRITE, flushdb),
    Spec::new("flushall", -1, WRITE, flushall),
    Spec::new("time", 1, LOADING, time),
];

fn del(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let keyspace = ctx.keyspace();
    let removed = args.skip(1).iter().filter(|key| keyspace.remove(key));
    Ok(Reply::count(removed.count()))
}

fn exists(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let keyspace = ctx.keyspace();
    let there = args.skip(1).iter().filter(|key| keyspace.contains(key));
    Ok(Reply::count(there.count()))
}

fn type_of(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let entry = ctx.keyspace().get(&args[1]);
    let name = entry.map_or("none", |entry| entry.value.type_name());
    Ok(Reply::Status(name.to_owned()))
}

fn dbsize(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    Ok(Reply::count(ctx.keyspace().keys().len()))
}

fn keys(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let keys = ctx.keyspace().keys().into_iter();
    let matching = keys.filter(|key| glob(&args[1], key));
    Ok(Reply::Array(matching.map(Reply::Bulk).collect()))
}

/// Returns all keys in one page, so the cursor is always 0. Redis promises no page size either.
fn scan(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let cursor = std::str::from_utf8(&args[1]).ok();
    if cursor.and_then(|c| c.parse::<u64>().ok()).is_none() {
        return Err(Failure::new("ERR invalid cursor"));
    }
    let (mut pattern, mut kind) = (None, None);
    let mut at = 2;
    while at < args.len() {
        let Some(value) = args.get(at + 1) else {
            return Err(Failure::syntax());
        };
        if args.is(at, "MATCH") {
            pattern = Some(value);
        } else if args.is(at, "TYPE") {
            kind = Some(String::from_utf8_lossy(value).to_ascii_lowercase());
        } else if args.is(at, "COUNT") {
            if int(value)? < 1 {
                return Err(Failure::syntax());
            }
        } else {
            return Err(Failure::syntax());
        }
        at += 2;
    }
    let keyspace = ctx.keyspace();
    let mut found = Vec::new();
    for key in keyspace.keys() {
        let fits = kind.as_ref().is_none_or(|kind| {
            let entry = keyspace.get(&key);
            entry.is_some_and(|entry| entry.value.type_name() == kind)
        });
        if fits && pattern.is_none_or(|pattern| glob(pattern, &key)) {
            found.push(Reply::Bulk(key));
        }
    }
    Ok(Reply::Array(vec![Reply::bulk("0"), Reply::Array(found)]))
}

fn flush_mode(args: Args<'_>) -> Outcome<()> {
    let known = args.len() == 1 || (args.len() == 2 && (args.is(1, "SYNC") || args.is(1, "ASYNC")));
    if known {
        Ok(())
    } else {
        Err(Failure::syntax())
    }
}

fn flushdb(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    flush_mode(args)?;
    ctx.keyspace().clear();
    Ok(Reply::ok())
}

fn flushall(ctx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    flush_mode(args)?;
    ctx.server.flush_all();
    Ok(Reply::ok())
}

fn time(ctx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let micros = ctx.now.micros;
    Ok(Reply::Array(vec![
        Reply::bulk(micros.div_euclid(1_000_000).to_string()),
        Reply::bulk(micros.rem_euclid(1_000_000).to_string()),
    ]))
}

/// Matches a glob as Redis does: `*`, `?`, `[a-c]`, `[^a]` and backslash. Of several stars only the last one is tried again, so
/// that no pattern takes long.
pub(super) fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut pattern, mut text) = (pattern, text);
    // The pattern after the last star, and the text at which it is tried next.
    let mut again: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            again = Some((rest, text));
            pattern = rest;
            continue;
        }
        if pattern.is_empty() && text.is_empty() {
            return true;
        }
        if let Some(rest) = match_one(pattern, text) {
            (pattern, text) = (rest, &text[1..]);
            continue;
        }
        match again {
            Some((rest, [_, shorter @ ..])) => {
                again = Some((rest, shorter));
                (pattern, text) = (rest, shorter);
            }
            _ => return false,
        }
    }
}

/// Matches the first byte of the text, without a star. Returns the rest of the pattern.
fn match_one<'a>(pattern: &'a [u8], text: &[u8]) -> Option<&'a [u8]> {
    let first = *text.first()?;
    let (fits, rest) = match pattern {
        [] | [b'*', ..] => return None,
        [b'?', rest @ ..] => (true, rest),
        [b'[', set @ ..] => in_set(set, first),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => (*literal == first, rest),
    };
    fits.then_some(rest)
}

/// Returns whether `byte` is in the set whose pattern starts after the bracket, and the pattern after the set.
fn in_set(pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    let (negated, mut rest) = match pattern {
        [b'^', rest @ ..] => (true, rest),
        _ => (false, pattern),
    };
    let mut found = false;
    loop {
        rest = match rest {
            [] => break,
            [b']', after @ ..] => {
                rest = after;
                break;
            }
            [b'\\', literal, after @ ..] => {
                found |= *literal == byte;
                after
            }
            [low, b'-', high, after @ ..] => {
                found |= (*low.min(high)..=*low.max(high)).contains(&byte);
                after
            }
            [literal, after @ ..] => {
                found |= *literal == byte;
                after
            }
        };
    }
    (found != negated, rest)
}

#[cfg(test)]
mod tests {
    use super::glob;

    #[test]
    fn no_pattern_takes_long() {
        let pattern = "a*".repeat(50) + "b";
        assert!(!glob(pattern.as_bytes(), "a".repeat(50_000).as_bytes()));
    }

    #[test]
    fn globs_match_as_in_redis() {
        for (pattern, text, fits) in [
            ("*", "", true),
            ("h?llo", "hello", true),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            (r"h\*", "h*", true),
            (r"h\*", "hx", false),
            ("a*c*", "abcd", true),
            ("a*d", "abc", false),
            ("a*b*", "aXbXb", true),
            ("*a*b", "ab ab", true),
            ("**", "", true),
            ("[", "", false),
            ("*[ab]\\", "xa\\", true),
        ] {
            assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), fits, "{pattern}");
        }
    }
}
