//! Runs a program on embedded engines in virtual time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use stanchion::embedded::Engine;
use stanchion::{Client, ClientConfig, Wake};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::calls::{OPERATION, TOLERANCE};
use crate::judge;
use crate::process::{JumpingClock, Wire};
use crate::program::{Hears, Polled, Program, Seat};
use crate::span;
use crate::state::{Finding, Process, Shared, State};

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

/// Lets a panic of a task, which its runtime swallows, be a finding. Those of others are printed as ever.
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
    note_panics();
    PANICS.with_borrow_mut(Option::take);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    let Ok(runtime) = runtime else {
        panic!("no runtime");
    };
    // What is random in libraries below draws from here.
    fastrand::seed(7);
    let shared = runtime.block_on(async {
        let mut runner = Runner::new(program, ignored);
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
        history: state.history.tell(),
        digest: state.history.digest(),
    }
}

pub(crate) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The content of a hand.
pub(crate) enum Content {
    Pending(u64, AbortHandle),
    /// A future that nobody polls.
    Left(u64, Work),
    Guard(u64),
}

/// The variables of a program.
#[derive(Clone, Default)]
pub(crate) struct Hands(Arc<Mutex<BTreeMap<u8, Content>>>);

impl Hands {
    pub(crate) fn put(&self, hand: u8, content: Content) {
        let old = self.map(|hands| hands.insert(hand, content));
        drop(old);
    }

    pub(crate) fn take(&self, hand: u8) -> Option<Content> {
        self.map(|hands| hands.remove(&hand))
    }

    pub(crate) fn guard(&self, hand: u8) -> Option<u64> {
        self.map(|hands| match hands.get(&hand) {
            Some(Content::Guard(id)) => Some(*id),
            _ => None,
        })
    }

    /// Returns whether it has a future that nobody polls.
    pub(crate) fn is_left(&self, hand: u8) -> bool {
        self.map(|hands| matches!(hands.get(&hand), Some(Content::Left(..))))
    }

    pub(crate) fn numbers(&self) -> Vec<u8> {
        self.map(|hands| hands.keys().copied().collect())
    }

    /// Returns whether the call is still what the hand has; then the guard is.
    pub(crate) fn fulfil(&self, hand: u8, call: u64, guard: u64) -> bool {
        self.map(|hands| match hands.get(&hand) {
            Some(Content::Pending(id, _) | Content::Left(id, _)) if *id == call => {
                hands.insert(hand, Content::Guard(guard));
                true
            }
            _ => false,
        })
    }

    /// The future of this call has ended.
    pub(crate) fn done(&self, hand: u8, call: u64) {
        self.map(|hands| {
            if matches!(hands.get(&hand), Some(Content::Left(id, _)) if *id == call) {
                hands.remove(&hand);
            }
        });
    }

    fn map<T>(&self, f: impl FnOnce(&mut BTreeMap<u8, Content>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(crate) struct Runner {
    pub(crate) shared: Shared,
    pub(crate) hands: Hands,
    /// Tasks that are nobody's hand: workers, watchers.
    pub(crate) tasks: Vec<(u8, AbortHandle)>,
    /// Those who look on, to the end.
    pub(crate) lookers: Vec<(u8, AbortHandle)>,
    latency: Duration,
}

impl Runner {
    fn new(program: &Program, ignored: &'static [&'static str]) -> Self {
        let latency = Duration::from_millis(program.world.latency.into());
        let engines = (0..program.world.servers)
            .map(|number| {
                let engine = Engine::numbered(number.into());
                engine.faults().delay(None, latency);
                engine
            })
            .collect();
        Self {
            shared: Shared::new(State::new(engines, ignored)),
            hands: Hands::default(),
            tasks: Vec::new(),
            lookers: Vec::new(),
            latency,
        }
    }

    async fn go(&mut self, program: &Program) {
        for seat in &program.world.clients {
            self.connect(*seat).await;
        }
        self.pass(Duration::from_millis(50)).await;
        for step in &program.steps {
            if self.is_over() {
                return;
            }
            self.shared.lock().tell(format!("-- {step:?}"));
            Box::pin(self.step(step)).await;
            self.pass(Duration::from_millis(1)).await;
        }
        Box::pin(self.settle()).await;
    }

    pub(crate) fn is_over(&self) -> bool {
        self.shared.lock().finding.is_some()
    }

    /// Time passes, and judges look.
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
            judge::look(&mut self.shared.lock());
        }
    }

    /// Another client, as another process would have. `None`: it could not connect.
    pub(crate) async fn connect(&mut self, seat: Seat) -> Option<u8> {
        let (number, engine) = {
            let state = self.shared.lock();
            let engine = state.engines.get(usize::from(seat.server))?.clone();
            (state.processes.len(), engine)
        };
        let label = format!("process-{number}");
        let wire = Wire::new(&engine, &label);
        let clock = JumpingClock::start();
        let url = format!("redis://server-{}/{}", seat.server, seat.database);
        let wake = match seat.hears {
            Hears::Messages => Wake::Messages,
            Hears::Polls => Wake::Poll,
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
            seat,
            clock,
            wire,
            killed: false,
            closing: false,
            frozen: None,
            trouble,
        });
        u8::try_from(number).ok()
    }

    /// Empties a hand as a variable that is assigned again.
    pub(crate) fn empty(&self, hand: u8) {
        match self.hands.take(hand) {
            None => {}
            Some(Content::Pending(_, task)) => task.abort(),
            Some(Content::Left(_, future)) => drop(future),
            Some(Content::Guard(id)) => drop(self.shared.let_go(id)),
        }
    }

    /// Has a task do it.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        tokio::spawn(work).abort_handle()
    }

    pub(crate) fn latency(&self) -> Duration {
        self.latency
    }
}

/// Polls once, and wakes nobody.
pub(crate) async fn poll_once(work: &mut Work) -> bool {
    poll_fn(|_| {
        let mut nobody = Context::from_waker(Waker::noop());
        Poll::Ready(work.as_mut().poll(&mut nobody).is_ready())
    })
    .await
}

/// Polls a future that nobody polls once more.
pub(crate) async fn poll_left(runner: &Runner, hand: u8, call: u64, mut work: Work) {
    // What stands there while it runs may be replaced by its guard.
    let empty: Work = Box::pin(async {});
    runner.hands.put(hand, Content::Left(call, empty));
    if poll_once(&mut work).await {
        runner.hands.done(hand, call);
    } else {
        runner.hands.put(hand, Content::Left(call, work));
    }
}

/// Runs a future as `polled` says, for a hand.
pub(crate) async fn attend(runner: &Runner, hand: u8, call: u64, work: Work, polled: Polled) {
    match polled {
        Polled::Always => {
            let task = runner.spawn(work);
            runner.hands.put(hand, Content::Pending(call, task));
        }
        Polled::For(millis) => {
            let task = runner.spawn(async move {
                drop(tokio::time::timeout(span(millis), work).await);
            });
            runner.hands.put(hand, Content::Pending(call, task));
        }
        Polled::Times(polls) => {
            let task = runner.spawn(async move {
                stanchion_testkit::cancel_after(work, polls.into()).await;
            });
            runner.hands.put(hand, Content::Pending(call, task));
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
            poll_left(runner, hand, call, work).await;
        }
    }
}
