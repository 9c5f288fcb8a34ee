//! `serve`, and `run` with nothing installed: real processes, each test with a directory of its own.
//!
//! Long: one case after the other over the same few helpers.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use stanchion_testkit::{Process, RedisServer, Signal, eventually_blocking};

use crate::home::{Home, ask};
use crate::support::{HOLD, SOON, json, runs, text};

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

/// Waits until somebody waits for `name`.
fn wait_for_a_waiter(home: &Home, name: &str) {
    let ask_for = format!("PUBSUB CHANNELS redisson_lock__channel:{{{name}}}*");
    eventually_blocking("somebody has subscribed", || {
        !ask(&home.socket(), &ask_for).starts_with("*0")
    });
}

#[test]
fn run_needs_nothing_installed_and_says_once_what_it_started() {
    let home = Home::new();
    let print = [
        "run",
        "job",
        "--",
        "sh",
        "-c",
        "echo $STANCHION_FENCING_TOKEN",
    ];
    let first = home.output(&print);
    assert_eq!(first.status.code(), Some(0));
    let told = text(&first.stderr);
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(
        told.contains("started a server") && told.contains(&home.url()),
        "{told}"
    );
    let second = home.output(&print);
    assert_eq!(text(&second.stderr), "");
    let token = |output: &Output| text(&output.stdout).trim().parse::<u64>().unwrap();
    assert!(token(&second) > token(&first));
    let shown = home.output(&["status", "job"]);
    assert!(text(&shown.stdout).contains("free"), "{shown:?}");
}

#[test]
fn one_run_at_a_time_with_nothing_installed() {
    const RUNS: usize = 20;
    let home = Home::new();
    let log = home.0.path().join("log");
    let script = format!(
        "echo begin $$ >>{0}; sleep 0.005; echo end $$ >>{0}",
        log.display()
    );
    let args = ["run", "job", "--", "sh", "-c", &script];
    // All of them find no server, and start one.
    let start = |_| {
        home.stanchion(&args)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let started: Vec<_> = (0..RUNS).map(start).collect();
    let ended: Vec<_> = started
        .into_iter()
        .map(|run| run.wait_with_output().unwrap())
        .collect();
    for output in &ended {
        assert!(output.status.success(), "{output:?}");
    }
    let log = fs::read_to_string(log).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), 2 * RUNS);
    for pair in lines.chunks(2) {
        let who = pair[0]
            .strip_prefix("begin ")
            .unwrap_or_else(|| panic!("{pair:?}"));
        assert_eq!(pair[1], format!("end {who}"));
    }
    let clients = ask(&home.socket(), "INFO server");
    assert!(clients.contains("redis_version"), "{clients}");
}

#[test]
fn a_server_belongs_to_its_user_alone() {
    let home = Home::new();
    let _server = home.serve(&[]);
    let dir = fs::symlink_metadata(home.dir()).unwrap();
    assert_eq!((dir.is_dir(), dir.mode() & 0o777), (true, 0o700));
    let socket = fs::symlink_metadata(home.socket()).unwrap();
    assert!(socket.file_type().is_socket());
    assert_eq!(socket.mode() & 0o777, 0o600);
    // Also where the directory is not private, and the umask lets everything through.
    let other = home.0.path().join("named.sock");
    let mut open = Command::new("sh");
    open.args([
        "-c",
        r#"umask 0; exec "$0" "$@""#,
        env!("CARGO_BIN_EXE_stanchion"),
        "serve",
    ]);
    let mut open = Process::spawn(open.arg("--socket").arg(&other));
    open.wait_for_line(|line| line.contains("named.sock"), SOON);
    assert_eq!(fs::symlink_metadata(&other).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn a_directory_of_another_user_is_refused() {
    let home = Home::new();
    let refused = |what: &str| {
        for command in [
            &["run", "job", "--wait", "0", "--", "true"][..],
            &["serve"],
            &["status", "job"],
        ] {
            let output = home.output(command);
            assert_eq!(output.status.code(), Some(78), "{command:?}");
            assert!(text(&output.stderr).contains(what), "{output:?}");
        }
    };
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), home.dir()).unwrap();
    refused("no directory");
    fs::remove_file(home.dir()).unwrap();
    fs::create_dir(home.dir()).unwrap();
    fs::set_permissions(home.dir(), fs::Permissions::from_mode(0o755)).unwrap();
    refused("can be opened by others");
    assert_eq!(fs::read_dir(home.dir()).unwrap().count(), 0);
}

#[test]
fn the_environment_does_not_lead_to_another_server() {
    let home = Home::new();
    let _holder = home.script(&["job"], HOLD);
    // A job from cron has neither of these, and must meet the terminal's.
    for variable in ["XDG_RUNTIME_DIR", "TMPDIR", "HOME"] {
        let mut run = home.stanchion(&["run", "job", "--wait", "0", "--", "true"]);
        let refused = run.env(variable, home.0.path()).output().unwrap();
        assert_eq!(refused.status.code(), Some(75), "{variable}: {refused:?}");
    }
}

#[test]
fn the_second_server_finds_the_first() {
    let home = Home::new();
    let server = home.serve(&[]);
    let second = home.output(&["serve", "--json"]);
    assert_eq!(second.status.code(), Some(0));
    let line = json(&second.stdout);
    assert_eq!(line["url"], home.url());
    assert_eq!(
        (&line["pid"], &line["started"]),
        (&server.pid().into(), &false.into())
    );
    let human = home.output(&["serve"]);
    let told = text(&human.stdout);
    let wanted = format!(
        "export STANCHION_URL={}  # pid {}, was already there\n",
        home.url(),
        server.pid()
    );
    assert_eq!(told, wanted);
}

#[test]
fn the_line_of_serve_is_for_a_shell() {
    let home = Home::new();
    let socket = home.0.path().join("a b'$(touch x)");
    let mut server = Process::spawn(home.stanchion(&["serve", "--socket"]).arg(&socket));
    let line = server.wait_for_line(|line| line.starts_with("export"), SOON);
    let script = format!("{line}\n\"$0\" run job -- echo ran");
    let ran = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_stanchion")])
        .output()
        .unwrap();
    assert_eq!(text(&ran.stdout), "ran\n", "{ran:?}");
    server.signal(Signal::Term);
    assert_eq!(server.wait(SOON).code(), Some(0));
    assert!(!socket.exists());
}

#[test]
fn the_socket_of_a_dead_server_is_replaced() {
    let home = Home::new();
    let mut server = home.serve(&[]);
    server.signal(Signal::Kill);
    server.wait(SOON);
    assert!(home.socket().exists(), "nobody could remove it");
    let again = home.output(&["run", "job", "--", "true"]);
    assert_eq!(again.status.code(), Some(0), "{again:?}");
    assert_ne!(home.server(), server.pid());
    // Nor does a socket of another program that ended stand in the way.
    let socket = home.0.path().join("stale.sock");
    drop(UnixListener::bind(&socket).unwrap());
    let mut stale = Process::spawn(home.stanchion(&["serve", "--socket"]).arg(&socket));
    stale.wait_for_line(|line| line.contains("stale.sock"), SOON);
    assert!(ask(&socket, "PING").starts_with("+PONG"));
}

#[test]
fn a_file_in_the_place_of_the_socket_is_refused() {
    let home = Home::new();
    let file = home.0.path().join("precious");
    fs::write(&file, "data").unwrap();
    let refused = home
        .stanchion(&["serve", "--socket"])
        .arg(&file)
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(78));
    assert_eq!(fs::read_to_string(&file).unwrap(), "data");
}

#[test]
fn only_this_machine_is_served() {
    let home = Home::new();
    for address in ["0.0.0.0", "::", "192.0.2.1", "10.0.0.1"] {
        let refused = home.output(&["serve", "--port", "0", "--bind", address]);
        assert_eq!(refused.status.code(), Some(78), "{address}");
        assert!(text(&refused.stderr).contains("loopback"), "{refused:?}");
    }
    let refused = home.output(&["serve", "--bind", "0.0.0.0"]);
    assert_eq!(refused.status.code(), Some(2));
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
fn fair_in_order_and_permits_at_most_so_many() {
    let home = Home::new();
    let log = home.0.path().join("log");
    let mut holder = home.script(&["queue", "--fair"], "echo ready; read line");
    let mut waiting = Vec::new();
    for number in 0..4 {
        let script = format!("echo {number} >>{}", log.display());
        let args = ["run", "queue", "--fair", "--", "sh", "-c", &script];
        waiting.push(Process::spawn(&mut home.stanchion(&args)));
        eventually_blocking("it is in the queue", || {
            ask(&home.socket(), "LLEN redisson_lock_queue:{queue}")
                == format!(":{}\r\n+OK\r\n", number + 1)
        });
    }
    holder.send_line("go on");
    for mut run in waiting {
        assert!(run.wait(SOON).success());
    }
    assert_eq!(fs::read_to_string(&log).unwrap(), "0\n1\n2\n3\n");

    let permits = ["seats", "--permits", "2"];
    let _both = [home.script(&permits, HOLD), home.script(&permits, HOLD)];
    let third = home.output(&[
        "run",
        "seats",
        "--permits",
        "2",
        "--wait",
        "0",
        "--",
        "true",
    ]);
    assert_eq!(third.status.code(), Some(75));

    let _reader = home.script(&["book", "--read"], HOLD);
    let reads = home.output(&["run", "book", "--read", "--wait", "0", "--", "true"]);
    let writes = home.output(&["run", "book", "--write", "--wait", "0", "--", "true"]);
    assert_eq!(
        (reads.status.code(), writes.status.code()),
        (Some(0), Some(75))
    );
}

/// P2: the server has forgotten everything, and the token grows nevertheless.
#[test]
fn a_killed_server_ends_its_holders_at_their_next_renewal_and_tokens_grow() {
    let home = Home::new();
    let script =
        "trap 'echo stopped; exit 0' TERM; echo token $STANCHION_FENCING_TOKEN; echo ready; idle";
    let mut holder = home.script(&["job", "--lease", "3s"], script);
    let token = |line: &str| line.strip_prefix("token ").unwrap().parse::<u64>().unwrap();
    let first = token(
        holder
            .lines()
            .iter()
            .find(|line| line.starts_with("token"))
            .unwrap(),
    );
    // A waiter starts the server again, and gets the lock that the server has forgotten.
    let print = "echo token $STANCHION_FENCING_TOKEN";
    let mut waiter = home.stanchion(&["run", "job", "--", "sh", "-c", print]);
    let mut waiter = Process::spawn(&mut waiter);
    wait_for_a_waiter(&home, "job");
    let killed = home.kill_server();
    let line = waiter.wait_for_line(|line| line.starts_with("token"), SOON);
    assert!(token(&line) > first);
    assert!(waiter.wait(SOON).success());
    assert_ne!(home.server(), killed);
    holder.wait_for_line(|line| line == "stopped", SOON);
    assert_eq!(holder.wait(SOON).code(), Some(73));
}

#[test]
fn without_a_restart_a_lease_ends_in_time() {
    let home = Home::new();
    let script = "trap 'echo stopped; exit 0' TERM; echo ready; idle";
    let mut holder = home.script(&["job", "--lease", "2s"], script);
    home.kill_server();
    holder.wait_for_line(|line| line == "stopped", SOON);
    assert_eq!(holder.wait(SOON).code(), Some(73));
    assert!(
        UnixStream::connect(home.socket()).is_err(),
        "a holder starts none"
    );
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

/// The race of a client that connects and a server that stops: nobody is turned away.
#[test]
fn every_run_gets_through_while_servers_come_and_go() {
    let home = Home::new();
    // Within an outer `run` a server goes a second later, or as much more as its looks are apart.
    for round in 0..8 {
        pass(&format!("1.{round}"));
        let mut run = home.stanchion(&["run", "job", "--wait", "20s", "--", "true"]);
        let output = run.env("STANCHION_NAME", "outer").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    eventually_blocking("the last one has gone", || !home.socket().exists());
}

#[test]
fn a_run_does_not_wait_for_the_server_that_a_run_within_it_started() {
    let home = Home::new();
    let redis = RedisServer::start();
    let inner = format!("\"{}\" run inner -- true", env!("CARGO_BIN_EXE_stanchion"));
    let args = [
        "run",
        "outer",
        "--url",
        &redis.url(),
        "--",
        "sh",
        "-c",
        &inner,
    ];
    let mut outer = Process::spawn(&mut home.stanchion(&args));
    assert_eq!(outer.wait(SOON).code(), Some(0));
}

#[test]
fn no_server_starts_none() {
    let home = Home::new();
    // It does not wait for a server that nothing starts.
    let run = ["run", "job", "--no-server", "--", "true"];
    let refused = home.output(&run);
    assert_eq!(refused.status.code(), Some(69));
    assert!(!home.socket().exists());
    let _server = home.serve(&[]);
    assert_eq!(home.output(&run).status.code(), Some(0));
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

#[test]
fn a_server_whose_socket_was_removed_comes_back() {
    let home = Home::new();
    let _server = home.serve(&["--idle", "1s"]);
    let _client = UnixStream::connect(home.socket()).unwrap();
    fs::remove_file(home.socket()).unwrap();
    eventually_blocking("the socket is back", || {
        UnixStream::connect(home.socket()).is_ok()
    });
}

#[test]
fn no_script_ends_the_server_or_keeps_it_from_answering() {
    let home = Home::new();
    let server = home.serve(&["--maxmemory", "4mb"]);
    let eval = |script: &str| {
        let request = format!(
            "*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0",
            script.len()
        );
        ask(&home.socket(), &request)
    };
    for (script, told) in [
        (
            "return string.find(('a'):rep(1000000),('a?'):rep(1000000))",
            "pattern too complex",
        ),
        (
            "return string.find(('a'):rep(200),('a*'):rep(40)..'b')",
            "ran for more than 5 s",
        ),
        ("local t={} while true do t[#t+1]={} end", "memory"),
        (
            "for i=1,99 do redis.call('SET',i,('x'):rep(1000000)) end",
            "OOM command not allowed",
        ),
    ] {
        let answer = eval(script);
        assert!(answer.contains(told), "{script}: {answer}");
        let ping = home.output(&["ping"]);
        assert_eq!(
            ping.status.code(),
            Some(0),
            "after {script}: {}",
            text(&ping.stderr)
        );
    }
    // At the limit nothing is acquired; what is freed can be used again.
    assert!(ask(&home.socket(), "SET k v").starts_with("-OOM"));
    assert!(ask(&home.socket(), "FLUSHALL").starts_with("+OK"));
    assert_eq!(
        home.output(&["run", "job", "--", "true"]).status.code(),
        Some(0)
    );
    assert!(runs(server.pid()));
}
