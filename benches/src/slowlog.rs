//! The durations of single scripts on the server, as the server measures them, for scripts of all clients.

use std::collections::HashMap;

use stanchion_testkit::RedisServer;

/// The server's times of every script that ran with one key, in microseconds, by the script's digest.
#[derive(Debug)]
pub(crate) struct Times(HashMap<String, Vec<f64>>);

fn tell(server: &RedisServer, command: &[&str]) {
    let reply = server.cli(command);
    assert!(!reply.is_error(), "{command:?}: {reply}");
}

/// Logs every command from now on.
pub(crate) fn start(server: &RedisServer) {
    tell(server, &["CONFIG", "SET", "slowlog-max-len", "20000"]);
    tell(server, &["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    tell(server, &["SLOWLOG", "RESET"]);
}

/// Ends the log, and returns its times for the scripts that have `key` as their first key.
pub(crate) fn stop(server: &RedisServer, key: &str) -> Times {
    tell(server, &["CONFIG", "SET", "slowlog-log-slower-than", "-1"]);
    let log = server.cli(&["SLOWLOG", "GET", "-1"]);
    tell(server, &["SLOWLOG", "RESET"]);
    let mut times: HashMap<String, Vec<f64>> = HashMap::new();
    for entry in log.as_array() {
        // [id, time, microseconds, [EVALSHA, digest, keys, key, …], …]
        let entry = entry.as_array();
        let command = entry[3].as_array();
        let [name, digest, _, first, ..] = command else {
            continue;
        };
        if name.as_text().eq_ignore_ascii_case("evalsha") && first.as_text() == key {
            let micros = entry[2].as_int() as f64;
            times
                .entry(digest.as_text().to_owned())
                .or_default()
                .push(micros);
        }
    }
    Times(times)
}

impl Times {
    /// The mean of the script with this text, if it ran. The longest tenth is left out: in it the server was interrupted.
    pub(crate) fn mean(&self, script: &str) -> Option<f64> {
        let digest = sha1_smol::Sha1::from(script).digest().to_string();
        let mut times = self.0.get(&digest)?.clone();
        times.sort_by(f64::total_cmp);
        times.truncate(times.len() - times.len() / 10);
        Some(times.iter().sum::<f64>() / times.len() as f64)
    }
}
