//! Numbers in the formats of Redis.

/// Parses a 64 bit integer in its canonical spelling: no plus sign, no leading zero, no space.
pub(crate) fn parse_int(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let canonical = match digits {
        [b'0'] => digits.len() == text.len(),
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !canonical || text.len() > 20 {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Parses a floating point number as `strtod` does; refuses NaN.
pub(crate) fn parse_double(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let number: f64 = text.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

/// Formats a double as C does with `%.17g`.
pub(crate) fn format_double(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if let Some(whole) = as_whole(number) {
        return whole.to_string();
    }
    let scientific = format!("{number:.16e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..17).contains(&exponent) {
        let decimals = usize::try_from(16 - exponent).unwrap_or_default();
        return trim_zeros(&format!("{number:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trim_zeros(mantissa), exponent.abs())
}

/// Returns `number` as an integer if `%.17g` prints it as one. Minus zero is not an integer.
pub(crate) fn as_whole(number: f64) -> Option<i64> {
    let plain = number.fract() == 0.0 && number.abs() < 1e17;
    let minus_zero = number == 0.0 && number.is_sign_negative();
    (plain && !minus_zero).then(|| truncate(number))
}

/// Returns the integer part, as C converts a double; out of range values saturate.
pub(crate) fn truncate(number: f64) -> i64 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the cast saturates, which is the wanted result"
    )]
    let whole = number as i64;
    whole
}

fn trim_zeros(text: &str) -> &str {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_one_spelling() {
        for (text, value) in [("0", 0), ("-1", -1), ("9223372036854775807", i64::MAX)] {
            assert_eq!(parse_int(text.as_bytes()), Some(value));
        }
        for text in [
            "",
            "-",
            "+1",
            "01",
            "-0",
            " 1",
            "1 ",
            "1.0",
            "9223372036854775808",
        ] {
            assert_eq!(parse_int(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn doubles_print_as_printf_does() {
        for (number, text) in [
            (0.1, "0.10000000000000001"),
            (3.0, "3"),
            (-1.5, "-1.5"),
            (1e17, "1e+17"),
            (1e16, "10000000000000000"),
            (1e-5, "1.0000000000000001e-05"),
            (123_456.789, "123456.789"),
            (f64::INFINITY, "inf"),
            (-0.0, "-0"),
        ] {
            assert_eq!(format_double(number), text);
        }
    }
}
