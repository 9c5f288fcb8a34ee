//! What the library logs, on standard error: with `STANCHION_LOG` as it is, otherwise warnings in the form of the program's own messages.

use std::fmt::Debug;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{FmtSpan, FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{self, FmtContext};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;

use crate::exit::{self, Failure};
use crate::wording::printable;
use crate::{Command, output};

/// Starts logging.
pub(crate) fn to_stderr(command: &Command) -> Result<(), Failure> {
    let default = match command {
        // Log lines would break the display.
        Command::Top(args) if args.is_live() => "off",
        Command::Run(args) if args.work.json => "off",
        Command::Lead(args) if args.work.json => "off",
        // `run` itself reports that the lock was lost.
        Command::Run(_) | Command::Lead(_) => "warn,stanchion_core::hold=error",
        // Shows outages itself.
        Command::Watch(_) => "warn,stanchion_transport::link=off",
        _ => "warn",
    };
    let asked = std::env::var_os("STANCHION_LOG").filter(|asked| !asked.is_empty());
    let Some(asked) = asked else {
        let lines = fmt::layer().event_format(Tidy).with_writer(std::io::stderr);
        let filter: Targets = default.parse().unwrap_or_default();
        tracing_subscriber::registry()
            .with(lines.with_filter(filter))
            .init();
        return Ok(());
    };
    let filter = parse_filter(&asked.to_string_lossy()).map_err(|rule| {
        let asked = asked.display();
        Failure::new(exit::USAGE, format_args!("STANCHION_LOG={asked}: {rule}"))
    })?;
    // An operation is logged at its end, with its duration.
    let lines = fmt::layer()
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(std::io::stderr)
        .with_ansi(output::may_colour(&std::io::stderr()))
        .without_time();
    tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .init();
    Ok(())
}

/// Writes a warning of the library as the program's own messages: one line, without level and target.
struct Tidy;

impl<S, N> FormatEvent<S, N> for Tidy
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let mut line = Line::default();
        event.record(&mut line);
        let Line { message, fields } = line;
        let text = match fields.is_empty() {
            true => message,
            false => format!("{message} ({})", fields.join(", ")),
        };
        writeln!(writer, "stanchion: {}", printable(&text))
    }
}

/// The parts of an event.
#[derive(Default)]
struct Line {
    message: String,
    fields: Vec<String>,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.fields.push(format!("{name} {value:?}")),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

/// Parses a log filter. Refuses text that the library would take for a target that logs nothing: a single word that is not a level, and
/// targets that are not module paths.
fn parse_filter(text: &str) -> Result<Targets, String> {
    let levels = [
        "off", "error", "warn", "info", "debug", "trace", "0", "1", "2", "3", "4", "5",
    ];
    let in_path = |it: char| it.is_alphanumeric() || "_:-".contains(it);
    for word in text.split(',').map(str::trim) {
        let is_word = word.chars().all(char::is_alphanumeric);
        if is_word && !levels.contains(&word.to_ascii_lowercase().as_str()) {
            return Err(format!(
                "{word:?} is no level: use off, error, warn, info, debug or trace, or target=level"
            ));
        }
        let target = word.split_once('=').map_or(word, |(target, _)| target);
        if target.is_empty() || !target.chars().all(in_path) {
            return Err(format!(
                "{word:?} is no target=level: a target is the path of a module, and is followed by its level"
            ));
        }
    }
    text.parse::<Targets>().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_would_never_log_is_refused() {
        for good in [
            "debug",
            "warn,stanchion_core=debug",
            "stanchion_core::hold=trace",
            "OFF",
        ] {
            assert!(parse_filter(good).is_ok(), "{good}");
        }
        for bad in [
            "debgu",
            "verbose",
            "warn,nonsense",
            "stanchion_core=loud",
            "=,=",
            "=debug",
            "stanchion_core[acquire]=debug",
        ] {
            assert!(parse_filter(bad).is_err(), "{bad}");
        }
    }
}
