//! The server of an exploration, and the trace of a path.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;

use stanchion_embedded::Reply;
use stanchion_embedded::explore::ExploredServer;

use crate::canonical::times;
use crate::world::{Life, Node, World};
use crate::{Call, Configuration, Process, START};

/// The server that executes requests, with its compiled scripts; and the trace of the steps if one is wanted.
#[derive(Debug)]
pub(crate) struct Runner {
    pub(crate) server: ExploredServer,
    /// The digest of each script, or the error of its compilation.
    scripts: BTreeMap<&'static str, Result<String, Reply>>,
    pub(crate) aliases: Vec<(String, String)>,
    /// The ids of the processes, if the processes are interchangeable.
    pub(crate) ids: Vec<String>,
    /// The trace so far, one line for each event; `None`: no trace is wanted.
    pub(crate) trace: Option<Vec<String>>,
}

impl Runner {
    /// Starts a server and compiles the scripts.
    pub(crate) fn new<P: Process>(configuration: &Configuration<P>) -> Self {
        let server = ExploredServer::new(START);
        let ids = configuration.aliases.iter().map(|(id, _)| id.clone());
        let load = |(name, text): &(&'static str, String)| (*name, server.load(text));
        Self {
            scripts: configuration.scripts.iter().map(load).collect(),
            aliases: configuration.aliases.clone(),
            ids: match configuration.interchangeable {
                true => ids.take(configuration.processes.len()).collect(),
                false => Vec::new(),
            },
            server,
            trace: None,
        }
    }

    /// Makes the first state.
    pub(crate) fn begin<P: Process>(&self, configuration: &Configuration<P>) -> World<P> {
        for command in &configuration.setup {
            self.server.run(command);
        }
        for (connection, process) in (0..).zip(&configuration.processes) {
            for channel in process.subscribed() {
                self.server.subscribe(connection, channel.as_bytes());
            }
        }
        let node = |process: &P| {
            Arc::new(Node {
                process: process.clone(),
                life: Life::Running,
                timer: None,
                inbox: VecDeque::new(),
            })
        };
        World {
            now: START,
            server: self.server.save(),
            nodes: configuration.processes.iter().map(node).collect(),
            requests: Vec::new(),
            answers: Vec::new(),
            texts: vec![None; configuration.processes.len()],
            allowed: configuration.faults,
            faults: configuration.faults,
            deadlines: configuration.deadlines,
            allowed_deadlines: configuration.deadlines,
            last_token: 0,
            grants: 0,
            violation: None,
        }
    }

    /// Adds a line to the trace.
    pub(crate) fn log(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(readable(&line(), &self.aliases));
        }
    }

    pub(crate) fn execute(&self, call: &Call) -> Reply {
        let sha = match self.scripts.get(call.script) {
            Some(Ok(sha)) => sha,
            Some(Err(error)) => return error.clone(),
            None => return Reply::Error(format!("no script {}", call.script)),
        };
        let count = call.keys.len().to_string();
        let mut command = vec!["EVALSHA", sha, &count];
        command.extend(call.keys.iter().chain(&call.args).map(String::as_str));
        self.server.run(&command)
    }
}

/// Replaces times by their distance from the start, and long texts by their aliases.
pub(crate) fn readable(text: &str, aliases: &[(String, String)]) -> String {
    let mut result = String::new();
    let mut at = 0;
    for (place, length, time) in times(text.as_bytes()) {
        let micros = i128::from(time) - i128::from(START);
        let (millis, rest) = (micros.div_euclid(1000), micros.rem_euclid(1000));
        // Writing into a string does not fail.
        let _ = write!(result, "{}<{millis}.{rest:03}ms>", &text[at..place]);
        at = place + length;
    }
    result.push_str(&text[at..]);
    for (long, short) in aliases {
        result = result.replace(long, short);
    }
    result
}

/// The name of a process in a trace.
pub(crate) fn name(process: usize) -> char {
    char::from(b'A'.saturating_add(u8::try_from(process).unwrap_or(25)))
}

pub(crate) fn text(reply: &Reply) -> String {
    match reply {
        Reply::Int(n) => n.to_string(),
        Reply::Bulk(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
        Reply::Array(items) => {
            let items: Vec<_> = items.iter().map(text).collect();
            format!("[{}]", items.join(", "))
        }
        other => format!("{other:?}"),
    }
}

pub(crate) fn call_text(call: &Call) -> String {
    format!("{}({})", call.script, call.args.join(", "))
}
