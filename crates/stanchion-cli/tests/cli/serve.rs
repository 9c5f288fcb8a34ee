//! `serve`: what a tour cannot show. Most cases are in `tours/serve.txt`.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use stanchion_testkit::{Process, Signal, eventually_blocking};

use crate::home::Home;
use crate::support::{SOON, json, runs, text};

/// Lets so many seconds pass: for what must not happen meanwhile, there is no event.
fn pass(seconds: &str) {
    assert!(
        Command::new("sleep")
            .arg(seconds)
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn a_port_serves_any_client() {
    let home = Home::new();
    let mut server = Process::spawn(&mut home.stanchion(&["serve", "--port", "0", "--json"]));
    let line = server.wait_for_line(|line| line.contains("redis:"), SOON);
    let line = json(format!("{line}\n").as_bytes());
    let url = line["url"].as_str().unwrap();
    assert_eq!(
        (&line["pid"], &line["started"]),
        (&server.pid().into(), &true.into())
    );
    let run = home.output(&["run", "job", "--url", url, "--", "true"]);
    assert_eq!(
        (run.status.code(), text(&run.stderr)),
        (Some(0), String::new())
    );
    let address = url.trim_start_matches("redis://").trim_end_matches('/');
    let taken = address.rsplit(':').next().unwrap();
    let second = home.output(&["serve", "--port", taken]);
    assert_eq!(second.status.code(), Some(74));
    // What a browser can be made to send is not executed.
    let mut browser = TcpStream::connect(address).unwrap();
    write!(
        browser,
        "POST / HTTP/1.1\r\nHost: x\r\n\r\nSET smuggled 1\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    let _ = browser.read_to_string(&mut answer);
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "EXISTS smuggled\r\nQUIT\r\n").unwrap();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, ":0\r\n+OK\r\n");
    server.signal(Signal::Int);
    assert_eq!(server.wait(SOON).code(), Some(0));
}

#[test]
fn it_stops_when_idle_and_not_before() {
    let home = Home::new();
    let mut server = home.serve(&["--idle", "300ms"]);
    // A connection keeps it.
    let client = UnixStream::connect(home.socket()).unwrap();
    // So does what is stored, which outlives the connection: a lock that is kept for a while.
    let kept = home.output(&[
        "run",
        "job",
        "--lease",
        "2s",
        "--at-least",
        "1s",
        "--",
        "true",
    ]);
    assert!(kept.status.success());
    pass("0.9");
    assert!(runs(server.pid()), "there is a connection");
    drop(client);
    pass("0.6");
    assert!(runs(server.pid()), "the lock is kept");
    assert_eq!(server.wait(SOON).code(), Some(0));
    assert!(!home.socket().exists());
    let no_server = home.output(&["status", "job"]);
    assert_eq!(no_server.status.code(), Some(69));
    assert!(
        text(&no_server.stderr).contains("stanchion serve"),
        "{no_server:?}"
    );
}

/// A script's caller waits for the end of the script's output, and for the files it has locked.
#[test]
fn the_server_keeps_nothing_of_whoever_started_it() {
    let home = Home::new();
    let script = r#"exec 7>"$1/seven" 8>&1; "$0" run job -- true"#;
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_stanchion")]);
    shell
        .arg(home.0.path())
        .env("STANCHION_RUNTIME_DIR", home.dir());
    // The output ends with the script, though the server lives on: it has no copy of it.
    let output = shell
        .env_remove("STANCHION_URL")
        .process_group(0)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let server = home.server();
    assert!(runs(server));
    if cfg!(target_os = "linux") {
        let open = fs::read_dir(format!("/proc/{server}/fd")).unwrap();
        let open: Vec<_> = open
            .filter_map(|fd| fs::read_link(fd.unwrap().path()).ok())
            .collect();
        assert!(!open.iter().any(|path| path.ends_with("seven")), "{open:?}");
        assert_eq!(
            fs::read_link(format!("/proc/{server}/cwd")).unwrap(),
            Path::new("/")
        );
        let stat = fs::read_to_string(format!("/proc/{server}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        let (session, terminal) = (fields[3], fields[4]);
        assert_ne!(session, std::process::id().to_string());
        assert_eq!(terminal, "0", "no terminal");
    }
}

/// Lua's own patterns can take for ever, and no limit reaches into them.
#[test]
fn a_signal_ends_it_while_a_script_runs_whose_client_has_gone() {
    let home = Home::new();
    let mut server = home.serve(&[]);
    let mut client = UnixStream::connect(home.socket()).unwrap();
    let script = "return ('a'):rep(60):find(('a?'):rep(60)..('a'):rep(60)..'b')";
    write!(
        client,
        "*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n",
        script.len()
    )
    .unwrap();
    drop(client);
    let mut other = UnixStream::connect(home.socket()).unwrap();
    other
        .set_read_timeout(Some(std::time::Duration::from_millis(500)))
        .unwrap();
    eventually_blocking("the script runs", || {
        write!(other, "PING\r\n").unwrap();
        other.read(&mut [0; 7]).is_err()
    });
    server.signal(Signal::Term);
    assert_eq!(server.wait(SOON).code(), Some(0));
}
