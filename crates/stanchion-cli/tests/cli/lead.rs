//! Leading: `lead` and `leader`.

use stanchion_testkit::{Process, RedisServer, Signal, eventually_blocking};

use crate::support::*;

/// `lead indexer OPTIONS -- sh -c SCRIPT`.
fn start(server: &RedisServer, options: &[&str], script: &str) -> Process {
    let script = format!("{IDLE}; {script}");
    let args = [&["lead", "indexer"], options, &["--", "sh", "-c", &script]].concat();
    Process::spawn(&mut with(server, &args))
}

fn line(process: &mut Process, wanted: &str) -> String {
    process.wait_for_line(|line| line.starts_with(wanted), SOON)
}

const IDLES: &str = "echo \"leads $STANCHION_FENCING_TOKEN\"; idle";

#[test]
fn lost_it_stops_the_command_and_says_so_by_code_and_file() {
    let server = RedisServer::start();
    for (forever, code) in [(&[][..], Some(73)), (&["--forever"][..], None)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ready");
        let mut options = vec!["--ready-file", path.to_str().unwrap()];
        options.extend(forever);
        let script = format!("trap 'echo stopped; exit 5' TERM; {IDLES}");
        let mut leading = start(&server, &options, &script);
        line(&mut leading, "leads");
        eventually_blocking("it is ready", || path.exists());
        eventually_blocking("it is told", || {
            let _ = server.cli(&["DEL", "indexer"]);
            !path.exists()
        });
        line(&mut leading, "stopped");
        if code.is_some() {
            assert_eq!(leading.wait(SOON).code(), code);
        } else {
            line(&mut leading, "leads");
            leading.signal(Signal::Term);
            assert_eq!(leading.wait(SOON).code(), Some(5));
        }
        assert!(!path.exists());
    }
}

#[test]
fn without_end_it_runs_again_after_each_term() {
    let server = RedisServer::start();
    let script = "echo \"leads $STANCHION_FENCING_TOKEN\"; read code; exit $code";
    let mut leading = start(&server, &["--forever"], script);
    let mut last = line(&mut leading, "leads");
    for code in ["0", "3"] {
        leading.send_line(code);
        let next = line(&mut leading, "leads");
        assert!(next > last);
        last = next;
    }
    leading.signal(Signal::Term);
    assert_eq!(leading.wait(SOON).code(), Some(143));
}
