//! Comparison of replies that say the same in other words.

/// Errors by their code, numbers by their value, everything else by its bytes.
pub(crate) fn alike(one: &[u8], other: &[u8]) -> bool {
    let (one, other) = (parts(one), parts(other));
    one.len() == other.len() && one.iter().zip(&other).all(|(a, b)| same(a, b))
}

fn same(one: &[u8], other: &[u8]) -> bool {
    if one == other {
        return true;
    }
    match (one.split_first(), other.split_first()) {
        (Some((b'-', one)), Some((b'-', other))) => code(one) == code(other),
        // A bulk string without its length, or a double.
        (Some((a @ (b'$' | b','), one)), Some((b, other))) if a == b => {
            // 0 and -0 are one value, nan is itself.
            let key = |text| number(text).map(|number| (number + 0.0).to_bits());
            key(one).is_some() && key(one) == key(other)
        }
        _ => false,
    }
}

fn code(error: &[u8]) -> Option<&[u8]> {
    error.split(|byte| *byte == b' ').next()
}

fn number(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The lines of a reply, its strings without their lengths.
fn parts(reply: &[u8]) -> Vec<Vec<u8>> {
    let mut parts = Vec::new();
    let mut rest = reply;
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let (line, after) = (&rest[..end], &rest[end + 2..]);
        let length = match line.split_first() {
            Some((b'$' | b'=', length)) => number(length),
            _ => None,
        };
        match length {
            Some(length) if length >= 0.0 => {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a length that was sent"
                )]
                let text = &after[..length as usize];
                parts.push([b"$", text].concat());
                rest = &after[text.len() + 2..];
            }
            _ => {
                parts.push(line.to_vec());
                rest = after;
            }
        }
    }
    parts
}

#[test]
fn codes_and_values_count() {
    for (one, other, wanted) in [
        ("-ERR no\r\n", "-ERR not at all\r\n", true),
        ("-ERR no\r\n", "-WRONGTYPE no\r\n", false),
        ("-ERR no\r\n", "+ERR no\r\n", false),
        ("$3\r\n0.1\r\n", "$19\r\n0.10000000000000001\r\n", true),
        (",0.1\r\n", ",0.10000000000000001\r\n", true),
        ("$3\r\n0.1\r\n", "$3\r\n0.2\r\n", false),
        ("$1\r\n0\r\n", "$2\r\n-0\r\n", true),
        ("$3\r\n1.0\r\n", ":1\r\n", false),
        (":1\r\n", ":2\r\n", false),
        ("$1\r\na\r\n", "$1\r\nb\r\n", false),
        ("$-1\r\n", "$0\r\n\r\n", false),
        ("*2\r\n:1\r\n-A b\r\n", "*2\r\n:1\r\n-A c\r\n", true),
        ("*2\r\n:1\r\n:1\r\n", "*1\r\n:1\r\n", false),
        ("$4\r\n\r\n\r\n\r\n", "$4\r\n\r\n-x\r\n", false),
    ] {
        assert_eq!(
            alike(one.as_bytes(), other.as_bytes()),
            wanted,
            "{one:?} {other:?}"
        );
    }
}
