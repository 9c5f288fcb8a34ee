//! The last step before the command: this program, started once more, replaces itself by the command.
//!
//! On Linux that step asks the kernel for TERM should the parent die. Otherwise a command whose `stanchion run` was
//! killed would work on without the lock. The request survives the replacement, and there is no other way to make
//! it without unsafe code.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::exit::{self, Failure};

/// The first argument of that step. It is no subcommand, so that neither help nor completions offer it.
const STEP: &str = "__launch";

/// What starts `words`. Must be spawned from the main thread: the kernel's request is about the parent *thread*.
pub(super) fn command(words: &[OsString]) -> io::Result<Command> {
    let mut command = Command::new(this_program()?);
    command
        .arg(STEP)
        .arg(std::process::id().to_string())
        .args(words);
    Ok(command)
}

/// The file may have been replaced by an update since; Linux still has the one that runs.
fn this_program() -> io::Result<PathBuf> {
    let running = Path::new("/proc/self/exe");
    if running.exists() {
        Ok(running.to_owned())
    } else {
        std::env::current_exe()
    }
}

/// Becomes the command if this is that step. Returns only when it is not, or when that fails.
pub(crate) fn launch(mut args: impl Iterator<Item = OsString>) -> Option<Failure> {
    let _program = args.next();
    args.next().filter(|step| step == STEP)?;
    let parent = args.next()?.to_str()?.parse().ok()?;
    let command = args.next()?;
    if let Err(error) = die_with_parent(parent) {
        return Some(error.into());
    }
    let error = Command::new(&command).args(args).exec();
    Some(cannot_start(&command, &error))
}

#[cfg(target_os = "linux")]
fn die_with_parent(parent: i32) -> io::Result<()> {
    use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // It may have died before the kernel knew.
    if getppid().map(Pid::as_raw_pid) == Some(parent) {
        Ok(())
    } else {
        Err(io::Error::other(
            "stanchion was killed before it had started the command",
        ))
    }
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent(_parent: i32) -> io::Result<()> {
    Ok(())
}

/// The shell's codes for a command that does not start.
pub(super) fn cannot_start(command: &OsStr, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => exit::NOT_FOUND,
        _ => exit::NOT_EXECUTABLE,
    };
    let command = command.to_string_lossy();
    Failure::new(code, format_args!("cannot run {command}: {error}"))
}
