//! The text of a URL for messages, with every part masked that may be a secret.
//!
//! A valid URL is shown by its parts: the scheme, the user, the hosts, and a path that is a number or names a service, a
//! socket or a namespace. For an invalid URL only the scheme is shown: any other part may belong to a password, because a
//! password may contain every character that separates the parts.

use url::Url;

use crate::secret::MASKED;
use crate::url::{Several, has_stray_at};

/// Returns `text` without the parts that may be a secret.
pub(crate) fn mask(text: &str) -> String {
    let shown = if has_stray_at(text) {
        None
    } else if let Some((kind, tls, rest)) = Several::of(text) {
        // A service may have any name, so the name is shown only if the whole URL is valid.
        kind.parse(tls, rest).ok().map(|_| several(text, rest))
    } else {
        Url::parse(text).ok().and_then(|url| single(text, &url))
    };
    shown.unwrap_or_else(|| match text.split_once("://") {
        Some((scheme, _)) if is_scheme(scheme) => format!("{scheme}://{MASKED}"),
        _ => MASKED.to_owned(),
    })
}

fn is_scheme(text: &str) -> bool {
    let known = |c: char| c.is_ascii_lowercase() || c == '+';
    !text.is_empty() && text.chars().all(known)
}

/// Shows a valid URL with several hosts.
fn several(text: &str, rest: &str) -> String {
    let scheme = &text[..text.len() - rest.len()];
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        None => text.to_owned(),
        Some((login, hosts)) => format!("{scheme}{}{hosts}{path}", masked_login(login)),
    }
}

/// Shows a URL with one host, or with a path that is a socket.
fn single(text: &str, url: &Url) -> Option<String> {
    let rest = text.split_once("://")?.1;
    let scheme = url.scheme();
    if scheme.contains("unix") {
        // If there is a host, a part of the path may belong to a password.
        return url
            .host_str()
            .is_none_or(str::is_empty)
            .then(|| socket(scheme, rest));
    }
    let host = url.host_str().unwrap_or_default();
    let port = url.port().map(|port| format!(":{port}"));
    let login = match (url.username(), url.password()) {
        ("", None) => String::new(),
        (user, Some(_)) => masked_login(&format!("{user}:")),
        (user, None) => masked_login(user),
    };
    let path = url.path();
    let is_number = path.trim_matches('/').bytes().all(|b| b.is_ascii_digit());
    let path = match scheme {
        // A namespace is not a secret: it is a name chosen for tests.
        "memory" => path,
        // The parser adds a `/` to some schemes.
        _ if path == "/" && !text.ends_with('/') => "",
        _ if is_number => path,
        _ => "/***",
    };
    Some(format!(
        "{scheme}://{login}{host}{}{path}",
        port.unwrap_or_default()
    ))
}

/// Shows a socket. Its path may contain an `@`, and a parameter may contain one, too.
fn socket(scheme: &str, rest: &str) -> String {
    let rest = rest.split('#').next().unwrap_or_default();
    let Some((path, parameters)) = rest.split_once('?') else {
        return format!("{scheme}://{rest}");
    };
    let shown = |parameter: &str| match parameter.split_once('=') {
        Some(("user", _)) => parameter.to_owned(),
        Some(("db", number)) if number.bytes().all(|b| b.is_ascii_digit()) => parameter.to_owned(),
        Some((key @ ("pass" | "password"), _)) => format!("{key}={MASKED}"),
        // The parameter may be the rest of a password that contains an `&`.
        _ => MASKED.to_owned(),
    };
    let parameters: Vec<String> = parameters.split('&').map(shown).collect();
    format!("{scheme}://{path}?{}", parameters.join("&"))
}

/// Returns the masked login of a valid URL, with the `@` after it.
fn masked_login(login: &str) -> String {
    match login.split_once(':') {
        Some((user, _)) => format!("{user}:{MASKED}@"),
        // Without a colon the user may be the secret.
        None => format!("{MASKED}@"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::ServerUrl;
    use crate::url::Endpoint;
    use proptest::prelude::*;

    #[test]
    fn the_parts_of_a_valid_url_are_shown_without_its_password() {
        for (url, shown) in [
            ("redis://h:1/2", "redis://h:1/2"),
            ("redis://[::1]:7/2", "redis://[::1]:7/2"),
            ("redis://app:hunter2@h:1/2", "redis://app:***@h:1/2"),
            ("redis://:hunter2@h", "redis://:***@h"),
            ("redis://hunter2@h", "redis://***@h"),
            ("redis://app:hun@ter2@h", "redis://app:***@h"),
            (
                "redis://app:hunter2@h?password=hunter2",
                "redis://app:***@h",
            ),
            ("redis://h#hunter2", "redis://h"),
            ("redis://h/hunter2", "redis://h/***"),
            (
                "redis+sentinel://app:hunter2@h:1,i:2/main",
                "redis+sentinel://app:***@h:1,i:2/main",
            ),
            ("redis+cluster://h:1,i:2", "redis+cluster://h:1,i:2"),
            (
                "unix:///run/a@b.sock?db=2&user=app&pass=hunter2@x&hunter2",
                "unix:///run/a@b.sock?db=2&user=app&pass=***&***",
            ),
            (
                "unix:///run/s?pass=hunter2&db=hunter2",
                "unix:///run/s?pass=***&***",
            ),
            ("memory://jobs", "memory://jobs"),
            ("http://x", "http://x"),
        ] {
            assert_eq!(mask(url), shown, "{url}");
        }
    }

    #[test]
    fn only_the_scheme_of_an_invalid_url_is_shown() {
        for (url, shown) in [
            ("redis://app:12/hunter2@h", "redis://***"),
            ("redis://app:12?hunter2@h", "redis://***"),
            ("redis://app:12#hunter2@h", "redis://***"),
            ("redis://h?password=@hunter2", "redis://***"),
            ("redis://h:6379?password=@hunter2", "redis://***"),
            ("redis://app:hunter2", "redis://***"),
            (
                "redis+sentinel://app:12/hunter2@h:1,i:2/main",
                "redis+sentinel://***",
            ),
            ("redis+sentinel://app:hunter2/h:1/s", "redis+sentinel://***"),
            ("redis+sentinel://h#hunter2/s", "redis+sentinel://***"),
            ("redis+cluster://app:hunter2,h:1", "redis+cluster://***"),
            ("unix://app:hun/ter2@/run/s", "unix://***"),
            ("unix://app:12/hunter2@/run/s", "unix://***"),
            ("unix://:hun/ter2@/run/s", "unix://***"),
            ("app:hunter2@h:1", "***"),
            ("redis:app:hunter2@h:1", "***"),
            ("//app:hunter2@h", "***"),
        ] {
            assert_eq!(mask(url), shown, "{url}");
        }
    }

    /// The beginning and the end of each generated secret. Neither may be shown, whatever text is between them.
    const ENDS: [&str; 2] = ["Xq7", "zQ9"];

    /// Returns URLs with a secret in each place in which users write one, including wrong places.
    fn urls(secret: &str) -> Vec<String> {
        let mut urls = Vec::new();
        for scheme in ["redis", "rediss", "valkey"] {
            urls.extend([
                format!("{scheme}://app:{secret}@h"),
                format!("{scheme}://:{secret}@h:1/2"),
                format!("{scheme}://h/{secret}"),
                format!("{scheme}://h?password={secret}"),
                format!("{scheme}://h:1?password=@{secret}"),
                format!("{scheme}://h/1?user=app&password={secret}"),
                format!("{scheme}://h#{secret}"),
            ]);
        }
        for kind in ["sentinel", "cluster"] {
            urls.extend([
                format!("redis+{kind}://app:{secret}@h:1,i/s"),
                format!("redis+{kind}://:{secret}@h:1"),
                format!("redis+{kind}://h,i/s?password={secret}"),
                format!("redis+{kind}://h,i#{secret}"),
            ]);
        }
        for path in ["/run/s", "/run/a@b"] {
            urls.extend([
                format!("unix://app:{secret}@{path}"),
                format!("unix://:{secret}@{path}"),
                format!("unix://{path}?pass={secret}"),
                format!("unix://{path}?db=1&password={secret}&db=2"),
                format!("unix://{path}?secret={secret}"),
                format!("unix://{path}?db={secret}"),
                format!("unix://{path}#{secret}"),
            ]);
        }
        urls.push(format!("app:{secret}@h:1"));
        urls.push(format!("redis:app:{secret}@h"));
        // The part before the first colon of a login is a user.
        if !secret.contains(':') {
            urls.push(format!("redis://{secret}@h"));
        }
        // Without a second `@`, the rest of a password after an `@` is parsed as a host, and looks like one.
        if !secret.contains('@') {
            urls.extend([
                format!("redis://app:{secret}"),
                format!("redis://app:{secret}:h:1"),
                format!("redis://h:{secret}/1"),
                format!("redis+sentinel://app:{secret}/h:1/s"),
                format!("redis+sentinel://h:1/s/{secret}"),
                format!("redis+cluster://app:{secret},h:1"),
            ]);
        }
        urls
    }

    proptest! {
        #[test]
        fn no_message_shows_a_part_of_a_secret(middle in "[ -~]{0,12}|[/?#@:&=%,]{1,6}") {
            let secret = format!("{}{middle}{}", ENDS[0], ENDS[1]);
            for text in urls(&secret) {
                let url = ServerUrl::from(text.as_str());
                let mut shown = format!("{url} {url:?}");
                if let Err(error) = Endpoint::parse(&text) {
                    shown += &format!("{error} {error:?}");
                }
                for end in ENDS {
                    prop_assert!(!shown.contains(end), "{text}: {shown}");
                }
            }
        }
    }
}
