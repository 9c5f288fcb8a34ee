//! The URI by which a layer identifies a request.

use std::borrow::Cow;

use http::Uri;
use http::request::Parts;

/// Calls `f` with the parts of a request. In them, `uri` is the one that the client sent, with a normal path.
///
/// A nested router of axum removes its prefix from `uri`: two resources would have one key, and two requests one fingerprint. A router decodes
/// paths, so a client could choose a second key for a resource by another spelling of its path.
pub(crate) fn identified<T>(parts: &mut Parts, f: impl FnOnce(&Parts) -> T) -> T {
    let uri = normal_uri(sent(parts));
    let routed = std::mem::replace(&mut parts.uri, uri);
    let value = f(parts);
    parts.uri = routed;
    value
}

#[cfg(feature = "axum")]
fn sent(parts: &Parts) -> &Uri {
    let original = parts.extensions.get::<axum::extract::OriginalUri>();
    original.map_or(&parts.uri, |original| &original.0)
}

#[cfg(not(feature = "axum"))]
fn sent(parts: &Parts) -> &Uri {
    &parts.uri
}

fn normal_uri(uri: &Uri) -> Uri {
    let Cow::Owned(path) = normal(uri.path()) else {
        return uri.clone();
    };
    let target = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path,
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = target.parse().ok();
    // OK: the normal path has no byte that a path may not have.
    Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
}

/// Returns whether a segment of a path may have this byte without an escape: `pchar` of RFC 3986.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte)
}

/// Returns the path with escapes where they are needed, and nowhere else, in upper case. Two paths have one normal form if and only if their
/// decoded segments are equal.
fn normal(path: &str) -> Cow<'_, str> {
    if path.bytes().all(|byte| is_plain(byte) || byte == b'/') {
        return Cow::Borrowed(path);
    }
    let mut normal = String::with_capacity(path.len() + 8);
    let mut rest = path.as_bytes();
    while let [first, after @ ..] = rest {
        let escaped = (*first == b'%').then(|| escaped(after)).flatten();
        let (byte, is_escaped) = escaped.map_or((*first, false), |byte| (byte, true));
        rest = if is_escaped { &after[2..] } else { after };
        if is_plain(byte) || byte == b'/' && !is_escaped {
            normal.push(char::from(byte));
        } else {
            normal.push_str(&format!("%{byte:02X}"));
        }
    }
    Cow::Owned(normal)
}

/// Reads the two hexadecimal digits of an escape.
fn escaped(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*digits.get(at)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_a_path_have_one_normal_form() {
        for (path, wanted) in [
            ("/", "/"),
            ("*", "*"),
            ("/orders/7", "/orders/7"),
            ("/orders/%37", "/orders/7"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%2Fb/c", "/a%2Fb/c"),
            ("/x%3ay:z", "/x:y:z"),
            ("/%7bx%7D", "/%7Bx%7D"),
            ("/{x}", "/%7Bx%7D"),
            ("/\u{e9}", "/%C3%A9"),
            ("/%c3%a9", "/%C3%A9"),
            ("/100%", "/100%25"),
            ("/100%zz", "/100%25zz"),
            ("/100%25zz", "/100%25zz"),
            ("/%2", "/%252"),
        ] {
            assert_eq!(normal(path), wanted, "{path}");
            assert_eq!(normal(wanted), wanted);
        }
    }

    #[test]
    fn the_rest_of_a_uri_stays() {
        let uri = "https://shop.example/orders/%37?a=%37&b"
            .parse::<Uri>()
            .unwrap();
        assert_eq!(normal_uri(&uri), "https://shop.example/orders/7?a=%37&b");
    }
}
