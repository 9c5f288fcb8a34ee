//! Finding the server of this user, and starting it, for a `run` without a URL.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::host::Host;
use super::place::Place;
use super::{IDLE, Idle, MAX_MEMORY};
use crate::exit::{self, Failure};
use crate::run::launch::this_program;

/// The first arguments of the two steps. They are not subcommands, so neither help nor completions offer them.
const DETACH: &str = "__detach";
const SERVER: &str = "__server";
/// The idle time of a server within another `run`.
const SHORT: Duration = Duration::from_secs(1);
/// The word that the started process prints when it, or another server, is ready.
const READY: &str = "ready";

/// The server that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Running,
    Started,
}

/// Finds the server at `socket`, or starts it. Blocks until it listens.
pub(crate) fn find_or_start(socket: &Path) -> Result<Found, Failure> {
    if is_running(socket)? {
        return Ok(Found::Running);
    }
    let said = start(socket)?;
    match said.trim_end() {
        READY => Ok(Found::Started),
        why => {
            let why = if why.is_empty() { "it was killed" } else { why };
            let rule = format!("cannot start a server for this user: {why}");
            Err(Failure::new(exit::UNAVAILABLE, rule))
        }
    }
}

/// The failure where there is no server, and none is to be started.
pub(crate) fn no_server() -> Failure {
    let rule = "no URL is given (--url, STANCHION_URL), and no server of this user runs on this machine; `stanchion serve` starts one";
    Failure::new(exit::UNAVAILABLE, rule)
}

/// Returns whether a server answers at `socket`.
pub(crate) fn is_running(socket: &Path) -> Result<bool, Failure> {
    match UnixStream::connect(socket) {
        Ok(_) => Ok(true),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Ok(false),
            _ => {
                let socket = socket.display();
                let rule = format!("cannot connect to {socket}: {error}");
                Err(Failure::new(exit::UNAVAILABLE, rule))
            }
        },
    }
}

/// Starts a server that outlives this process, and returns its output once it is ready.
fn start(socket: &Path) -> io::Result<String> {
    // An outer `run` waits for the end of the server. There the server must end soon, but not before this process has had the time to
    // connect.
    let is_within_run = std::env::var_os("STANCHION_NAME").is_some();
    let idle = if is_within_run { SHORT } else { IDLE };
    let mut step = Command::new(this_program()?)
        .arg0("stanchion")
        .arg(DETACH)
        .arg(socket)
        .arg(idle.as_millis().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut said = String::new();
    // Ends when both the step and the server have closed it.
    if let Some(mut out) = step.stdout.take() {
        out.read_to_string(&mut said)?;
    }
    step.wait()?;
    Ok(said)
}

/// Runs one of the two steps, if the arguments name one.
pub(crate) fn inner(mut args: impl Iterator<Item = OsString>) -> Option<Result<u8, Failure>> {
    let _program = args.next();
    let step = args.next()?;
    if step != DETACH && step != SERVER {
        return None;
    }
    let socket = PathBuf::from(args.next()?);
    let idle = args.next()?.to_str()?.parse().ok()?;
    let done = if step == DETACH {
        detach(&socket, idle).map_err(Failure::from)
    } else {
        serve(&socket, Idle::After(Duration::from_millis(idle)))
    };
    if let Err(failure) = &done {
        // OK: the process that started this one may have ended.
        let _ = crate::output::line(&failure.to_string());
    }
    Some(done.map(|()| exit::SUCCESS).map_err(Failure::told))
}

/// The first step: leaves the terminal, the directory and the files of `run`, starts the server and ends, so that the server
/// is not a child of the process that needed it.
fn detach(socket: &Path, idle: u64) -> io::Result<()> {
    close_inherited()?;
    // Signals for the session of `run`, also Ctrl-C, must not reach the server.
    rustix::process::setsid()?;
    Command::new(this_program()?)
        .arg0("stanchion")
        .arg(SERVER)
        .arg(socket)
        .arg(idle.to_string())
        .current_dir("/")
        .env_remove("STANCHION_NAME")
        .env_remove("STANCHION_FENCING_TOKEN")
        .spawn()?;
    Ok(())
}

/// Closes what `run` was given beyond the standard streams: a server that kept a pipe or a locked file of a script open would
/// keep that script's caller waiting.
fn close_inherited() -> io::Result<()> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir("/dev/fd")? {
        let number = entry?.file_name().to_string_lossy().parse::<i32>();
        numbers.extend(number.into_iter().filter(|number| *number > 2));
    }
    for number in numbers {
        // OK: the directory itself is closed already.
        let _ = nix::unistd::close(number);
    }
    Ok(())
}

/// The second step: the server. Prints `ready` on standard output when it or another one listens, and then closes standard output.
fn serve(socket: &Path, idle: Idle) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let host = match Place::take_or_find(socket).await? {
            Ok(place) => Some(Host::on_socket(place, idle)?),
            Err(_) => None,
        };
        crate::output::line(READY)?;
        let nowhere = File::options().write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdout(nowhere.as_fd()).map_err(io::Error::from)?;
        match host {
            Some(host) => Box::pin(host.with_memory(MAX_MEMORY).serve())
                .await
                .map(drop),
            None => Ok(()),
        }
    })
}
