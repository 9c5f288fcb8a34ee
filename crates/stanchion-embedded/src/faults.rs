//! Faults: the handle by which tests make the server or the network misbehave.

use std::time::Duration;

use crate::engine::Engine;
use crate::keyspace::Keyspace;
use crate::server::{Server, Session};
use crate::switches::{Counted, Loss, Switches};

/// The position of a fault's switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// The fault is in force.
    On,
    /// The fault is not in force.
    Off,
}

/// The fate of the data at a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// The data survives, as with a fully synchronous append-only file.
    Kept,
    /// The data is lost, as without persistence.
    Lost,
}

/// A copy of the data of a server, with which it can be [restarted](Faults::restart_from), as with a snapshot on a disk.
#[derive(Clone, Debug)]
pub struct Saved(Vec<Keyspace>);

/// The faults of one engine. All take effect at once, also on open connections.
///
/// A label aims a fault at the connections opened with
/// [`Engine::connect_as`](crate::Engine::connect_as); `None` aims at all of them.
#[derive(Clone, Debug)]
pub struct Faults {
    engine: Engine,
}

impl Faults {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine }
    }

    /// Changes the server under its lock, then wakes the readers with new output.
    fn change<T>(&self, change: impl FnOnce(&mut Server) -> T) -> T {
        self.engine.core().change(change)
    }

    /// Refuses new connections; open ones stay.
    pub fn refuse_connections(&self, on: Switch) {
        self.change(|server| server.switches.refuse_connections = on == Switch::On);
    }

    /// Cuts all connections: readers see the end, writers a broken pipe.
    pub fn kill_connections(&self) {
        self.change(|server| server.kill(|_| true));
    }

    /// Cuts the connections with this label.
    pub fn kill_label(&self, label: &str) {
        self.change(|server| server.kill(|session| session.has_label(Some(label))));
    }

    /// Cuts the connections that have subscriptions.
    pub fn kill_subscribers(&self) {
        self.change(|server| server.kill(|session| session.subscriptions() > 0));
    }

    /// Freezes connections, also those opened later: bytes written are accepted and kept but not executed, and
    /// no reply or message arrives. Kept bytes stay under way even if their connection is dropped.
    pub fn freeze(&self, label: Option<&str>) {
        self.change(|server| {
            match label {
                None => server.switches.all_frozen = true,
                Some(label) => {
                    server.switches.frozen.insert(label.to_owned());
                }
            }
            server.apply_freezing();
        });
    }

    /// Ends [`Faults::freeze`]: the kept bytes are executed now and replies flow again. `None` thaws everything;
    /// a label does not end a freeze of all connections.
    pub fn thaw(&self, label: Option<&str>) {
        let thawed = self.change(|server| {
            match label {
                None => {
                    server.switches.all_frozen = false;
                    server.switches.frozen.clear();
                }
                Some(label) => {
                    server.switches.frozen.remove(label);
                }
            }
            server.apply_freezing()
        });
        self.engine.core().resume(&thawed);
    }

    /// Delays every reply and message by `delay`, on the reader's tokio clock. Zero ends the delay. A label's own
    /// delay overrides the common one.
    pub fn delay(&self, label: Option<&str>, delay: Duration) {
        self.change(|server| {
            match label {
                None => server.switches.common_delay = delay,
                Some(label) if delay.is_zero() => {
                    server.switches.delays.remove(label);
                }
                Some(label) => {
                    server.switches.delays.insert(label.to_owned(), delay);
                }
            }
            server.apply_delays();
        });
    }

    /// Executes the next `n` commands of this name (`*`: of any name) and closes their connection instead of
    /// sending the reply.
    pub fn lose_replies(&self, command: &str, n: usize) {
        self.lose(command, n, Loss::Close);
    }

    /// Executes commands without a reply, as [`Faults::lose_replies`], but leaves the connection open and silent for good.
    pub fn lose_replies_silently(&self, command: &str, n: usize) {
        self.lose(command, n, Loss::Silence);
    }

    fn lose(&self, command: &str, n: usize, loss: Loss) {
        self.change(|server| push(&mut server.switches.lost_replies, command, n, loss));
    }

    /// Holds back the next `n` commands of this name (`*`: of any name), and everything that their connection sends after
    /// them, until [`Faults::deliver`]. As with bytes in a network, they stay under way after the connection has ended.
    pub fn hold_requests(&self, command: &str, n: usize) {
        self.change(|server| push(&mut server.switches.delayed_requests, command, n, ()));
    }

    /// Delivers the commands that [`Faults::hold_requests`] has held back, and holds back no more.
    pub fn deliver(&self) {
        let thawed = self.change(|server| {
            server.switches.delayed_requests.clear();
            for session in server.sessions.values_mut() {
                session.is_delayed = false;
            }
            server.apply_freezing()
        });
        self.engine.core().resume(&thawed);
    }

    /// Drops the next `n` published messages. Their publishers get the usual count of receivers.
    pub fn lose_messages(&self, n: usize) {
        self.change(|server| server.switches.lost_messages = n);
    }

    /// Sends each published message twice to every receiver, the second time after `delay`: as to a client that is subscribed on two nodes
    /// during a failover. A copy does not delay later output. `None` ends the fault. Publishers get the usual count of receivers.
    pub fn repeat_messages(&self, delay: Option<Duration>) {
        self.change(|server| server.switches.repeated_messages = delay);
    }

    /// Answers the next `n` commands of this name (`*`: of any name) that a connection sends with this error,
    /// without executing them. Calls inside scripts are not affected.
    pub fn fail_next(&self, command: &str, error: &str, n: usize) {
        let failure = error.trim_start_matches('-').to_owned();
        self.change(|server| push(&mut server.switches.failures, command, n, failure));
    }

    /// Refuses commands that need memory, as if `maxmemory` were reached under `noeviction`. A script fails at its
    /// first such command, unless it has called a write command before.
    pub fn out_of_memory(&self, on: Switch) {
        self.change(|server| server.switches.out_of_memory = on == Switch::On);
    }

    /// Refuses writes, as a replica does; in scripts at the first write.
    pub fn read_only(&self, on: Switch) {
        self.change(|server| server.switches.read_only = on == Switch::On);
    }

    /// Refuses most commands, as while the data set is loading.
    pub fn loading(&self, on: Switch) {
        self.change(|server| server.switches.loading = on == Switch::On);
    }

    /// Answers scripts as two nodes of a cluster between which all slots are moving, and no key moves. A script with several keys, of which one is
    /// missing, gets `TRYAGAIN`. While a script runs whose keys all exist, a command with a key that the script itself has removed is refused,
    /// even after the script has written. A script with one key, which is missing, runs.
    pub fn migrating(&self, on: Switch) {
        self.change(|server| server.switches.migrating = on == Switch::On);
    }

    /// Forgets all scripts: `EVALSHA` answers `NOSCRIPT` again.
    pub fn flush_scripts(&self) {
        self.engine.core().flush_scripts();
    }

    /// Replaces a text in every script from now on. The digests stay. A test plants an error with this, to show that it is found.
    #[doc(hidden)]
    pub fn change_scripts(&self, from: &str, to: &str) {
        self.engine.core().change_scripts(from, to);
    }

    /// Deletes all keys.
    pub fn flush_all(&self) {
        self.change(Server::flush_all);
    }

    /// Moves the server's wall clock by this many milliseconds, forward or back.
    pub fn step_clock(&self, millis: i64) {
        self.change(|server| server.clock.step(millis));
    }

    /// Restarts the server as a new process: connections and scripts are gone, and with [`Data::Lost`] the keys.
    pub fn restart(&self, data: Data) {
        self.engine.core().flush_scripts();
        self.change(|server| {
            server.restart();
            if data == Data::Lost {
                server.flush_all();
            }
        });
    }

    /// Returns a copy of the data.
    #[must_use]
    pub fn save(&self) -> Saved {
        self.change(|server| Saved(server.databases.clone()))
    }

    /// Restarts the server as [`Faults::restart`], with data that was [saved](Faults::save) before. The clock goes on.
    pub fn restart_from(&self, saved: &Saved) {
        self.restart(Data::Lost);
        self.change(|server| server.databases.clone_from(&saved.0));
    }

    /// Requires this password of new connections; `None` requires none.
    pub fn password(&self, password: Option<&str>) {
        self.change(|server| server.switches.password = password.map(str::to_owned));
    }

    /// Ends all faults. Their effects stay: cut connections, deleted keys, the stepped clock.
    pub fn clear(&self) {
        let thawed = self.change(|server| {
            server.switches = Switches::default();
            for session in server.sessions.values_mut() {
                session.is_delayed = false;
            }
            server.apply_delays();
            server.apply_freezing()
        });
        self.engine.core().resume(&thawed);
    }
}

fn push<T>(waiting: &mut Vec<Counted<T>>, command: &str, left: usize, fault: T) {
    if left > 0 {
        let command = command.to_owned();
        waiting.push(Counted {
            command,
            left,
            fault,
        });
    }
}

impl Server {
    /// Applies the freeze switches to all connections. Returns the sessions that were thawed.
    fn apply_freezing(&mut self) -> Vec<u64> {
        use crate::connection::Flow;
        let mut thawed = Vec::new();
        for session in self.sessions.values() {
            let mut pipe = session.connection.lock();
            let frozen = session.is_delayed || self.switches.is_frozen(session.label.as_deref());
            match (pipe.flow, frozen) {
                (Flow::Moving, true) => pipe.flow = Flow::Frozen,
                (Flow::Frozen, false) => {
                    pipe.flow = Flow::Moving;
                    self.to_wake.extend(pipe.take_reader());
                    thawed.push(session.id);
                }
                _ => {}
            }
        }
        thawed
    }

    fn apply_delays(&mut self) {
        let delay = |session: &Session| self.switches.delay(session.label.as_deref());
        for session in self.sessions.values() {
            session.connection.lock().delay = delay(session);
        }
    }
}
