//! The command: starting it, watching it and the lock, stopping it.

use std::convert::Infallible;
use std::io::{self, IsTerminal};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use stanchion::LostReason;

use super::signals::Signals;
use super::target::Held;
use super::{RunArgs, launch};

/// How the command ended.
#[derive(Debug)]
pub(super) enum End {
    /// By itself, or by a signal that was meant for it.
    Exited(ExitStatus),
    /// It was stopped, because the lock was lost.
    Lost(LostReason),
}

/// The running command.
#[derive(Debug)]
pub(super) struct Child {
    process: tokio::process::Child,
    /// The terminal sends INT and QUIT to the whole foreground group.
    has_terminal: bool,
}

impl Child {
    /// Starts the command in the caller's process group, so that job control works as without us.
    pub(super) fn start(args: &RunArgs, held: &Held) -> io::Result<Self> {
        let mut command = launch::command(&args.command)?;
        command.env("STANCHION_NAME", &args.name);
        // One of an outer `run` must not be taken for ours.
        command.env_remove("STANCHION_FENCING_TOKEN");
        if let Some(token) = held.fencing_token() {
            command.env("STANCHION_FENCING_TOKEN", token.to_string());
        }
        let mut command = tokio::process::Command::from(command);
        // If this program panics, nobody renews any more.
        command.kill_on_drop(true);
        Ok(Self {
            process: command.spawn()?,
            has_terminal: io::stdin().is_terminal(),
        })
    }

    /// Waits for the command's end, passes signals on, and stops it when the lock is lost.
    pub(super) async fn supervise(
        &mut self,
        held: &Held,
        signals: &mut Signals,
        grace: Duration,
        on_lost: impl FnOnce(LostReason),
    ) -> io::Result<End> {
        let pid = self.pid();
        let mut lost = held.lost();
        let reason = tokio::select! {
            biased;
            status = self.process.wait() => return status.map(End::Exited),
            reason = &mut lost => reason,
            never = pass_on(pid, self.has_terminal, signals) => match never {},
        };
        on_lost(reason);
        self.stop(signals, grace).await?;
        Ok(End::Lost(reason))
    }

    /// TERM, and KILL for what is still there after `grace`.
    async fn stop(&mut self, signals: &mut Signals, grace: Duration) -> io::Result<()> {
        let pid = self.pid();
        send(pid, Signal::TERM);
        tokio::select! {
            biased;
            status = self.process.wait() => return status.map(drop),
            () = tokio::time::sleep(grace) => {}
            never = pass_on(pid, self.has_terminal, signals) => match never {},
        }
        self.process.kill().await
    }

    /// `None` once it has been waited for: the number may be somebody else's by then.
    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.process.id()?).ok()?)
    }
}

async fn pass_on(pid: Option<Pid>, has_terminal: bool, signals: &mut Signals) -> Infallible {
    loop {
        let signal = signals.next().await;
        let by_terminal = matches!(signal, Signal::INT | Signal::QUIT) && has_terminal;
        if !by_terminal {
            send(pid, signal);
        }
    }
}

fn send(pid: Option<Pid>, signal: Signal) {
    if let Some(pid) = pid {
        // OK: it can only fail when the process has just ended, which `wait` tells.
        let _ = rustix::process::kill_process(pid, signal);
    }
}
