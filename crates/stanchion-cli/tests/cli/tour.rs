//! Tours: commands with all that they print, as texts in `tours`. Each case has a server of its own, and an empty working directory.
//!
//! ```text
//! ## a free name can be acquired
//! $ stanchion run job -- sh -c 'echo ran; exit 7'
//! ran
//! ? 7
//! + run job --fair
//! $ stanchion run job --fair --wait 0 -- true
//! ! stanchion: job is held by another process
//! ? 75
//! end 1
//! ```
//!
//! * `$` runs a command line of a shell. The lines that follow are **all** that it causes: its output, its messages after `! `, and its exit
//!   code after `? ` unless that is 0. Empty lines and warnings of lost connections are left out. `…` is any text in a line, a line `…` any lines but an exit code,
//!   and `pid #1` the process id of the first process that the case started. `server` is `redis-cli` for the server of the case.
//!   `each 'ARGUMENTS' …` runs the program with each list of arguments, and prints the exit code and the first line that it prints.
//!   `quiet` is `server` without output, and `java NAME THREAD MS` a lock that a thread of Redisson holds for so long, or without a TTL.
//!   A line that ends with `\` goes on in the next one.
//! * `~` repeats the command line until it causes what follows.
//! * `+` starts `stanchion` with a command that prints `ready` and reads its input to the end, and waits until that runs.
//! * `&` starts a command line and does not wait. Processes have the numbers 1, 2, …, and their output is in the files `1.out` and `1.err`, and
//!   their process id in `1.pid`.
//! * `end 1` ends the input of a process, and `int 1`, `term 1`, `kill 1` send it a signal. All of them wait for its end, `wait 1` only waits.
//!   What follows is all that the process has caused, without `ready`.
//! * `server ends` kills the server, and `server starts` starts it again, without its data.
//! * `home` takes the URL of the server, which is `$SERVER`, out of the environment: commands find their own server in the folder `own`.
//!   `$DOCS` is the folder of the book.
//! * `user RULES` makes a user `app` with these rights, and `$APP` is its URL.
//!
//! On a difference the test prints the case with the actual results.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use stanchion_testkit::{Process, RedisServer, Signal, eventually_blocking, machine_clock};

use crate::home::Home;
use crate::support::{SOON, stanchion, text};

/// Words of the command lines.
const WORDS: &str = r#"each() {
    for line; do eval "stanchion $line" >said 2>told; echo "$? $(cat said told | head -n 1)"; done | sed 's/ $//'
}
quiet() { server "$@" >/dev/null; }
java() { quiet hset "$1" "9f1c0000-0000-4000-8000-000000000001:$2" 1 && [ -z "$3" ] || quiet pexpire "$1" "$3"; }
"#;

struct Tour {
    server: RedisServer,
    home: Home,
    /// The URL of the server is not in the environment.
    is_home: bool,
    processes: Vec<Process>,
}

impl Tour {
    /// A command line of a shell, which is started by the words of `sh`, with the program and its server.
    fn shell(&self, sh: &str, line: &str) -> Command {
        let mut words = sh.split(' ');
        let mut command = Command::new(words.next().unwrap());
        let program = stanchion(&[]);
        for (name, value) in program.get_envs() {
            assert!(value.is_none(), "{name:?}");
            command.env_remove(name);
        }
        let own = Path::new(program.get_program()).parent().unwrap();
        let path = std::env::var("PATH").unwrap();
        let port = self.server.addr().port();
        let line = format!("{WORDS}\nserver() {{ redis-cli -p {port} \"$@\"; }}\n{line}");
        let app = self.server.url().replace("redis://", "redis://app:pw@");
        command
            .args(words)
            .args(["-c", &line])
            .env("PATH", format!("{}:{path}", own.display()))
            .env("STANCHION_URL", self.server.url())
            .env("SERVER", self.server.url())
            .env("DOCS", concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs"))
            .env("APP", app)
            .current_dir(self.home.0.path())
            .stdin(Stdio::null());
        if self.is_home {
            command.env("STANCHION_RUNTIME_DIR", self.home.dir());
            command.env_remove("STANCHION_URL");
        }
        command
    }

    fn start(&mut self, line: &str) -> usize {
        let number = self.processes.len() + 1;
        let line = format!("exec {line} >{number}.out 2>{number}.err");
        let process = Process::spawn(&mut self.shell("sh", &line));
        let pid = self.home.0.path().join(format!("{number}.pid"));
        fs::write(pid, process.pid().to_string()).unwrap();
        self.processes.push(process);
        number
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.home.0.path().join(file)).unwrap_or_default()
    }

    fn start_ready(&mut self, options: &str) {
        let line = format!("stanchion {options} -- sh -c 'echo ready; cat'");
        let number = self.start(&line);
        eventually_blocking(&line, || {
            self.read(&format!("{number}.out")).contains("ready\n")
        });
    }

    /// All that a process has caused, after its end.
    fn ended(&mut self, number: usize) -> Vec<String> {
        let code = self.processes[number - 1].wait(SOON * 3).code();
        let output = self.read(&format!("{number}.out"));
        let output = output.trim_start_matches("ready\n");
        self.shown(output, &self.read(&format!("{number}.err")), code)
    }

    fn caused(&self, line: &str) -> Vec<String> {
        // A command that does not end fails its case with the code 124.
        let done = self.shell("timeout 120 sh", line).output().unwrap();
        self.shown(&text(&done.stdout), &text(&done.stderr), done.status.code())
    }

    fn shown(&self, output: &str, messages: &str, code: Option<i32>) -> Vec<String> {
        let output = output.lines().map(str::to_owned);
        let messages = messages.lines().map(|line| format!("! {line}"));
        let code = match code {
            Some(0) => None,
            Some(code) => Some(format!("? {code}")),
            None => Some("? a signal".to_owned()),
        };
        let lines = output.chain(messages).chain(code);
        // A busy machine may delay the replies of a server for so long that its client connects again.
        let extra = |line: &str| line.contains("connection lost, connecting again");
        let lines = lines.filter(|line| !line.is_empty() && line != "! " && !extra(line));
        lines.map(|line| self.with_numbers(line)).collect()
    }

    /// Replaces the ids of the processes by their numbers.
    fn with_numbers(&self, line: String) -> String {
        let pids = self.processes.iter().enumerate();
        pids.fold(line, |line, (at, process)| {
            let (pid, number) = (process.pid(), at + 1);
            line.replace(&format!("pid {pid}"), &format!("pid #{number}"))
                .replace(&format!("\"pid\":{pid},"), &format!("\"pid\":#{number},"))
        })
    }

    /// Does what a line says, and returns all that it causes.
    fn does(&mut self, line: &str, expected: &[&str]) -> Vec<String> {
        let (step, rest) = line.split_once(' ').unwrap_or((line, ""));
        let number = || rest.parse::<usize>().unwrap();
        let signal = match step {
            "$" => return self.caused(rest),
            "~" => {
                let until = machine_clock() + SOON * 3;
                loop {
                    let actual = self.caused(rest);
                    if matches(expected, &actual) || machine_clock() > until {
                        return actual;
                    }
                }
            }
            "wait" => return self.ended(number()),
            "end" => {
                self.processes[number() - 1].close_stdin();
                return self.ended(number());
            }
            "int" => Some(Signal::Int),
            "term" => Some(Signal::Term),
            "kill" => Some(Signal::Kill),
            _ => None,
        };
        if let Some(signal) = signal {
            self.processes[number() - 1].signal(signal);
            return self.ended(number());
        }
        match step {
            "+" => self.start_ready(rest),
            "&" => drop(self.start(rest)),
            "user" => {
                let rules = "ACL SETUSER app reset on >pw ~* &*";
                let rules: Vec<&str> = rules.split(' ').chain(rest.split(' ')).collect();
                let reply = self.server.cli(&rules);
                assert!(!reply.is_error(), "{rules:?}: {reply}");
            }
            "home" => self.is_home = true,
            "server" if rest == "ends" => self.server.kill(),
            "server" => self.server.restart(),
            _ => panic!("no step: {line}"),
        }
        Vec::new()
    }
}

fn matches(expected: &[&str], actual: &[String]) -> bool {
    match expected {
        [] => actual.is_empty(),
        ["…", rest @ ..] => {
            let mut skipped = (0..=actual.len()).take_while(|skipped| {
                let mut codes = actual[..*skipped].iter();
                !codes.any(|line| line.starts_with("? "))
            });
            skipped.any(|skipped| matches(rest, &actual[skipped..]))
        }
        [first, rest @ ..] => actual
            .split_first()
            .is_some_and(|(line, others)| is_like(first, line) && matches(rest, others)),
    }
}

/// Returns whether a line has the form of `expected`, in which `…` is any text.
fn is_like(expected: &str, line: &str) -> bool {
    let Some((before, after)) = expected.split_once('…') else {
        return expected == line;
    };
    let Some(rest) = line.strip_prefix(before) else {
        return false;
    };
    let mut ends = (0..=rest.len()).filter(|at| rest.is_char_boundary(*at));
    ends.any(|at| is_like(after, &rest[at..]))
}

/// Runs a case. Returns it with the actual results if they differ.
#[expect(clippy::print_stdout, reason = "for a step that panics")]
fn differs(case: &str) -> Option<String> {
    let mut tour = Tour {
        server: RedisServer::start(),
        home: Home::new(),
        is_home: false,
        processes: Vec::new(),
    };
    let is_step = |line: &str| {
        let words = "$ ~ + & server user wait end int term kill";
        let first = line.split(' ').next().unwrap_or_default();
        words.split(' ').any(|word| word == first) && line.contains(' ') || line == "home"
    };
    let lines: Vec<&str> = case.lines().collect();
    let (mut told, mut is_same, mut at) = (Vec::new(), true, 0);
    while let Some(line) = lines.get(at) {
        at += 1;
        let mut line = (*line).to_owned();
        while line.ends_with('\\') {
            line += &format!("\n{}", lines[at]);
            at += 1;
        }
        told.push(line.clone());
        if !is_step(&line) {
            assert!(
                line.is_empty() || line.starts_with('#'),
                "no step: {line:?}"
            );
            continue;
        }
        let rest = &lines[at..];
        let ends = |line: &&str| is_step(line) || line.is_empty() || line.starts_with('#');
        let expected = &rest[..rest.iter().position(ends).unwrap_or(rest.len())];
        at += expected.len();
        println!("{line}");
        let actual = tour.does(&line, expected);
        if matches(expected, &actual) {
            told.extend(expected.iter().map(|line| (*line).to_owned()));
        } else {
            is_same = false;
            told.extend(actual);
        }
    }
    (!is_same).then(|| told.join("\n"))
}

/// Runs all cases of a text.
fn check(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/tours");
    let tours = fs::read_to_string(folder.join(name)).unwrap();
    let cases = tours.split("\n## ").skip(1);
    let differing: Vec<String> = cases.filter_map(differs_after_title).collect();
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

fn differs_after_title(case: &str) -> Option<String> {
    let (title, case) = case.split_once('\n').unwrap();
    Some(format!("## {title}\n{}", differs(case)?))
}

#[test]
fn arguments() {
    check("arguments.txt");
}

#[test]
fn names() {
    check("names.txt");
}

#[test]
fn kinds() {
    check("kinds.txt");
}

#[test]
fn ticks() {
    check("ticks.txt");
}

#[test]
fn limit() {
    check("limit.txt");
}

#[test]
fn waits() {
    check("waits.txt");
}

#[test]
fn operator() {
    check("operator.txt");
}

#[test]
fn lead() {
    check("lead.txt");
}

#[test]
fn serve() {
    check("serve.txt");
}

#[test]
fn doctor() {
    check("doctor.txt");
}
