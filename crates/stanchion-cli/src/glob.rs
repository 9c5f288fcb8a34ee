//! Patterns for names, as Redis' `SCAN … MATCH` has them: `*`, `?`, `[a-z]`, `[^x]`, `\x`.

/// Returns whether `text` matches `pattern`.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    // The position to return to: the pattern after the last star, and the text that the star has matched. One position bounds the time.
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, t));
            p += 1;
            continue;
        }
        let step = match text.get(t) {
            None if p == pattern.len() => return true,
            None => return false,
            Some(byte) => one(&pattern[p..], *byte),
        };
        match (step, star) {
            (Some(taken), _) => (p, t) = (p + taken, t + 1),
            (None, Some((after, eaten))) => {
                star = Some((after, eaten + 1));
                (p, t) = (after, eaten + 1);
            }
            (None, None) => return false,
        }
    }
}

/// Matches one byte, and returns how much of the pattern that took.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [b'[', rest @ ..] => {
            let end = rest.iter().position(|b| *b == b']').unwrap_or(rest.len());
            let (set, negated) = match &rest[..end] {
                [b'^', set @ ..] => (set, true),
                set => (set, false),
            };
            (among(set, byte) != negated).then_some(end + 2)
        }
        [literal, ..] => (*literal == byte).then_some(1),
    }
}

fn among(mut set: &[u8], byte: u8) -> bool {
    loop {
        set = match set {
            [] => return false,
            [from, b'-', to, rest @ ..] => {
                if (*from..=*to).contains(&byte) {
                    return true;
                }
                rest
            }
            [b'\\', literal, rest @ ..] | [literal, rest @ ..] => {
                if *literal == byte {
                    return true;
                }
                rest
            }
        };
    }
}

/// The pattern that matches `text` and nothing else.
pub(crate) fn literal(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_those_of_scan() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("job:*", "job:7", true),
            ("job:?", "job:77", false),
            ("*:job", "a:b:job", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b-d", false),
            ("[a-c]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("[", "x", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
        assert!(matches(literal("p[1]*?\\").as_bytes(), b"p[1]*?\\"));
        assert!(!matches(literal("p*").as_bytes(), b"pq"));
    }

    #[test]
    fn many_stars_end_in_time() {
        let text = [b'a'; 4000];
        assert!(!matches(b"*a*a*a*a*a*a*a*a*a*a*b", &text));
    }
}
