//! `top` at the keyboard.

use stanchion_testkit::{Process, RedisServer, eventually_blocking};

use super::{done, hold_as_java};
use crate::support::{HOLD, SOON, is_held, start_script, with};
use crate::terminal::Terminal;

/// A name that somebody holds, and for long enough that its process tells of it.
fn held(server: &RedisServer, name: &str) -> Process {
    let holder = start_script(server, &[name], HOLD);
    let mut top = Process::spawn(&mut with(server, &["top", "--json", "--every", "100ms"]));
    // A hold is told of after 5 s, and a busy machine takes longer.
    top.wait_for_line(|line| line.contains(name), 3 * SOON);
    holder
}

/// `top` on a terminal that can show it.
fn started(server: &RedisServer, options: &str) -> Terminal {
    let mut terminal = Terminal::with_shell(server);
    terminal.press(&format!(
        "stty rows 24 cols 100; stty -g | sed 's/^/was /'; TERM=xterm $STANCHION top --every 100ms {options}\r"
    ));
    terminal
}

/// Ends with the code, and the terminal is as it was.
fn ended(terminal: &mut Terminal, before: &str, code: u32) {
    terminal.wait_for("\x1b[?1049l");
    terminal.press("echo code $?; stty -g | sed 's/^/was /'\r");
    assert_eq!(terminal.number_after("code"), code);
    terminal.wait_for("was ");
    assert_eq!(terminal.wait_for("\r\n").trim(), before);
}

#[test]
fn at_three_in_the_morning_the_keys_are_enough() {
    let server = RedisServer::start();
    let mut holder = held(&server, "nightly");
    let mut terminal = started(&server, "");
    terminal.wait_for("\nwas ");
    let before = terminal.wait_for("\r\n").trim().to_owned();
    terminal.wait_for("\x1b[?1049h");
    terminal.wait_for("nightly");
    terminal.press("j\r");
    terminal.wait_for("Holders");
    terminal.press("\x1b");
    terminal.wait_for("force-release");
    // Only what differs from the frame before is written, so words are waited for and not lines.
    terminal.press("fn");
    terminal.wait_for("Nothing");
    assert!(is_held(&server, "nightly"));
    terminal.press("f");
    terminal.wait_for("? y/N");
    terminal.press("y");
    terminal.wait_for("released");
    eventually_blocking("the hold is gone", || !is_held(&server, "nightly"));
    assert_eq!(holder.wait(SOON).code(), Some(73));
    terminal.press("q");
    ended(&mut terminal, &before, 0);
}

#[test]
fn a_holder_that_came_after_the_question_keeps_it() {
    let server = RedisServer::start();
    let _holder = held(&server, "nightly");
    let mut terminal = started(&server, "");
    terminal.wait_for("LONGEST");
    terminal.press("jf");
    terminal.wait_for("? y/N");
    done(&server, &["DEL", "nightly"]);
    hold_as_java(&server, "nightly", "1", "60000");
    terminal.press("y");
    terminal.wait_for("changed");
    assert!(is_held(&server, "nightly"));
    terminal.press("q");
    terminal.wait_for("\x1b[?1049l");
}

#[test]
fn an_outage_is_shown_and_a_signal_gives_the_terminal_back() {
    let mut server = RedisServer::start();
    let _holder = held(&server, "nightly");
    let mut terminal = started(&server, "& pid=$!; echo pid $pid; fg");
    terminal.wait_for("\nwas ");
    let before = terminal.wait_for("\r\n").trim().to_owned();
    let pid = terminal.number_after("pid");
    terminal.wait_for("nightly");
    server.kill();
    terminal.wait_for("does not answer");
    let killed = std::process::Command::new("kill")
        .arg(pid.to_string())
        .status();
    assert!(killed.unwrap().success());
    ended(&mut terminal, &before, 0);
}
