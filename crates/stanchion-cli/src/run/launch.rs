//! The inner steps between `run` and the command: further processes of this program.
//!
//! `run` starts the [warden](super::warden), the warden starts the last step, and that replaces itself by the command. On
//! Linux the last step requests KILL from the kernel for when its parent dies. The request survives the replacement, and there
//! is no other way to make it without unsafe code.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::warden::{self, Post};
use crate::exit::{self, Failure};

/// The first arguments of the steps. They are not subcommands, so neither help nor completions offer them.
const WARDEN: &str = "__warden";
const STEP: &str = "__launch";

/// Builds the command that starts the warden of `words`.
pub(super) fn warden(post: &Post, words: &[OsString]) -> io::Result<Command> {
    let mut command = Command::new(this_program()?);
    command
        .arg0("stanchion")
        .arg(WARDEN)
        .args(post.to_args())
        .args(words);
    Ok(command)
}

/// Builds the command that starts `words`. Must be spawned from the main thread: the kernel watches the parent *thread*.
pub(super) fn command(words: &[OsString]) -> io::Result<Command> {
    let mut command = Command::new(this_program()?);
    let parent = std::process::id().to_string();
    command.arg0("stanchion").arg(STEP).arg(parent).args(words);
    Ok(command)
}

/// The path of this program. An update may have replaced the file; on Linux `/proc/self/exe` is still the one that runs.
pub(crate) fn this_program() -> io::Result<PathBuf> {
    let running = Path::new("/proc/self/exe");
    if running.exists() {
        Ok(running.to_owned())
    } else {
        std::env::current_exe()
    }
}

/// Runs an inner step, if the arguments name one. The last step returns only when it fails.
pub(crate) fn inner(mut args: impl Iterator<Item = OsString>) -> Option<Result<u8, Failure>> {
    let _program = args.next();
    let step = args.next()?;
    if step == WARDEN {
        return Some(warden::keep(args).map(|()| exit::SUCCESS));
    }
    if step != STEP {
        return None;
    }
    let parent = args.next()?.to_str()?.parse().ok()?;
    if let Err(error) = die_with_parent(parent) {
        return Some(Err(error.into()));
    }
    let Some(command) = args.next() else {
        // `run` without a command: a signal ends this process.
        loop {
            std::thread::park();
        }
    };
    let error = Command::new(&command).args(args).exec();
    Some(Err(cannot_start(&command, &error)))
}

#[cfg(target_os = "linux")]
fn die_with_parent(parent: i32) -> io::Result<()> {
    use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
    // KILL, because no process may be left to send it after a TERM.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have died before the request to the kernel.
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

/// The failure for a command that does not start, with the shell's exit codes.
pub(crate) fn cannot_start(command: &OsStr, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => exit::NOT_FOUND,
        _ => exit::NOT_EXECUTABLE,
    };
    let command = command.to_string_lossy();
    Failure::new(code, format_args!("cannot run {command}: {error}"))
}
