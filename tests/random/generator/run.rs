//! Runs a program on embedded engines in virtual time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use stanchion::client::Wake;
use stanchion::embedded::Engine;
use stanchion::{Client, ClientConfig};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::generator::calls::{OPERATION, TOLERANCE};
use crate::generator::judge;
use crate::generator::planted::Planted;
use crate::generator::process::{JumpingClock, Wire};
use crate::generator::program::{ClientSpec, Polled, Program, WakeMode};
use crate::generator::span;
use crate::generator::state::{Finding, Process, Shared, State};

/// The outcome of a run.
pub(crate) struct Report {
    pub(crate) finding: Option<Finding>,
    pub(crate) history: String,
    /// Equal for equal histories.
    pub(crate) digest: (u64, u64),
}

thread_local! {
    static PANICS: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Turns a panic of a task, which its runtime catches, into a finding. Other panics are printed as usual.
pub(crate) fn note_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let inside = tokio::runtime::Handle::try_current().is_ok();
            if inside {
                PANICS.with_borrow_mut(|panics| *panics = Some(info.to_string()));
            } else {
                usual(info);
            }
        }));
    });
}

/// Runs `program`. Rules in `ignored` are not judged.
pub(crate) fn run(program: &Program, ignored: &'static [&'static str]) -> Report {
    run_with(program, ignored, Planted::Nothing)
}

/// Runs `program` with an error.
pub(crate) fn run_with(
    program: &Program,
    ignored: &'static [&'static str],
    planted: Planted,
) -> Report {
    note_panics();
    PANICS.with_borrow_mut(Option::take);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    let Ok(runtime) = runtime else {
        panic!("no runtime");
    };
    // The libraries below draw their random numbers from this generator.
    fastrand::seed(7);
    let shared = runtime.block_on(async {
        let mut runner = Runner::new(program, ignored, planted);
        runner.go(program).await;
        runner.shared
    });
    runtime.shutdown_background();
    let mut state = shared.lock();
    if let Some(panic) = PANICS.with_borrow_mut(Option::take) {
        state.report("Panic", panic);
    }
    Report {
        finding: state.finding.clone(),
        history: state.history.render(),
        digest: state.history.digest(),
    }
}

pub(crate) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The content of a slot.
pub(crate) enum Content {
    Pending(u64, AbortHandle),
    /// A future that no task polls.
    Parked(u64, Work),
    Guard(u64),
}

/// The variables of a program, by number.
#[derive(Clone, Default)]
pub(crate) struct Slots(Arc<Mutex<BTreeMap<u8, Content>>>);

impl Slots {
    pub(crate) fn put(&self, slot: u8, content: Content) {
        let old = self.map(|slots| slots.insert(slot, content));
        drop(old);
    }

    pub(crate) fn take(&self, slot: u8) -> Option<Content> {
        self.map(|slots| slots.remove(&slot))
    }

    pub(crate) fn guard(&self, slot: u8) -> Option<u64> {
        self.map(|slots| match slots.get(&slot) {
            Some(Content::Guard(id)) => Some(*id),
            _ => None,
        })
    }

    /// Returns whether the slot has a future that no task polls.
    pub(crate) fn is_parked(&self, slot: u8) -> bool {
        self.map(|slots| matches!(slots.get(&slot), Some(Content::Parked(..))))
    }

    pub(crate) fn numbers(&self) -> Vec<u8> {
        self.map(|slots| slots.keys().copied().collect())
    }

    /// Puts the guard into the slot, if the slot still has this call. Returns whether it has.
    pub(crate) fn fulfil(&self, slot: u8, call: u64, guard: u64) -> bool {
        self.map(|slots| match slots.get(&slot) {
            Some(Content::Pending(id, _) | Content::Parked(id, _)) if *id == call => {
                slots.insert(slot, Content::Guard(guard));
                true
            }
            _ => false,
        })
    }

    /// Removes the future of a call that has ended.
    pub(crate) fn done(&self, slot: u8, call: u64) {
        self.map(|slots| {
            if matches!(slots.get(&slot), Some(Content::Parked(id, _)) if *id == call) {
                slots.remove(&slot);
            }
        });
    }

    fn map<T>(&self, f: impl FnOnce(&mut BTreeMap<u8, Content>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(crate) struct Runner {
    pub(crate) shared: Shared,
    pub(crate) slots: Slots,
    /// Tasks without a slot: workers and watchers, with the numbers of their clients.
    pub(crate) tasks: Vec<(u8, AbortHandle)>,
    /// Tasks of observers, which run to the end.
    pub(crate) observer_tasks: Vec<(u8, AbortHandle)>,
    latency: Duration,
}

impl Runner {
    fn new(program: &Program, ignored: &'static [&'static str], planted: Planted) -> Self {
        let latency = Duration::from_millis(program.world.latency.into());
        let engines = (0..program.world.servers)
            .map(|number| {
                let engine = Engine::numbered(number.into());
                engine.faults().delay(None, latency);
                if let Planted::Script(from, to) = planted {
                    engine.faults().change_scripts(from, to);
                }
                engine
            })
            .collect();
        Self {
            shared: Shared::new(State::new(engines, ignored, planted)),
            slots: Slots::default(),
            tasks: Vec::new(),
            observer_tasks: Vec::new(),
            latency,
        }
    }

    async fn go(&mut self, program: &Program) {
        for spec in &program.world.clients {
            self.connect(*spec).await;
        }
        self.pass(Duration::from_millis(50)).await;
        for step in &program.steps {
            if self.is_over() {
                return;
            }
            self.shared.lock().log(format!("-- {step:?}"));
            Box::pin(self.step(step)).await;
            self.pass(Duration::from_millis(1)).await;
        }
        Box::pin(self.settle()).await;
    }

    pub(crate) fn is_over(&self) -> bool {
        self.shared.lock().finding.is_some()
    }

    /// Lets time pass, and runs the judges in between.
    pub(crate) async fn pass(&self, length: Duration) {
        let until = Instant::now() + length;
        let began = Instant::now();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.is_over() {
                return;
            }
            let slice = if began.elapsed() < Duration::from_millis(200) {
                Duration::from_millis(20)
            } else {
                Duration::from_millis(100)
            };
            tokio::time::sleep(slice.min(left)).await;
            judge::check(&mut self.shared.lock());
        }
    }

    /// Connects another client, as in a process of its own. Returns `None` if it cannot connect.
    pub(crate) async fn connect(&mut self, spec: ClientSpec) -> Option<u8> {
        let (number, engine, planted) = {
            let state = self.shared.lock();
            let engine = state.engines.get(usize::from(spec.server))?.clone();
            (state.processes.len(), engine, state.planted)
        };
        let label = format!("process-{number}");
        let wire = Wire::new(&engine, &label, planted);
        let clock = JumpingClock::start();
        let url = format!("redis://server-{}/{}", spec.server, spec.database);
        let wake = match spec.wake_mode {
            WakeMode::Messages => Wake::Messages,
            WakeMode::Polls => Wake::Poll,
        };
        let config = ClientConfig::new(url)
            .virtual_time()
            .clock(clock.clone())
            .connector(wire.clone())
            .name(label)
            .seed(u64::try_from(number).unwrap_or_default())
            .identity(u128::try_from(number).unwrap_or_default() + 1)
            .operation_timeout(OPERATION)
            .outage_tolerance(TOLERANCE)
            .wake(wake);
        let client = Box::pin(Client::connect_with(config)).await.ok()?;
        let mut state = self.shared.lock();
        let trouble = state.began - Duration::from_secs(60);
        state.processes.push(Process {
            id: client.id().to_string(),
            client: Some(client),
            spec,
            clock,
            wire,
            killed: false,
            closing: false,
            frozen: None,
            trouble,
        });
        u8::try_from(number).ok()
    }

    /// Drops the content of a slot, as an assignment to a variable does.
    pub(crate) fn empty(&self, slot: u8) {
        match self.slots.take(slot) {
            None => {}
            Some(Content::Pending(_, task)) => task.abort(),
            Some(Content::Parked(_, future)) => drop(future),
            Some(Content::Guard(id)) => drop(self.shared.remove_guard(id)),
        }
    }

    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        tokio::spawn(work).abort_handle()
    }

    pub(crate) fn latency(&self) -> Duration {
        self.latency
    }
}

/// Polls once, with a waker that does nothing.
pub(crate) async fn poll_once(work: &mut Work) -> bool {
    poll_fn(|_| {
        let mut context = Context::from_waker(Waker::noop());
        Poll::Ready(work.as_mut().poll(&mut context).is_ready())
    })
    .await
}

/// Polls a kept future once more.
pub(crate) async fn poll_parked(runner: &Runner, slot: u8, call: u64, mut work: Work) {
    // The poll may replace this placeholder by its guard.
    let empty: Work = Box::pin(async {});
    runner.slots.put(slot, Content::Parked(call, empty));
    if poll_once(&mut work).await {
        runner.slots.done(slot, call);
    } else {
        runner.slots.put(slot, Content::Parked(call, work));
    }
}

/// Runs a future for a slot, in the way that `polled` says.
pub(crate) async fn run_in_slot(runner: &Runner, slot: u8, call: u64, work: Work, polled: Polled) {
    match polled {
        Polled::Always => {
            let task = runner.spawn(work);
            runner.slots.put(slot, Content::Pending(call, task));
        }
        Polled::For(millis) => {
            let task = runner.spawn(async move {
                drop(tokio::time::timeout(span(millis), work).await);
            });
            runner.slots.put(slot, Content::Pending(call, task));
        }
        Polled::Times(polls) => {
            let task = runner.spawn(async move {
                stanchion_testkit::cancel_after(work, polls.into()).await;
            });
            runner.slots.put(slot, Content::Pending(call, task));
        }
        Polled::Once => {
            {
                let mut state = runner.shared.lock();
                state.ever_parked = true;
                if let Some(op) = state.ops.get_mut(&call) {
                    op.parked = true;
                    op.was_parked = true;
                }
            }
            poll_parked(runner, slot, call, work).await;
        }
    }
}
