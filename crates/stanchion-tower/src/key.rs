//! The header `Idempotency-Key`.

use http::HeaderMap;

use crate::refusal::Refusal;

const LONGEST_KEY: usize = 255;

/// Returns the key of a request. The draft has a quoted string (RFC 8941); many clients send the key without quotes.
pub(crate) fn key_of(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let text = value.to_str().map_err(|_| Refusal::KeyInvalid)?;
    let key = match text.strip_prefix('"') {
        Some(quoted) => unquoted(quoted).ok_or(Refusal::KeyInvalid)?,
        None if text.contains([' ', '\t']) => return Err(Refusal::KeyInvalid),
        None => text.to_owned(),
    };
    if values.next().is_some() || key.is_empty() || key.len() > LONGEST_KEY {
        return Err(Refusal::KeyInvalid);
    }
    Ok(Some(key))
}

/// Reads a string of RFC 8941 behind its first quote.
fn unquoted(text: &str) -> Option<String> {
    let (mut key, mut chars) = (String::new(), text.strip_suffix('"')?.chars());
    while let Some(char) = chars.next() {
        key.push(match char {
            '\\' => chars.next().filter(|next| ['"', '\\'].contains(next))?,
            '"' | '\t' => return None,
            other => other,
        });
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn key(values: &[&'static str]) -> Result<Option<String>, Refusal> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("idempotency-key", HeaderValue::from_static(value));
        }
        key_of(&headers)
    }

    #[test]
    fn keys_are_strings_with_or_without_quotes() {
        assert_eq!(key(&[]), Ok(None));
        for (value, wanted) in [
            ("\"8e03978e-40d5\"", "8e03978e-40d5"),
            ("8e03978e-40d5", "8e03978e-40d5"),
            (r#""a \"b\" \\ c""#, r#"a "b" \ c"#),
        ] {
            assert_eq!(key(&[value]), Ok(Some(wanted.to_owned())), "{value}");
        }
        for value in [
            "", "\"\"", "\"a", "\"", "a b", r#""a"b""#, r#""a\b""#, "\"a\\\"",
        ] {
            assert_eq!(key(&[value]), Err(Refusal::KeyInvalid), "{value}");
        }
        assert_eq!(key(&["a", "a"]), Err(Refusal::KeyInvalid));
        let long = "k".repeat(LONGEST_KEY + 1).leak();
        assert_eq!(key(&[long]), Err(Refusal::KeyInvalid));
        assert!(key(&[&long[1..]]).is_ok());
    }
}
