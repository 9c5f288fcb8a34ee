//! Observation of every command that a server executes.

use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use crate::admin::{Admin, Value};
use crate::eventually::eventually_blocking;

/// A collector of `MONITOR` lines, on a thread of its own until dropped; created by [`crate::RedisServer::monitor`].
#[derive(Debug)]
pub struct Monitor {
    admin: Admin,
    socket: TcpStream,
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
    marks: AtomicU64,
}

impl Monitor {
    pub(crate) fn start(admin: Admin) -> Self {
        let mut connection = admin.connect().expect("a connection for MONITOR");
        let reply = connection.call(&[b"MONITOR"]).expect("a reply to MONITOR");
        assert!(!reply.is_error(), "MONITOR: {reply}");
        let socket = connection.socket().try_clone().expect("a second handle");
        socket.set_read_timeout(None).expect("no read timeout");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&lines);
        let reader = thread::spawn(move || {
            while let Ok(Value::Status(line)) = connection.read() {
                sink.lock().unwrap().push(line);
            }
        });
        Self {
            admin,
            socket,
            lines,
            reader: Some(reader),
            marks: AtomicU64::new(0),
        }
    }

    /// Returns every line so far: `<time> [<db> <client>] "COMMAND" "arg" …`, with the commands of scripts (client `lua`).
    ///
    /// The lines are complete up to the call, which waits until a command of its own appears.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let number = self.marks.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{MARK}{number}");
        let sent = self.admin.call(&[b"ECHO", mark.as_bytes()]);
        if sent.is_ok() {
            let quoted = format!("\"{mark}\"");
            eventually_blocking("MONITOR shows the marker", || {
                let lines = self.lines.lock().unwrap();
                lines.iter().any(|line| line.contains(&quoted))
            });
        }
        let lines = self.lines.lock().unwrap();
        let foreign = |line: &&String| !line.contains(MARK);
        lines.iter().filter(foreign).cloned().collect()
    }
}

const MARK: &str = "stanchion-monitor-mark-";

impl Drop for Monitor {
    fn drop(&mut self) {
        // Ends the blocking read; an error means that the server already closed the connection.
        let _ = self.socket.shutdown(Shutdown::Both);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}
