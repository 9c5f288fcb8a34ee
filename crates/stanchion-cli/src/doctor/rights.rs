//! Checks the rights of a user with `ACL DRYRUN`, which executes nothing.

use std::collections::BTreeSet;

use stanchion::client::Placement;
use stanchion::console::Console;
use stanchion::{Client, Name, QueryError, Rejection};

use super::finding::Finding;
use crate::beside;
use crate::look::{Kind, ask_all};
use crate::probe::Names;

/// The commands of docs/running/rights.md, with arguments that make them whole; `K` is a key, `C` a channel.
const COMMANDS: [&str; 46] = [
    "HELLO",
    "AUTH u p",
    "SELECT 0",
    "INFO",
    "TIME",
    "EVAL x 1 K",
    "EVALSHA x 1 K",
    "SUBSCRIBE C",
    "UNSUBSCRIBE C",
    "PUBLISH C 0",
    "EXISTS K",
    "DEL K",
    "UNLINK K",
    "PEXPIRE K 1",
    "PTTL K",
    "PUBSUB NUMSUB C",
    "GET K",
    "GETRANGE K 0 1",
    "SET K v",
    "INCRBY K 1",
    "DECRBY K 1",
    "HDEL K f",
    "HEXISTS K f",
    "HGET K f",
    "HGETALL K",
    "HINCRBY K f 1",
    "HLEN K",
    "HMGET K f",
    "HRANDFIELD K",
    "HSET K f v",
    "HVALS K",
    "LINDEX K 0",
    "LINSERT K BEFORE v v",
    "LLEN K",
    "LPOP K",
    "LRANGE K 0 1",
    "LREM K 0 v",
    "RPUSH K v",
    "ZADD K 1 m",
    "ZCARD K",
    "ZCOUNT K 0 1",
    "ZRANGE K 0 1",
    "ZRANGEBYSCORE K 0 1",
    "ZRANK K m",
    "ZREM K m",
    "ZSCORE K m",
];

/// Rights that docs/topologies.md adds for a cluster.
const OF_A_CLUSTER: [&str; 6] = [
    "CLUSTER SLOTS",
    "CLUSTER INFO",
    "ASKING",
    "SSUBSCRIBE C",
    "SUNSUBSCRIBE C",
    "SPUBLISH C 0",
];

/// Everything works without these rights, but an operator sees less.
const NICE: [&str; 3] = [
    "CLIENT SETNAME x",
    "CLIENT SETINFO lib-name x",
    "ZREMRANGEBYSCORE K 0 1",
];

/// The right that only shows the version. Redis 7.0 does not know this right, so the line in the book does not have it.
const VERSION: &str = "+client|setinfo";

/// Missing rights, as `ACL SETUSER` takes them.
#[derive(Debug, Default)]
struct Missing {
    needed: BTreeSet<String>,
    nice: BTreeSet<String>,
}

/// The reason why the rights could not be checked.
enum Unasked {
    Refused(String),
    NoSuchUser,
    Broken(QueryError),
}

impl From<QueryError> for Unasked {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::Rejected {
                rejection: Rejection::Other { detail, .. },
            } if detail.contains("not found") => Self::NoSuchUser,
            QueryError::Rejected { rejection } => Self::Refused(rejection.to_string()),
            error => Self::Broken(error),
        }
    }
}

const CHECK: &str = "rights";

/// The engine has no users: its socket is opened by one user alone, a port by all of the machine.
pub(super) fn of_the_engine() -> Finding {
    Finding::ok(
        CHECK,
        "the engine has no users: whoever can connect may do everything",
    )
}

/// Checks the rights of a user, the connected one if none is named, for names of a pattern.
pub(super) async fn check(
    client: &Client,
    console: &Console,
    user: Option<&str>,
    names: &Names,
) -> Result<Vec<Finding>, QueryError> {
    let user = match user {
        Some(user) => user.to_owned(),
        None => match console.command(&["ACL", "WHOAMI"]).await {
            Ok(reply) => reply.as_text().unwrap_or("default").to_owned(),
            Err(QueryError::Rejected { .. }) => {
                let advice = "run this as an administrator, with --user NAME";
                return Ok(vec![Finding::skip(CHECK, "ACL WHOAMI is refused", advice)]);
            }
            Err(error) => return Err(error),
        },
    };
    let about = format!("user {user} on {}", names.pattern());
    let missing = match missing(client, console, &user, names).await {
        Ok(missing) => missing,
        Err(Unasked::Refused(why)) => {
            let what = format!("{about}: ACL DRYRUN is refused ({why})");
            let advice = format!("run this as an administrator, with --user {user}");
            return Ok(vec![Finding::skip(CHECK, what, advice)]);
        }
        Err(Unasked::NoSuchUser) => {
            let advice = "ACL LIST shows those there are";
            return Ok(vec![Finding::fail(
                CHECK,
                format!("there is no user {user}"),
                advice,
            )]);
        }
        Err(Unasked::Broken(error)) => return Err(error),
    };
    let setuser = |rights: &BTreeSet<String>| {
        let rights: Vec<&str> = rights.iter().map(String::as_str).collect();
        format!("ACL SETUSER {user} {}", rights.join(" "))
    };
    let mut findings = Vec::new();
    if missing.needed.is_empty() {
        findings.push(Finding::ok(CHECK, format!("{about} (ACL DRYRUN)")));
    } else {
        let what = format!("{about}: {} rights are missing", missing.needed.len());
        let advice = setuser(&missing.needed);
        findings.push(Finding::fail(CHECK, what, advice));
    }
    if missing.nice.iter().eq([VERSION]) {
        let what = format!("{about}: CLIENT LIST does not show its version ({VERSION})");
        findings.push(Finding::ok("identity", what));
    } else if !missing.nice.is_empty() {
        let what = format!(
            "{about}: operators cannot see which process it is, or what it holds and waits for"
        );
        findings.push(Finding::warn("identity", what, setuser(&missing.nice)));
    }
    Ok(findings)
}

/// A command to check, and the right that is missing if the command is denied.
struct Question {
    command: Vec<Vec<u8>>,
    /// The denial that shows that the right is missing.
    denied: Denied,
    right: String,
    is_needed: bool,
    /// False where the server may not know the command, and then needs no right for it.
    is_known: bool,
}

impl Question {
    fn command(template: &str, command: Vec<Vec<u8>>) -> Self {
        Self {
            command,
            denied: Denied::Command,
            right: right_of(template),
            is_needed: true,
            is_known: true,
        }
    }

    fn pattern(command: Vec<Vec<u8>>, right: String) -> Self {
        Self {
            command,
            denied: Denied::Pattern,
            right,
            is_needed: true,
            is_known: true,
        }
    }
}

/// The checks for users that lock names of a pattern.
fn questions(names: &Names, cluster: bool) -> Vec<Question> {
    let name = names.some();
    let (key, channel) = (
        name.as_bytes().to_vec(),
        beside::channel_of(&name, Kind::Lock),
    );
    let about = |template: &&str| {
        let word = |word: &str| match word {
            "K" => key.clone(),
            "C" => channel.clone(),
            word => word.as_bytes().to_vec(),
        };
        Question::command(template, template.split(' ').map(word).collect())
    };
    let set = |key: Vec<u8>| vec![b"SET".to_vec(), key, b"v".to_vec()];
    let more = OF_A_CLUSTER.iter().filter(|_| cluster);
    let mut questions: Vec<Question> = COMMANDS.iter().chain(more).map(about).collect();
    questions.extend(NICE.iter().map(about).map(|it| Question {
        is_needed: false,
        is_known: false,
        ..it
    }));
    // With a key prefix these keys begin with it, and the names' pattern covers them.
    if names.has_no_prefix() {
        questions.push(Question {
            is_needed: false,
            ..Question::pattern(
                set(beside::RECORD.into()),
                format!("%W~{}*", beside::RECORD),
            )
        });
    }
    let written = keys(&name, names.pattern()).into_iter();
    questions
        .extend(written.map(|(key, pattern)| Question::pattern(set(key), format!("~{pattern}"))));
    let publish = if cluster { "SPUBLISH" } else { "PUBLISH" };
    let kinds = [Kind::Lock, Kind::Rwlock, Kind::LeasedSemaphore, Kind::Latch];
    questions.extend(kinds.map(|kind| {
        let channel = beside::channel_of(&name, kind);
        let told = vec![publish.into(), channel, b"0".to_vec()];
        Question::pattern(told, format!("&{}", derived(names.pattern())))
    }));
    questions
}

async fn missing(
    client: &Client,
    console: &Console,
    user: &str,
    names: &Names,
) -> Result<Missing, Unasked> {
    let questions = questions(names, client.server().placement == Placement::Slots);
    // All checks are sent at once on one connection. Sent one by one, their some 80 round trips are most of the time for a distant server.
    let answers = ask_all(questions.into_iter().map(|question| {
        let (console, user) = (console.clone(), user.to_owned());
        async move {
            let denied = dry_run(&console, &user, &question.command).await;
            (question, denied)
        }
    }));
    let mut missing = Missing::default();
    for (question, denied) in answers.await {
        let denied = match denied {
            Err(_) if !question.is_known => continue,
            denied => denied?,
        };
        if denied == Some(question.denied) {
            let rights = match question.is_needed {
                true => &mut missing.needed,
                false => &mut missing.nice,
            };
            rights.insert(question.right);
        }
    }
    Ok(missing)
}

/// The keys that a user writes to lock `name`, with the patterns that allow them.
fn keys(name: &Name, pattern: &str) -> Vec<(Vec<u8>, String)> {
    let mut keys = vec![(name.as_bytes().to_vec(), pattern.to_owned())];
    let beside = beside::keys_of(name).into_iter();
    keys.extend(beside.map(|key| (key, derived(pattern))));
    keys.extend(beside::shared_keys(name));
    keys
}

/// The pattern of keys and channels derived from names of a pattern.
fn derived(pattern: &str) -> String {
    match pattern {
        "*" => "*".into(),
        pattern => format!("*{{{pattern}"),
    }
}

/// `+get` for `GET K`, `+client|setname` for `CLIENT SETNAME x`; `+pubsub` as a whole, as the page on rights has it.
fn right_of(template: &str) -> String {
    let mut words = template.split(' ').map(str::to_lowercase);
    let command = words.next().unwrap_or_default();
    match words.next() {
        Some(sub) if ["client", "cluster"].contains(&&*command) => format!("+{command}|{sub}"),
        _ => format!("+{command}"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Denied {
    Command,
    /// The command is allowed, on other keys or channels.
    Pattern,
}

async fn dry_run(
    console: &Console,
    user: &str,
    command: &[Vec<u8>],
) -> Result<Option<Denied>, QueryError> {
    let head = [
        b"ACL".to_vec(),
        b"DRYRUN".to_vec(),
        user.as_bytes().to_vec(),
    ];
    let reply = console.command(&[&head[..], command].concat()).await?;
    Ok(match reply.as_text() {
        Some("OK") | None => None,
        // The server checks the command first, so an error about a key or a channel means that the command is allowed.
        Some(said) if said.contains("command") => Some(Denied::Command),
        Some(_) => Some(Denied::Pattern),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rights of the page on rights, by its `+` words.
    fn of_the_book(page: &str, user: &str) -> BTreeSet<String> {
        let at = page.find(user).unwrap();
        let block = page[at..].split("```").next().unwrap();
        let words = block.split_whitespace();
        words
            .filter(|word| word.starts_with('+'))
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn what_is_checked_is_what_the_book_lists() {
        let rights = include_str!("../../../../docs/running/rights.md");
        let of = |templates: &[&str]| -> BTreeSet<String> {
            templates
                .iter()
                .map(|template| right_of(template))
                .collect()
        };
        let book = of_the_book(rights, "ACL SETUSER app on >password resetkeys");
        let (needed, nice) = (of(&COMMANDS), of(&NICE));
        assert!(needed.is_subset(&book), "{:?}", needed.difference(&book));
        let unchecked: Vec<_> = book
            .difference(&needed)
            .filter(|it| !nice.contains(*it))
            .collect();
        assert!(unchecked.is_empty(), "{unchecked:?}");
        let topologies = include_str!("../../../../docs/topologies.md");
        let checked: BTreeSet<String> = OF_A_CLUSTER
            .iter()
            .map(|template| right_of(template))
            .collect();
        assert_eq!(
            checked,
            of_the_book(topologies, "ACL SETUSER app +cluster|slots")
        );
    }

    #[test]
    fn patterns_are_those_of_the_book() {
        assert_eq!(derived("app:*"), "*{app:*");
        let rights = include_str!("../../../../docs/running/rights.md");
        for pattern in [derived("app:*")]
            .iter()
            .map(String::as_str)
            .chain(["app:*", "stanchion_fence:*"])
        {
            assert!(rights.contains(&format!("~{pattern} ")), "{pattern}");
        }
    }
}
