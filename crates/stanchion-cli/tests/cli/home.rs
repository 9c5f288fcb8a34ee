//! A directory with a server of its own, for programs that are told no URL.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Output};

use stanchion_testkit::Process;
use tempfile::TempDir;

use crate::support::{SOON, stanchion};

/// The directory of a server, which ends with it.
pub(crate) struct Home(pub(crate) TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.0.path().join("own")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir().join("serve.sock")
    }

    /// The program, which finds its server in this directory.
    pub(crate) fn stanchion(&self, args: &[&str]) -> Command {
        let mut command = stanchion(args);
        command.env("STANCHION_RUNTIME_DIR", self.dir());
        command
    }

    pub(crate) fn output(&self, args: &[&str]) -> Output {
        self.stanchion(args).output().unwrap()
    }

    /// `serve`, once it has said where.
    pub(crate) fn serve(&self, options: &[&str]) -> Process {
        let args = [&["serve"], options].concat();
        let mut process = Process::spawn(&mut self.stanchion(&args));
        process.wait_for_line(
            |line| line.contains("unix:") || line.contains("redis:"),
            SOON,
        );
        process
    }

    /// The process that serves.
    pub(crate) fn server(&self) -> u32 {
        let lock = fs::read_to_string(self.dir().join("serve.sock.lock")).unwrap();
        lock.trim().parse().unwrap()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // It would end by itself, but only after ten minutes.
        if let Ok(lock) = fs::read_to_string(self.dir().join("serve.sock.lock"))
            && let Ok(pid) = lock.trim().parse()
            && UnixStream::connect(self.socket()).is_ok()
        {
            kill(pid, "KILL");
        }
    }
}

fn kill(pid: u32, signal: &str) {
    let sent = Command::new("kill")
        .args(["-s", signal, &pid.to_string()])
        .status();
    assert!(sent.unwrap().success());
}
