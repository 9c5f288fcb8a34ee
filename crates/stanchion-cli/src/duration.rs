//! Durations on the command line: `5m`, `1h 30m`, and a bare number of seconds, as `flock -w` and `timeout` take it.

use std::time::Duration;

const RULE: &str = "a duration is a number of seconds, or a text such as 90s, 5m, 1h30m";

/// Parses a duration.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let is_number = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    if let Some(seconds) = is_number.then(|| text.parse().ok()).flatten() {
        return Duration::try_from_secs_f64(seconds).map_err(|_| RULE.into());
    }
    humantime::parse_duration(text).map_err(|_| RULE.into())
}

/// Parses a duration that is not shorter than `least`.
pub(crate) fn at_least(
    least: Duration,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text| match parse(text)? {
        given if given >= least => Ok(given),
        _ => Err(format!("at least {}", humantime::format_duration(least))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_number_is_seconds() {
        for (text, millis) in [
            ("5", 5000),
            ("0", 0),
            ("0.25", 250),
            ("5s", 5000),
            ("100ms", 100),
            ("1m 30s", 90_000),
            ("2h", 7_200_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in [
            "",
            ".",
            "-1",
            "-1s",
            "5x",
            "1.2.3",
            "inf",
            "1e3",
            "99999999999999999999",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_duration_below_the_bound_is_refused_with_the_bound() {
        let parse = at_least(Duration::from_millis(100));
        assert_eq!(parse("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(parse("99ms"), Err("at least 100ms".into()));
        assert_eq!(parse("x"), Err(RULE.into()));
    }
}
