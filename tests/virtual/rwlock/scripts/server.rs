//! Runs each request on the engine, and compares the engine with the table after every script.

use std::collections::BTreeMap;

use stanchion::embedded::{Engine, Reply};
use stanchion_rwlock::{read, write};

use super::java;
use super::table::{Mode, Request, Table, hold_key};

const RENEW: &str = include_str!("../../../../crates/stanchion-core/lua/renew.lua");
const CHANNEL: &str = "redisson_rwlock:{job}";
const FENCE: &str = "stanchion_fence:{job}";
const READERS: &str = "stanchion_rwlock_readers:{job}";
const ROW: &str = "stanchion_rwlock_line:{job}";
const WAKE: &str = "stanchion_rwlock_wake:{job}";
const PREFIX: &str = "{job}:";

/// One request, which can run more than once and at any later time.
#[derive(Clone, Debug)]
pub(super) enum Op {
    ReadAcquire {
        owner: String,
        lease: u64,
        not_after: u64,
        within: String,
    },
    ReadReenter {
        owner: String,
        lease: u64,
        not_after: u64,
        n: u64,
    },
    ReadRelease {
        owner: String,
        n: u64,
        lease: u64,
        /// True if the waiter also gives up.
        quits: bool,
    },
    ReadRenew {
        owner: String,
        lease: u64,
        not_after: u64,
    },
    WriteAcquire {
        field: String,
        lease: u64,
        not_after: u64,
    },
    WriteReenter {
        field: String,
        lease: u64,
        not_after: u64,
        n: u64,
    },
    WriteRelease {
        field: String,
        n: u64,
        lease: u64,
    },
    WriteAbandon {
        field: String,
    },
    WriteRenew {
        field: String,
        lease: u64,
        not_after: u64,
    },
    Downgrade {
        field: String,
        owner: String,
        lease: u64,
        not_after: u64,
    },
    JavaRead {
        owner: String,
        lease: u64,
    },
    JavaUnread {
        owner: String,
    },
    JavaWrite {
        owner: String,
        lease: u64,
    },
    JavaUnwrite {
        owner: String,
        lease: u64,
    },
    JavaRenewRead {
        owner: String,
        lease: u64,
    },
}

#[derive(Debug)]
pub(super) struct Server {
    engine: Engine,
    pub(super) table: Table,
    /// What follows the owner in a reader's queue entry.
    side: &'static str,
    pub(super) scripts: usize,
    pub(super) log: Vec<String>,
}

impl Server {
    pub(super) fn new(engine: Engine, side: &'static str) -> Self {
        Self {
            engine,
            table: Table::default(),
            side,
            scripts: 0,
            log: Vec::new(),
        }
    }

    /// The server time in µs.
    pub(super) fn now(&self) -> u64 {
        let Reply::Array(time) = self.engine.execute(&["TIME"]) else {
            panic!("TIME");
        };
        let part = |at: usize| match &time[at] {
            Reply::Bulk(text) => std::str::from_utf8(text).unwrap().parse::<u64>().unwrap(),
            other => panic!("{other:?}"),
        };
        part(0) * 1_000_000 + part(1)
    }

    fn eval(&self, script: &str, keys: &[&str], args: &[&str]) -> Reply {
        let count = keys.len().to_string();
        let mut command = vec!["EVAL", script, &count];
        command.extend(keys);
        command.extend(args);
        self.engine.execute(&command)
    }

    /// Runs a request on the engine and on the table, and compares the two.
    pub(super) fn run(&mut self, op: &Op) -> i64 {
        let now = self.now();
        self.table.tick(now / 1000);
        let before = self.table.clone();
        let reply = match self.execute(op) {
            Reply::Int(n) => n,
            Reply::Array(items) => match items.as_slice() {
                [Reply::Int(n)] => *n,
                other => panic!("{op:?}: {other:?}"),
            },
            other => panic!("{op:?}: {other:?}"),
        };
        let expected = self.expect(now, op);
        self.scripts += 1;
        self.log.push(format!("{} {op:?} -> {reply}", now / 1000));
        assert_eq!(reply, expected, "{op:?} on {before:?}\n{}", self.tail());
        self.compare(now / 1000, op);
        reply
    }

    pub(super) fn tail(&self) -> String {
        let from = self.log.len().saturating_sub(14);
        self.log[from..].join("\n")
    }

    #[rustfmt::skip]
    fn execute(&self, op: &Op) -> Reply {
        let text = |n: &u64| n.to_string();
        let timeouts = |owner: &str| format!("{{job}}:{owner}:rwlock_timeout");
        // Queue entries have their own tests. Here a refused client tries again.
        let owner_of = |field: &str| field.strip_suffix(":write").unwrap().to_owned();
        let places = |quits: bool| if quits { "1" } else { "0" };
        let writers = ["job", FENCE, ROW, WAKE, READERS];
        match op {
            Op::ReadAcquire { owner, lease, not_after, within } =>
                self.eval(read::ACQUIRE.text(), &["job", ROW, WAKE, READERS, &hold_key(owner, 1)], &[owner, &text(lease), &text(not_after), "try", "PUBLISH", CHANNEL, self.side, PREFIX, within, "0"]),
            Op::ReadReenter { owner, lease, not_after, n } =>
                self.eval(read::REENTER.text(), &["job", &hold_key(owner, 1), READERS], &[owner, &text(lease), &text(not_after), &text(n)]),
            Op::ReadRelease { owner, n, lease, quits } =>
                self.eval(read::RELEASE.text(), &["job", ROW, WAKE, READERS, &hold_key(owner, 1), FENCE], &[CHANNEL, "PUBLISH", owner, &text(n), &text(lease), PREFIX, places(*quits)]),
            Op::ReadRenew { owner, lease, not_after } =>
                self.eval(read::RENEW.text(), &["job", &hold_key(owner, 1), READERS], &[&text(not_after), owner, &text(lease)]),
            Op::WriteAcquire { field, lease, not_after } =>
                self.eval(write::ACQUIRE.text(), &["job", FENCE, ROW, WAKE, READERS], &[&owner_of(field), &text(lease), &text(not_after), "try", "PUBLISH", CHANNEL, PREFIX]),
            Op::WriteReenter { field, lease, not_after, n } =>
                self.eval(write::REENTER.text(), &["job"], &[field, &text(lease), &text(not_after), &text(n)]),
            Op::WriteRelease { field, n, lease } =>
                self.eval(write::RELEASE.text(), &writers, &[CHANNEL, "PUBLISH", &owner_of(field), &text(n), &text(lease), PREFIX, "0"]),
            Op::WriteAbandon { field } =>
                self.eval(write::RELEASE.text(), &writers, &[CHANNEL, "PUBLISH", &owner_of(field), "1", "0", PREFIX, "1"]),
            Op::WriteRenew { field, lease, not_after } =>
                self.eval(RENEW, &["job"], &[&text(not_after), field, &text(lease)]),
            Op::Downgrade { field, owner, lease, not_after } =>
                self.eval(write::DOWNGRADE.text(), &["job", ROW, WAKE, READERS, &hold_key(owner, 1)], &[CHANNEL, "PUBLISH", &owner_of(field), owner, &text(lease), &text(not_after), PREFIX]),
            Op::JavaRead { owner, lease } =>
                self.eval(java::READ, &["job", &timeouts(owner)], &[&text(lease), owner]),
            Op::JavaUnread { owner } =>
                self.eval(java::UNREAD, &["job", &timeouts(owner), "{job}"], &[owner]),
            Op::JavaWrite { owner, lease } =>
                self.eval(java::WRITE, &["job"], &[&text(lease), owner]),
            Op::JavaUnwrite { owner, lease } =>
                self.eval(java::UNWRITE, &["job"], &[&text(lease), owner]),
            Op::JavaRenewRead { owner, lease } =>
                self.eval(java::RENEW_READ, &["job", &timeouts(owner)], &[&text(lease), owner]),
        }
    }

    #[rustfmt::skip]
    fn expect(&mut self, now: u64, op: &Op) -> i64 {
        let ms = now / 1000;
        let table = &mut self.table;
        let request = |field, lease: &u64, not_after: &u64| Request { field, lease: *lease, not_after: *not_after };
        match op {
            Op::ReadAcquire { owner, lease, not_after, within } => table.read_acquire(now, request(owner, lease, not_after), within),
            Op::ReadReenter { owner, lease, not_after, n } => table.reenter(now, request(owner, lease, not_after), *n, true),
            Op::ReadRelease { owner, n, lease, .. } => table.read_release(ms, owner, *n, *lease),
            Op::ReadRenew { not_after, .. } | Op::WriteRenew { not_after, .. } if now > *not_after => -1,
            Op::ReadRenew { owner, lease, .. } => table.renew(ms, owner, *lease, true),
            Op::WriteAcquire { field, lease, not_after } => table.write_acquire(now, request(field, lease, not_after)),
            Op::WriteReenter { field, lease, not_after, n } => table.reenter(now, request(field, lease, not_after), *n, false),
            Op::WriteRelease { field, n, lease } => table.write_release(ms, field, *n, *lease),
            Op::WriteAbandon { field } => table.write_release(ms, field, 1, 0),
            Op::WriteRenew { field, lease, .. } => table.renew(ms, field, *lease, false),
            Op::Downgrade { field, owner, lease, not_after } => table.downgrade(now, field, request(owner, lease, not_after)),
            Op::JavaRead { owner, lease } => table.java_read(ms, owner, *lease),
            Op::JavaUnread { owner } => table.java_unread(ms, owner),
            Op::JavaWrite { owner, lease } => table.java_write(ms, owner, *lease),
            Op::JavaUnwrite { owner, lease } => table.java_unwrite(ms, owner, *lease),
            Op::JavaRenewRead { owner, lease } => table.java_renew_read(ms, owner, *lease),
        }
    }

    fn left(&self, key: &str) -> u64 {
        match self.engine.execute(&["PTTL", key]) {
            Reply::Int(left) => u64::try_from(left).unwrap_or_else(|_| panic!("{key}: {left}")),
            other => panic!("{other:?}"),
        }
    }

    fn text(&self, key: &str) -> String {
        match self.engine.execute(&["GET", key]) {
            Reply::Bulk(text) => String::from_utf8(text).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn scores(&self, key: &str) -> BTreeMap<String, u64> {
        let found = self
            .engine
            .execute(&["ZRANGE", key, "0", "-1", "WITHSCORES"]);
        let Reply::Array(items) = found else {
            panic!("{found:?}");
        };
        let pair = |item: &Reply| match item {
            Reply::Array(pair) => match pair.as_slice() {
                [Reply::Bulk(member), Reply::Double(score)] => {
                    let member = String::from_utf8(member.clone()).unwrap();
                    (member, format!("{score:.0}").parse().unwrap())
                }
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        items.iter().map(pair).collect()
    }

    /// The keyspace as a table.
    fn dump(&self, ms: u64) -> Table {
        let mut table = Table::default();
        for key in self.engine.keys() {
            let key = String::from_utf8(key).unwrap();
            match key.as_str() {
                FENCE => table.last_token = self.text(FENCE).parse().unwrap(),
                READERS => {
                    table.readers_end = ms + self.left(READERS);
                    table.readers = self.scores(READERS);
                }
                "job" => {
                    table.end = ms + self.left("job");
                    let Reply::Map(pairs) = self.engine.execute(&["HGETALL", "job"]) else {
                        panic!("job is no hash");
                    };
                    for pair in pairs {
                        let (Reply::Bulk(field), Reply::Bulk(value)) = pair else {
                            panic!("{pair:?}");
                        };
                        let value = String::from_utf8(value).unwrap();
                        match (field.as_slice(), value.as_str()) {
                            (b"mode", "read") => table.mode = Some(Mode::Read),
                            (b"mode", "write") => table.mode = Some(Mode::Write),
                            _ => table
                                .fields
                                .push((String::from_utf8(field).unwrap(), value.parse().unwrap())),
                        }
                    }
                }
                hold => {
                    assert_eq!(self.text(hold), "1");
                    table.holds.insert(hold.to_owned(), ms + self.left(hold));
                }
            }
        }
        table
    }

    fn compare(&mut self, ms: u64, op: &Op) {
        let mut found = self.dump(ms);
        if self.table.mode.is_none() {
            self.table.end = 0;
        }
        if self.table.readers.is_empty() {
            self.table.readers_end = 0;
        }
        if found.mode.is_none() {
            found.end = 0;
        }
        assert_eq!(found, self.table, "after {op:?}\n{}", self.tail());
    }
}
