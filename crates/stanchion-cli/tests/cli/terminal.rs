//! On a terminal with job control: Ctrl-C, Ctrl-Z, fg.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use stanchion_testkit::{RedisServer, eventually_blocking, machine_clock};

use crate::support::{SOON, is_held, ps, runs};

/// An interactive shell on a terminal of its own.
pub(crate) struct Terminal {
    shell: Child,
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    pub(crate) fn with_shell(server: &RedisServer) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
        let theirs = || Stdio::from(File::options().read(true).write(true).open(&name).unwrap());
        let shell = Command::new("setsid")
            .args(["--ctty", "bash", "--norc", "--noprofile", "-i"])
            .env("PS1", "$ ")
            .env("TERM", "dumb")
            .env("STANCHION", env!("CARGO_BIN_EXE_stanchion"))
            .env("STANCHION_URL", server.url())
            .stdin(theirs())
            .stdout(theirs())
            .stderr(theirs())
            .spawn()
            .unwrap();
        let ours = File::from(ours);
        let mut reader = ours.try_clone().unwrap();
        let (sender, screen) = mpsc::channel();
        // Ends with the terminal.
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count) = reader.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self {
            shell,
            keyboard: ours,
            screen,
            seen: String::new(),
        }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until `wanted` appears; what was before it is passed over.
    pub(crate) fn wait_for(&mut self, wanted: &str) -> String {
        let deadline = machine_clock() + SOON;
        loop {
            if let Some(at) = self.seen.find(wanted) {
                // What comes next may be looked for at the beginning of a line.
                let end = at + wanted.trim_end_matches('\n').len();
                let rest = self.seen.split_off(end);
                return std::mem::replace(&mut self.seen, rest);
            }
            match self
                .screen
                .recv_timeout(deadline.saturating_sub(machine_clock()))
            {
                Ok(bytes) => {
                    self.seen += &String::from_utf8_lossy(&bytes);
                    // The kernel sends a key's signal before it echoes the key, so the echo may come after a program's answer.
                    self.seen = self.seen.replace("^C", "").replace("^Z", "");
                }
                Err(_) => panic!("no {wanted:?}; seen: {}", self.seen),
            }
        }
    }

    /// The number after `what` on a line of its own.
    pub(crate) fn number_after(&mut self, what: &str) -> u32 {
        self.wait_for(&format!("\n{what} "));
        self.wait_for("\r\n").trim().parse().unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

#[test]
fn ctrl_c_reaches_the_command_once_and_the_prompt_comes_back_when_all_has_ended() {
    let server = RedisServer::start();
    let mut terminal = Terminal::with_shell(&server);
    terminal.press("$STANCHION run job -- sh -c 'trap \"echo int; n=$((n+1))\" INT; sleep 60 & echo pid $!; echo re''ady; wait; wait; echo count $n' </dev/null\r");
    let sleep = terminal.number_after("pid");
    terminal.wait_for("ready\r\n");
    // Background jobs of a shell without job control ignore INT, but not before the shell's child has come to say so.
    eventually_blocking("the background job has begun", || {
        ps("comm", sleep) == "sleep"
    });
    terminal.press("\x03");
    terminal.wait_for("int\r\n");
    assert!(runs(sleep), "the background job goes on");
    assert!(is_held(&server, "job"), "and the lock is held");
    Command::new("kill")
        .arg(sleep.to_string())
        .status()
        .unwrap();
    assert_eq!(terminal.number_after("count"), 1);
    terminal.press("echo code $?\r");
    assert_eq!(terminal.number_after("code"), 0);
    assert!(!is_held(&server, "job"));
}

#[test]
fn ctrl_c_ends_what_the_command_left_behind_too() {
    let server = RedisServer::start();
    let mut terminal = Terminal::with_shell(&server);
    terminal.press("$STANCHION run job -- sh -c 'sleep 60 & echo pid $!; echo re''ady; wait'\r");
    let sleep = terminal.number_after("pid");
    terminal.wait_for("ready\r\n");
    terminal.press("\x03");
    terminal.press("echo code $?\r");
    assert_eq!(terminal.number_after("code"), 130);
    assert!(!runs(sleep) && !is_held(&server, "job"));
}

#[test]
fn ctrl_z_stops_the_job_and_fg_goes_on_with_it() {
    let server = RedisServer::start();
    let mut terminal = Terminal::with_shell(&server);
    terminal.press("$STANCHION run job --lease 1m -- sh -c 'echo pid $$; echo re''ady; read line; echo got $line'\r");
    let command = terminal.number_after("pid");
    terminal.wait_for("ready\r\n");
    terminal.press("\x1a");
    terminal.wait_for("Stopped");
    let stopped = || ps("state", command).starts_with('T');
    eventually_blocking("the command is stopped", stopped);
    terminal.press("fg\r");
    eventually_blocking("the command goes on", || !stopped());
    terminal.press("7\r");
    assert_eq!(terminal.number_after("got"), 7);
    terminal.press("echo code $?\r");
    assert_eq!(terminal.number_after("code"), 0);
}

#[test]
fn a_job_that_was_stopped_for_too_long_is_lost_and_ends() {
    let server = RedisServer::start();
    let mut terminal = Terminal::with_shell(&server);
    terminal.press("$STANCHION run job --lease 500ms -- sh -c 'echo pid $$; echo re''ady; sleep 60; echo went on'\r");
    let command = terminal.number_after("pid");
    terminal.wait_for("ready\r\n");
    terminal.press("\x1a");
    terminal.wait_for("Stopped");
    eventually_blocking("the lease ends", || !is_held(&server, "job"));
    terminal.press("fg\r");
    terminal.wait_for("stanchion: lost job");
    terminal.press("echo code $?\r");
    assert_eq!(terminal.number_after("code"), 73);
    assert!(!runs(command));
}

#[test]
fn a_shell_with_job_control_of_its_own_works_and_gives_the_terminal_back() {
    let server = RedisServer::start();
    let mut terminal = Terminal::with_shell(&server);
    let bash = "PS1='inner> ' bash --norc --noprofile -i";
    terminal.press(&format!(
        "$STANCHION run job --lease 1s --grace 300ms -- env {bash}\r"
    ));
    terminal.wait_for("\ninner> ");
    terminal.press("sh -c 'echo begun 1; exec sleep 60'\r");
    terminal.number_after("begun");
    terminal.press("\x1a");
    terminal.wait_for("Stopped");
    terminal.press("kill %1; echo inner $?\r");
    assert_eq!(terminal.number_after("inner"), 0);
    assert_eq!(server.cli(&["DEL", "job"]).as_int(), 1);
    // It ignores TERM, has the terminal, and is killed.
    terminal.wait_for("stanchion: lost job");
    terminal.wait_for("\n$ ");
    terminal.press("echo code $?\r");
    terminal.wait_for("code 73");
}
