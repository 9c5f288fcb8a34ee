//! Options of `flock` and similar programs that `run` does not have, with what to write instead.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::exit::{self, Failure};

/// The commands that take another command.
const WITH_COMMAND: [&str; 4] = ["run", "lead", "limit", "barrier"];

/// The options, and what to write instead.
const OURS: [(&[&str], &str); 7] = [
    (&["-n", "--nb", "--nonblock"], "write --wait 0"),
    (
        &["-s", "--shared"],
        "write --read, and --write for commands that change something: a plain `run NAME` does not exclude readers",
    ),
    (
        &["-x", "-e", "--exclusive"],
        "leave it out: a plain `run NAME` is exclusive; next to commands with --read write --write",
    ),
    (&["-c", "--command"], "write -- sh -c 'COMMAND'"),
    (&["--timeout"], "write --wait"),
    (&["--ttl"], "write --lease"),
    (
        &["-u", "--unlock", "-o", "--close", "-F", "--no-fork"],
        "leave it out: the lock ends with the command",
    ),
];

/// Returns the error for a command line that clap refuses. Clap's tip for an unknown option, `use '-- -n'`, would make the option the name
/// of a lock.
pub(crate) fn explain(mut error: clap::Error, line: &[OsString]) -> Result<Failure, clap::Error> {
    let command = line.get(1).and_then(|word| word.to_str());
    let Some(command) = command.filter(|it| WITH_COMMAND.contains(it)) else {
        return Err(error);
    };
    if error.kind() != ErrorKind::UnknownArgument {
        return Err(error);
    }
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return Err(error);
    };
    let ours = OURS
        .iter()
        .find(|(theirs, _)| theirs.contains(&option.as_str()));
    match ours.filter(|_| matches!(command, "run" | "lead")) {
        Some((_, instead)) => Ok(Failure::new(
            exit::USAGE,
            format_args!(
                "`{command}` has no option {option}: {instead} (`stanchion {command} --help`)"
            ),
        )),
        None => {
            error.remove(ContextKind::Suggested);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    fn told(line: &str) -> String {
        let line: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let error = crate::Cli::try_parse_from(&line).unwrap_err();
        match explain(error, &line) {
            Ok(failure) => failure.to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn options_of_flock_name_ours() {
        for (line, instead) in [
            ("stanchion run -n job true", "--wait 0"),
            ("stanchion run --nonblock job true", "--wait 0"),
            ("stanchion run -s job true", "--read"),
            ("stanchion run --shared job true", "--read"),
            ("stanchion run -x job true", "--write"),
            ("stanchion run -e job true", "is exclusive"),
            ("stanchion run job -c true", "sh -c"),
            ("stanchion run --timeout 5 job true", "--wait"),
            ("stanchion run --ttl 5 job true", "--lease"),
            ("stanchion lead -n job true", "--wait 0"),
        ] {
            let told = told(line);
            assert!(told.contains("has no option -"), "{line}: {told}");
            assert!(told.contains(instead), "{line}: {told}");
        }
    }

    #[test]
    fn no_tip_makes_an_option_the_name_of_a_lock() {
        for line in [
            "stanchion run -z job true",
            "stanchion run --zonk job true",
            "stanchion barrier -z step --parties 2",
        ] {
            let told = told(line);
            assert!(told.contains("unexpected argument"), "{told}");
            assert!(!told.contains("'-- "), "{told}");
        }
    }
}
