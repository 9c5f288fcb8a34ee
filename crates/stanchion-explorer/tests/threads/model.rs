//! The world of a thread model: a server with one name, and the parts of its local queue.

use std::fmt::{self, Debug};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use shuttle::thread::{JoinHandle, Thread};
use stanchion_client::Moment;
use stanchion_client::primitive::Sharing;

use crate::queue::{self, Ask, Context, Effects, End, Held, Holder, Parts, Refused, Stay};
use crate::shared::{Host, State, Table};
use crate::sync::{Mutex, MutexGuard, PoisonError};
use crate::wish::{Right, Wish};

/// Hand-offs in a row before a release.
const HAND_OFFS: u32 = 2;

/// The clock and the configuration: time does not pass.
impl Context<Model> for Arc<World> {
    fn now(&self) -> Moment {
        Moment::ZERO + Duration::from_secs(1)
    }

    fn poll_interval(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn polls(&self) -> bool {
        false
    }

    fn jitter(&self, most: Duration) -> Duration {
        most
    }

    fn owe(&self, want: &Wish, (): &()) -> Right {
        self.owner(*want)
    }
}

/// A server with one name: a writer, or readers.
#[derive(Debug, Default)]
pub(crate) struct Server(Mutex<Holders>);

#[derive(Debug, Default)]
struct Holders {
    writer: Option<String>,
    readers: Vec<String>,
}

impl Server {
    /// Returns whether `owner` got the name.
    pub(crate) fn acquire(&self, owner: &Right) -> bool {
        let mut holders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let reads = owner.0 == READ;
        let fits = holders.writer.is_none() && (reads || holders.readers.is_empty());
        match (fits, reads) {
            (true, true) => holders.readers.push(owner.1.clone()),
            (true, false) => holders.writer = Some(owner.1.clone()),
            (false, _) => {}
        }
        fits
    }

    /// P1: fails if `hold` is not the hold of the name.
    pub(crate) fn is_held_by(&self, hold: &Hold) {
        let holders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = &hold.state.owner.1;
        let writes = holders.writer.as_ref() == Some(id);
        assert!(writes || holders.readers.contains(id), "P1: {holders:?}");
    }

    /// Releases for `from`, and gives a writer's hold to `to`.
    fn pass(&self, from: &Right, to: Option<&Right>) {
        let mut holders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if from.0 == READ {
            holders.readers.retain(|it| *it != from.1);
            return;
        }
        assert_eq!(holders.writer.as_ref(), Some(&from.1), "P5");
        holders.writer = to.map(|to| to.1.clone());
    }
}

/// All that the tasks of a model share.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) table: Table<Entry>,
    pub(crate) server: Server,
    owners: AtomicU64,
    /// The requests that the queues have sent.
    requests: Mutex<Vec<JoinHandle<()>>>,
}

impl World {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            // No idle entry is kept, so that entries retire often.
            table: Table::new(0),
            server: Server::default(),
            owners: AtomicU64::new(0),
            requests: Mutex::default(),
        })
    }

    pub(crate) fn owner(&self, name: Wish) -> Right {
        let id = self.owners.fetch_add(1, Ordering::Relaxed).to_string();
        Right(name, id)
    }

    fn new_entry(self: &Arc<Self>) -> Arc<Entry> {
        Arc::new_cyclic(|this| Entry {
            this: Weak::clone(this),
            world: Arc::downgrade(self),
            state: Mutex::default(),
        })
    }

    pub(crate) fn join(self: &Arc<Self>, name: Wish) -> (Arc<Entry>, u64, Option<Ask<Model>>) {
        let stay = Stay {
            began: Moment::ZERO,
            deadline: Moment::FAR,
        };
        let owner = self.owner(name);
        let joins = |state: &mut State<Entry>| state.queue.join(self, owner, (), stay);
        let new = || Self::new_entry(self);
        let (entry, (place, ask)) = self.table.enter(&(), new, joins);
        (entry, place, ask)
    }

    /// Sends a request of a waiter, and passes the reply to its queue.
    pub(crate) fn ask(self: &Arc<Self>, entry: &Arc<Entry>, ask: Ask<Model>) {
        let Ask { place, debt, .. } = ask;
        if self.server.acquire(&debt) {
            let hold = self.begin(entry, debt);
            let event = |state: &mut State<Entry>| state.queue.granted(self, place, hold, None);
            drop(self.table.event(entry, event));
            return;
        }
        let refused = Refused {
            ttl: None,
            placed: None,
            has_entry: false,
            granted: None,
            forgotten: false,
            subscribed: true,
        };
        let event = |state: &mut State<Entry>| state.queue.refused(self, place, refused);
        self.table.event(entry, event);
    }

    pub(crate) fn visit(self: &Arc<Self>) -> Arc<Entry> {
        let comes = |state: &mut State<Entry>| state.uses.visitors += 1;
        let new = || Self::new_entry(self);
        self.table.enter(&(), new, comes).0
    }

    /// Ends a visit.
    pub(crate) fn leave(&self, entry: &Entry) {
        let mut state = entry.state();
        state.uses.visitors -= 1;
        self.table.carry_out(entry, state);
    }

    pub(crate) fn begin(self: &Arc<Self>, entry: &Arc<Entry>, owner: Right) -> Hold {
        Hold {
            world: Arc::clone(self),
            entry: Arc::clone(entry),
            state: Arc::new(HoldState {
                owner,
                held: AtomicBool::new(true),
            }),
        }
    }

    fn requests(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no request is in flight.
    pub(crate) fn settles(&self) {
        loop {
            let Some(request) = self.requests().pop() else {
                return;
            };
            request.join().unwrap_or_default();
        }
    }

    /// P3: fails if something is left when all tasks have ended.
    pub(crate) fn is_at_rest(&self) {
        let holders = self.server.0.lock().unwrap_or_else(PoisonError::into_inner);
        let free = holders.writer.is_none() && holders.readers.is_empty();
        assert!(free, "P3: {holders:?}");
        assert_eq!(self.table.entries.len(), 0, "an idle queue is left");
    }
}

/// A queue in the table.
pub(crate) struct Entry {
    this: Weak<Self>,
    world: Weak<World>,
    state: Mutex<State<Self>>,
}

impl Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entry")
    }
}

impl Host for Entry {
    type Parts = Model;
    type Key = ();
    type More = ();

    fn key(&self) -> &() {
        &()
    }

    fn mutex(&self) -> &Mutex<State<Self>> {
        &self.state
    }

    fn this(&self) -> Option<Arc<Self>> {
        self.this.upgrade()
    }

    type Later = ();

    fn ended(&self, _: &mut State<Self>, _: &Effects<Model>) {}

    fn send(&self, ask: Ask<Model>) {
        // In a task of its own, as the requests of a client.
        if let (Some(world), Some(entry)) = (self.world.upgrade(), self.this()) {
            let asking = Arc::clone(&world);
            let request = shuttle::thread::spawn(move || asking.ask(&entry, ask));
            world.requests().push(request);
        }
    }

    fn wake(waker: Thread) {
        waker.unpark();
    }
}

#[derive(Debug)]
pub(crate) enum Model {}

impl Parts for Model {
    type Want = Wish;
    type Owner = String;
    type Terms = ();
    type Debt = Right;
    type Hold = Hold;
    type Holder = Weak<HoldState>;
    type Ended = HoldState;
    type Waker = Thread;
    type Outage = ();
    type Answer = ();
}

/// A side of the one name, a lock without a queue on the server.
const fn side(sharing: Sharing) -> Wish {
    Wish {
        sharing,
        in_line: false,
        is_fact: false,
    }
}

pub(crate) const WRITE: Wish = side(Sharing::Exclusive);
pub(crate) const READ: Wish = side(Sharing::Together);

#[derive(Debug)]
pub(crate) struct HoldState {
    owner: Right,
    held: AtomicBool,
}

impl queue::EndedHold<Model> for HoldState {
    fn want(&self) -> &Wish {
        &self.owner.0
    }

    fn owner(&self) -> &String {
        &self.owner.1
    }

    fn is_untaken(&self) -> bool {
        false
    }
}

impl Holder<Model> for Weak<HoldState> {
    fn is_held(&self, _: Moment) -> bool {
        self.upgrade()
            .is_some_and(|it| it.held.load(Ordering::Acquire))
    }

    fn exists(&self) -> bool {
        self.strong_count() > 0
    }

    fn is(&self, ended: &HoldState) -> bool {
        std::ptr::eq(self.as_ptr(), ended)
    }
}

/// A hold. Its drop hands it to a waiter, or releases it.
#[derive(Debug)]
pub(crate) struct Hold {
    world: Arc<World>,
    entry: Arc<Entry>,
    state: Arc<HoldState>,
}

impl Held<Model> for Hold {
    fn sharing(&self) -> Sharing {
        self.state.owner.0.sharing
    }

    fn is_held(&self, _: Moment) -> bool {
        self.state.held.load(Ordering::Acquire)
    }

    fn holder(&self) -> Weak<HoldState> {
        Arc::downgrade(&self.state)
    }

    fn is(&self, ended: &HoldState) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.state), ended)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let (world, entry, state) = (&self.world, &self.entry, &self.state);
        state.held.store(false, Ordering::Release);
        let reserved = world.table.event(entry, |locked| {
            let (handed, _) = locked.queue.hand_offs();
            let may = handed < HAND_OFFS && state.owner.0 == WRITE;
            let place = may.then(|| locked.queue.reserve(world, &WRITE, false));
            Some((place.flatten()?, handed))
        });
        let Some((place, handed)) = reserved else {
            world.server.pass(&state.owner, None);
            let _: Option<()> = world.table.present(entry, |entry, mut locked| {
                // Without a message: the next waiter sends a request.
                locked.queue.freed(world, state, End::Unknown);
                world.table.carry_out(entry, locked);
            });
            return;
        };
        let to = world.owner(WRITE);
        world.server.pass(&state.owner, Some(&to));
        let hold = world.begin(entry, to);
        world.table.event(entry, |locked| {
            locked.queue.hand_over(world, place, hold, handed + 1);
        });
    }
}
