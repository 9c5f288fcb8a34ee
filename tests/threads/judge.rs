//! The judge: records which callers wait and hold, and finds overlaps and lost wake-ups.
//!
//! A monitor thread checks all places every 10 ms. A waiter is stuck when the place could serve the waiter for 300 ms and did
//! not. The monitor skips a check while the machine is too busy: when the monitor itself is late, or when a runtime of the test
//! or the server did not run since the last check. A loaded machine therefore hides a stall, and never reports one that does not exist.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// The time between two checks.
const CHECK: Duration = Duration::from_millis(10);

/// A check that comes later than this is skipped.
const LATE: Duration = Duration::from_millis(25);

/// The time in which all calls end once no new ones are made.
const LONGEST_END: Duration = Duration::from_secs(60);

/// The number of checks in a row that make a waiter stuck: 300 ms.
pub(crate) const STUCK: u32 = 30;

/// The rule by which a place admits callers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// One holder.
    Alone,
    /// One writer or many readers.
    ReadWrite,
    /// Holders of so many permits together.
    Permits(u32),
    /// Callers that pass when so many are present. With 1, each call passes within the limit of the place.
    Meeting(usize),
}

/// The access that a caller waits for or holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Alone,
    Shared,
    Permits(u32),
}

impl Need {
    fn permits(self) -> u32 {
        match self {
            Self::Permits(n) => n,
            Self::Alone | Self::Shared => 1,
        }
    }
}

/// The waiters that a place can serve now.
enum Fit {
    No,
    /// One of several waiters can be served.
    OneOf,
    /// All waiters can be served together.
    All,
}

struct Waiter {
    need: Need,
    /// The number of checks in a row at which the waiter could have been served.
    stuck: u32,
}

#[derive(Default)]
struct State {
    next: u64,
    waiting: BTreeMap<u64, Waiter>,
    inside: BTreeMap<u64, Need>,
    entries: u64,
    entries_at_last_check: u64,
    /// Calls that exist and that no task polls. The server may have granted to one of them.
    unpolled: usize,
    /// Until then the server may have a hold without a caller, because its client was shut down.
    excused_until: Option<Instant>,
    token: u64,
    recent: VecDeque<String>,
    reported: bool,
    stalls: u64,
    longest: u32,
}

/// A name as its callers see it.
pub(crate) struct Place {
    pub(crate) name: String,
    kind: Kind,
    limit: u32,
    judge: Arc<Judge>,
    state: Mutex<State>,
}

impl Place {
    fn say(&self, state: &mut State, text: String) {
        if state.recent.len() == 24 {
            state.recent.pop_front();
        }
        let at = self.judge.started.elapsed();
        state.recent.push_back(format!("{at:?} {text}"));
    }

    /// Registers a waiter, until the result is dropped or enters.
    pub(crate) fn wait(self: &Arc<Self>, need: Need, how: &str) -> Waiting {
        let mut state = self.state.lock().unwrap();
        state.next += 1;
        let id = state.next;
        state.waiting.insert(id, Waiter { need, stuck: 0 });
        self.say(&mut state, format!("{id} waits, {need:?}, {how}"));
        Waiting {
            place: Arc::clone(self),
            id,
            need,
        }
    }

    /// Registers a holder that did not wait.
    pub(crate) fn enter(self: &Arc<Self>, need: Need, token: Option<u64>) -> Inside {
        self.wait(need, "at once").enter(token)
    }

    /// Registers a call that no task polls, until the result is dropped.
    pub(crate) fn unpolled(self: &Arc<Self>) -> Unpolled {
        self.state.lock().unwrap().unpolled += 1;
        Unpolled(Arc::clone(self))
    }

    /// Excuses stalls for `time`.
    pub(crate) fn excuse(&self, time: Duration) {
        let mut state = self.state.lock().unwrap();
        let until = Instant::now() + time;
        state.excused_until = state.excused_until.max(Some(until));
        self.say(&mut state, format!("excused for {time:?}"));
    }

    fn fit(&self, state: &State, need: Need) -> Fit {
        let others_alone = |state: &State| state.waiting.values().any(|it| it.need == Need::Alone);
        let fit_if = |fits: bool| if fits { Fit::OneOf } else { Fit::No };
        match self.kind {
            Kind::Alone => fit_if(state.inside.is_empty()),
            Kind::ReadWrite if need == Need::Shared && !others_alone(state) => {
                let written = state.inside.values().any(|it| *it == Need::Alone);
                if written { Fit::No } else { Fit::All }
            }
            Kind::ReadWrite => fit_if(state.inside.is_empty()),
            Kind::Permits(all) => {
                let used: u32 = state.inside.values().map(|it| it.permits()).sum();
                let wanted = state.waiting.values().map(|it| it.need.permits());
                let free = all.saturating_sub(used);
                if wanted.clone().sum::<u32>() <= free {
                    return Fit::All;
                }
                // The server keeps permits back for a large request.
                fit_if(wanted.max().is_some_and(|most| most <= free))
            }
            Kind::Meeting(parties) => fit_if(state.waiting.len() >= parties),
        }
    }

    fn check(&self) {
        let mut state = self.state.lock().unwrap();
        let state = &mut *state;
        let moved = state.entries != state.entries_at_last_check;
        state.entries_at_last_check = state.entries;
        let excused =
            state.unpolled > 0 || state.excused_until.is_some_and(|it| it > Instant::now());
        let mut stuck = None;
        let ids: Vec<u64> = state.waiting.keys().copied().collect();
        for id in ids {
            let need = state.waiting[&id].need;
            let waits_on = match self.fit(state, need) {
                Fit::No => false,
                Fit::OneOf => !moved,
                Fit::All => true,
            };
            let waiter = state.waiting.get_mut(&id).expect("ids are of waiters");
            waiter.stuck = if waits_on && !excused {
                waiter.stuck + 1
            } else {
                0
            };
            state.longest = state.longest.max(waiter.stuck);
            if waiter.stuck == self.limit {
                stuck = Some(id);
            }
        }
        let Some(id) = stuck else { return };
        state.stalls += 1;
        if state.reported {
            return;
        }
        state.reported = true;
        let waiting: Vec<_> = state.waiting.iter().map(|(id, it)| (id, it.need)).collect();
        self.judge.found(format!(
            "P4: {} could serve waiter {id} for {} ms and did not\n  waiting {waiting:?}\n  inside {:?}\n  {}",
            self.name,
            self.limit * 10,
            state.inside,
            Vec::from(state.recent.clone()).join("\n  "),
        ));
    }
}

/// A registered waiter.
pub(crate) struct Waiting {
    place: Arc<Place>,
    id: u64,
    need: Need,
}

impl Waiting {
    /// Makes the waiter a holder, and checks exclusion and tokens.
    pub(crate) fn enter(self, token: Option<u64>) -> Inside {
        let place = Arc::clone(&self.place);
        let (id, need) = (self.id, self.need);
        let mut state = place.state.lock().unwrap();
        state.waiting.remove(&id);
        state.entries += 1;
        place.judge.entries.fetch_add(1, Ordering::Relaxed);
        place.say(
            &mut state,
            format!("{id} enters, {need:?}, token {token:?}"),
        );
        let overlaps = match place.kind {
            Kind::Alone => !state.inside.is_empty(),
            Kind::ReadWrite if need == Need::Shared => {
                state.inside.values().any(|it| *it == Need::Alone)
            }
            Kind::ReadWrite => !state.inside.is_empty(),
            Kind::Permits(all) => {
                need.permits() + state.inside.values().map(|it| it.permits()).sum::<u32>() > all
            }
            Kind::Meeting(_) => false,
        };
        if overlaps {
            place.judge.found(format!(
                "P1: {} admits {need:?} while it has the holders {:?}\n  {}",
                place.name,
                state.inside,
                Vec::from(state.recent.clone()).join("\n  "),
            ));
        }
        if let Some(token) = token {
            if token <= state.token {
                let before = state.token;
                place.judge.found(format!(
                    "P2: {} gave token {token} after {before}",
                    place.name
                ));
            }
            state.token = token;
        }
        state.inside.insert(id, need);
        drop(state);
        Inside { place, id }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.place.state.lock().unwrap();
        if state.waiting.remove(&self.id).is_some() {
            let id = self.id;
            self.place.say(&mut state, format!("{id} leaves"));
        }
    }
}

/// A registered holder. Drop it before the release is sent.
pub(crate) struct Inside {
    place: Arc<Place>,
    id: u64,
}

impl Drop for Inside {
    fn drop(&mut self) {
        let mut state = self.place.state.lock().unwrap();
        state.inside.remove(&self.id);
        // A waiter is stuck from the release on, at the earliest.
        for waiter in state.waiting.values_mut() {
            if !matches!(self.place.kind, Kind::ReadWrite | Kind::Permits(_)) {
                waiter.stuck = 0;
            }
        }
        let id = self.id;
        self.place.say(&mut state, format!("{id} is out"));
    }
}

/// A call that no task polls.
pub(crate) struct Unpolled(Arc<Place>);

impl Drop for Unpolled {
    fn drop(&mut self) {
        self.0.state.lock().unwrap().unpolled -= 1;
    }
}

/// The places, the runtimes that must run, and the findings.
pub(crate) struct Judge {
    pub(crate) started: Instant,
    places: Mutex<Vec<Arc<Place>>>,
    hearts: Mutex<Vec<Heart>>,
    findings: Mutex<Vec<String>>,
    pub(crate) entries: AtomicU64,
    pub(crate) checks: AtomicU64,
    pub(crate) skipped: AtomicU64,
    over: AtomicBool,
}

/// The heartbeat of a runtime or of the server. The counter grows as long as the runtime or server runs.
struct Heart {
    beats: Arc<AtomicU64>,
    last: u64,
}

impl Judge {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            started: Instant::now(),
            places: Mutex::default(),
            hearts: Mutex::default(),
            findings: Mutex::default(),
            entries: AtomicU64::new(0),
            checks: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            over: AtomicBool::new(false),
        })
    }

    pub(crate) fn place(self: &Arc<Self>, name: &str, kind: Kind) -> Arc<Place> {
        self.slow_place(name, kind, STUCK)
    }

    /// A place that may take `limit` checks to serve a waiter.
    pub(crate) fn slow_place(self: &Arc<Self>, name: &str, kind: Kind, limit: u32) -> Arc<Place> {
        let place = Arc::new(Place {
            name: name.into(),
            kind,
            limit,
            judge: Arc::clone(self),
            state: Mutex::default(),
        });
        self.places.lock().unwrap().push(Arc::clone(&place));
        place
    }

    pub(crate) fn found(&self, text: String) {
        let mut findings = self.findings.lock().unwrap();
        if findings.len() < 20 {
            findings.push(text);
        }
    }

    /// A line for each place.
    pub(crate) fn table(&self) -> String {
        let line = |place: &Arc<Place>| {
            let state = place.state.lock().unwrap();
            format!(
                "  {:10} {:7} grants, {:3} stalls, longest {:5} ms\n",
                place.name,
                state.entries,
                state.stalls,
                state.longest * 10,
            )
        };
        self.places.lock().unwrap().iter().map(line).collect()
    }

    pub(crate) fn findings(&self) -> Vec<String> {
        self.findings.lock().unwrap().clone()
    }

    /// Checks count only if the result has grown since the last one.
    pub(crate) fn heart(&self) -> Arc<AtomicU64> {
        let beats = Arc::new(AtomicU64::new(1));
        let heart = Heart {
            beats: Arc::clone(&beats),
            last: 0,
        };
        self.hearts.lock().unwrap().push(heart);
        beats
    }

    /// Checks count only while the current runtime runs, until the result is aborted.
    pub(crate) fn watch_runtime(&self) -> tokio::task::JoinHandle<()> {
        let beats = self.heart();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(3)).await;
                beats.fetch_add(1, Ordering::Relaxed);
            }
        })
    }

    fn beat(&self) -> bool {
        let mut all = true;
        for heart in self.hearts.lock().unwrap().iter_mut() {
            let now = heart.beats.load(Ordering::Relaxed);
            all &= now != heart.last;
            heart.last = now;
        }
        all
    }

    /// Starts the monitor.
    pub(crate) fn monitor(self: &Arc<Self>) -> thread::JoinHandle<()> {
        let judge = Arc::clone(self);
        thread::spawn(move || {
            while !judge.over.load(Ordering::Relaxed) {
                let before = Instant::now();
                thread::sleep(CHECK);
                let beat = judge.beat();
                if !beat || before.elapsed() > LATE {
                    judge.skipped.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                judge.checks.fetch_add(1, Ordering::Relaxed);
                let places = judge.places.lock().unwrap().clone();
                for place in places {
                    place.check();
                }
            }
        })
    }

    /// Ends the process with the findings, unless the result is dropped in time: a caller may wait indefinitely.
    pub(crate) fn must_end(self: &Arc<Self>, seed: u64) -> mpsc::Sender<()> {
        let (ended, end) = mpsc::channel();
        let judge = Arc::clone(self);
        thread::spawn(move || {
            if end.recv_timeout(LONGEST_END) == Err(mpsc::RecvTimeoutError::Timeout) {
                let (table, findings) = (judge.table(), judge.findings().join("\n\n"));
                // Not `eprintln`, whose text the test harness keeps until the end of the test.
                let text = format!("seed {seed}: the run does not end\n{table}\n{findings}\n");
                std::io::stderr().write_all(text.as_bytes()).ok();
                std::process::exit(101);
            }
        });
        ended
    }

    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}
