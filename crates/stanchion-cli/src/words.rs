//! The words of the command that `run`, `lead`, `limit` and `barrier` start. `--` before them may be left out, as with `flock` and
//! `consul lock`: what follows the command's name then belongs to the command.
//!
//! An option that both sides may mean is refused, with both lines to type: a `--wait 0` that went to the command would leave this program
//! waiting indefinitely.

use std::ffi::{OsStr, OsString};

use crate::exit::{self, Failure};
use crate::wording;

/// The options of the server, which every command that has a server takes.
const OF_SERVER: [&str; 4] = ["--url", "--url-file", "--prefix", "--tls-ca"];

/// Moves the options of the server that come before the name of the command to the place after it. `stanchion --url URL run …` is what
/// users of `redis-cli -u` and `psql` type first.
pub(crate) fn options_after_command(line: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut line: Vec<OsString> = line.into_iter().collect();
    let mut end = 1;
    while let Some(text) = line.get(end).and_then(|word| word.to_str()) {
        match text.split_once('=') {
            Some((option, _)) if OF_SERVER.contains(&option) => end += 1,
            None if OF_SERVER.contains(&text) => end += 2,
            _ => break,
        }
    }
    if end > 1 && end < line.len() {
        line[1..=end].rotate_right(1);
    }
    line
}

/// Refuses long options of the subcommand after the command's name, unless `--` is before the command. `line` is the whole command line.
pub(crate) fn check(
    subcommand: &clap::Command,
    line: &[OsString],
    command: &[OsString],
) -> Result<(), Failure> {
    let before = &line[..line.len().saturating_sub(command.len())];
    let Some((program, words)) = command.split_first() else {
        return Ok(());
    };
    if before.last().is_some_and(|word| word == "--") {
        return Ok(());
    }
    let (mut moved, mut kept) = (Vec::new(), vec![program]);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            kept.push(word);
            break;
        }
        match takes_value(subcommand, word) {
            None => kept.push(word),
            Some(false) => moved.push(word),
            Some(true) => moved.extend([word].into_iter().chain(words.next())),
        }
    }
    kept.extend(words);
    let Some(option) = moved.first() else {
        return Ok(());
    };
    let name = subcommand.get_name();
    let ours = shown(before.iter().chain(moved.iter().copied()).chain(kept));
    let dashes = OsString::from("--");
    let theirs = shown(before.iter().chain([&dashes]).chain(command));
    Err(Failure::new(
        exit::USAGE,
        format_args!(
            "{} after the command may be an option of `{name}` or of the command: type `{ours}` or `{theirs}`",
            option.to_string_lossy(),
        ),
    ))
}

/// Returns whether `word` is an option of the subcommand, and whether the next word is its value.
fn takes_value(subcommand: &clap::Command, word: &OsStr) -> Option<bool> {
    let text = word.to_str()?.strip_prefix("--")?;
    let (long, value) = match text.split_once('=') {
        Some((long, value)) => (long, Some(value)),
        None => (text, None),
    };
    let option = subcommand.get_arguments().find(|argument| {
        let names = argument.get_long_and_visible_aliases().unwrap_or_default();
        names.contains(&long)
    })?;
    Some(value.is_none() && option.get_action().takes_values())
}

/// The words as a shell takes them.
fn shown<'a>(words: impl Iterator<Item = &'a OsString>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./:=@%+,-".contains(c);
    let words = words
        .enumerate()
        .map(|(at, word)| match word.to_string_lossy() {
            // The path of this program has no meaning for the user.
            _ if at == 0 => "stanchion".to_owned(),
            word if !word.is_empty() && word.chars().all(plain) => word.into_owned(),
            word => format!(
                "'{}'",
                wording::printable(word.as_bytes()).replace('\'', r"'\''")
            ),
        });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn refusal(line: &str) -> Option<String> {
        let line: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let cli = crate::Cli::command();
        let matches = cli.clone().try_get_matches_from(&line).unwrap();
        let (name, matches) = matches.subcommand().unwrap();
        let command: Vec<OsString> = matches.get_many("command").unwrap().cloned().collect();
        let subcommand = cli.find_subcommand(name).unwrap();
        check(subcommand, &line, &command)
            .err()
            .map(|error| error.to_string())
    }

    #[test]
    fn options_of_the_server_may_come_before_the_command() {
        for (typed, read) in [
            ("s --url u run --wait 0 x y", "s run --url u --wait 0 x y"),
            (
                "s --prefix=p --url u ls --scan",
                "s ls --prefix=p --url u --scan",
            ),
            ("s run --url u x y", "s run --url u x y"),
            ("s --url u", "s --url u"),
            ("s --url", "s --url"),
            ("s --version", "s --version"),
            ("s", "s"),
        ] {
            let line = typed.split(' ').map(OsString::from);
            let after = options_after_command(line);
            let read: Vec<OsString> = read.split(' ').map(OsString::from).collect();
            assert_eq!(after, read, "{typed}");
        }
    }

    #[test]
    fn an_option_that_only_the_command_can_mean_belongs_to_the_command() {
        for line in [
            "stanchion run job ./x",
            "stanchion run job ./x -v -w 5 --all a",
            "stanchion run --wait 5 job ./x --help",
            "stanchion run job --wait 5m ./x -- --wait",
            "stanchion run job -- ./x --wait 5m",
            "stanchion lead job ./x --fair",
            "stanchion limit api --rate 10/s ./x",
            "stanchion barrier step --parties 4 ./x",
        ] {
            assert_eq!(refusal(line), None, "{line}");
        }
    }

    #[test]
    fn an_option_that_both_can_mean_is_refused_with_both_lines() {
        for (line, ours, theirs) in [
            (
                "stanchion run job ./x --wait 5m y",
                "stanchion run job --wait 5m ./x y",
                "stanchion run job -- ./x --wait 5m y",
            ),
            (
                "stanchion run job ./x --wait=0 --fair -- --json",
                "stanchion run job --wait=0 --fair ./x -- --json",
                "stanchion run job -- ./x --wait=0 --fair -- --json",
            ),
            (
                "stanchion limit api --rate 1/s ./x --wait a$b",
                "stanchion limit api --rate 1/s --wait 'a$b' ./x",
                "stanchion limit api --rate 1/s -- ./x --wait 'a$b'",
            ),
        ] {
            let told = refusal(line).unwrap();
            let both = format!(": type `{ours}` or `{theirs}`");
            assert!(told.ends_with(&both), "{told}");
        }
    }
}
