//! The one way to show a name, an owner, an age and a lease.

use std::time::Duration;

use serde::Serialize;
use stanchion::Name;
use stanchion::console::Printable;

/// A name or another text of the server for the terminal, as [`Printable`] shows it.
pub(crate) fn printable<T: AsRef<[u8]> + ?Sized>(text: &T) -> String {
    Printable::new(text).to_string()
}

/// The name for JSON, which has its own escapes; bytes that are not UTF-8 become `�`.
pub(crate) fn in_json(name: &Name) -> String {
    String::from_utf8_lossy(name.as_bytes()).into_owned()
}

/// A process: `billing@web-2 pid 4711`.
pub(crate) fn process(app: &str, host: Option<&str>, pid: u32) -> String {
    let app = if app.is_empty() { "?" } else { app };
    format!("{app}@{} pid {pid}", host.unwrap_or("?"))
}

/// An age or a time that is left, in at most seven characters: `340ms`, `41s`, `6m12s`, `3h05m`, `2d4h`, `400d`.
pub(crate) fn age(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m{:02}s", seconds % 60),
        3600..86400 => format!("{hours}h{:02}m", minutes % 60),
        _ if days < 100 => format!("{days}d{}h", hours % 24),
        _ => format!("{days}d"),
    }
}

/// The rest of a lease; `none` for a hold without an end.
pub(crate) fn lease(left: Option<Duration>) -> String {
    left.map_or_else(|| "none".into(), age)
}

/// A lease from the TTL of a key.
pub(crate) fn of_ttl(ttl: i64) -> Option<Duration> {
    u64::try_from(ttl).ok().map(Duration::from_millis)
}

/// The library that an owner comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Origin {
    /// A uuid of version 8.
    Stanchion,
    /// A uuid of version 4.
    Redisson,
    Unknown,
}

/// An owner, taken apart: `<client uuid>:<number>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner<'a> {
    pub(crate) client: &'a str,
    pub(crate) number: &'a str,
    pub(crate) origin: Origin,
}

impl<'a> Owner<'a> {
    /// Parses the text of an owner. A text of another program is all `number`.
    pub(crate) fn of(text: &'a str) -> Self {
        let unknown = Self {
            client: "",
            number: text,
            origin: Origin::Unknown,
        };
        let Some((client, number)) = text.split_once(':') else {
            return unknown;
        };
        let dashes = [8, 13, 18, 23];
        let is_uuid = client.len() == 36
            && client
                .bytes()
                .enumerate()
                .all(|(at, byte)| match dashes.contains(&at) {
                    true => byte == b'-',
                    false => byte.is_ascii_hexdigit(),
                });
        if !is_uuid {
            return unknown;
        }
        let origin = match client.as_bytes()[14] {
            b'8' => Origin::Stanchion,
            b'4' => Origin::Redisson,
            _ => Origin::Unknown,
        };
        Self {
            client,
            number,
            origin,
        }
    }

    /// A short text for the owner: `7c9e1a2b…:42`, with `java` in front if it looks like Redisson's.
    pub(crate) fn short(&self) -> String {
        if self.client.is_empty() {
            return printable(self.number.as_bytes());
        }
        let number = printable(self.number.as_bytes());
        let short = format!("{}…:{number}", &self.client[..8]);
        match self.origin {
            Origin::Redisson => format!("java {short}"),
            _ => short,
        }
    }
}

/// A process of which the server shows no connection, though it may have published a record before.
pub(crate) fn not_seen(process: &str) -> String {
    format!("{} not seen", printable(process.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        let shown = |millis| age(Duration::from_millis(millis));
        assert_eq!(shown(340), "340ms");
        assert_eq!(shown(41_900), "41s");
        assert_eq!(shown(372_000), "6m12s");
        assert_eq!(shown(11_100_000), "3h05m");
        assert_eq!(shown(187_200_000), "2d4h");
        assert_eq!(shown(34_560_000_000), "400d");
        assert_eq!(lease(None), "none");
    }

    #[test]
    fn owners_differ_by_the_version_of_their_uuid() {
        let java = Owner::of("9f1c0000-0000-4000-8000-000000000000:88");
        assert_eq!(
            (java.origin, java.short()),
            (Origin::Redisson, "java 9f1c0000…:88".into())
        );
        let ours = Owner::of("9f1c0000-0000-8000-8000-000000000000:7");
        assert_eq!(
            (ours.origin, ours.short()),
            (Origin::Stanchion, "9f1c0000…:7".into())
        );
        for odd in ["", "x", "a:b", "9f1c0000x0000-8000-8000-000000000000:7"] {
            assert_eq!(Owner::of(odd).origin, Origin::Unknown, "{odd}");
            assert_eq!(Owner::of(odd).short(), odd);
        }
    }

    #[test]
    fn no_name_reaches_the_terminal() {
        let hostile = "9f1c0000-0000-4000-8000-000000000000:\x1b[2J";
        assert_eq!(Owner::of(hostile).short(), "java 9f1c0000…:\\u{1b}[2J");
        assert_eq!(Owner::of("\n").short(), "\\n");
    }
}
