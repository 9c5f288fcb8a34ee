//! Compares random histories of the fair lock with a plain model: a queue, a holder and a count.

use std::collections::VecDeque;

use proptest::prelude::*;
use stanchion::Owner;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    /// Some client joins the queue.
    Join(usize),
    /// Some client tries once.
    Try(usize),
    /// The holder releases one count.
    Release,
    /// The holder's guards are dropped.
    Drop,
    Reenter,
    /// The n-th waiter from the head leaves.
    Leave(usize),
    /// A client releases the lock by force.
    Force(usize),
    /// The holder releases all counts. If the next waiter is of another client, the message of the grant is lost.
    LoseMessage,
    /// Time passes.
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..3usize).prop_map(Step::Join),
        2 => (0..3usize).prop_map(Step::Try),
        6 => Just(Step::Release),
        1 => Just(Step::Drop),
        2 => Just(Step::Reenter),
        3 => (0..6usize).prop_map(Step::Leave),
        1 => (0..3usize).prop_map(Step::Force),
        1 => Just(Step::LoseMessage),
        2 => (1..4000u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..60)
}

/// The expected state.
#[derive(Debug, Default)]
struct Model {
    queue: VecDeque<u32>,
    holder: Option<(u32, u32)>,
}

impl Model {
    fn succeed(&mut self) {
        self.holder = self.queue.pop_front().map(|id| (id, 1));
    }
}

type Granted = Arc<Mutex<BTreeMap<u32, FairLockGuard>>>;

/// The actual state.
struct Subject {
    world: World,
    clients: Vec<Client>,
    waiters: BTreeMap<u32, JoinHandle<()>>,
    client_of: BTreeMap<u32, usize>,
    granted: Granted,
    /// Guards of the holder beyond its first.
    inner: Vec<FairLockGuard>,
    lost: bool,
    last_token: u64,
    next: u32,
}

impl Subject {
    async fn new() -> Self {
        let world = World::engine();
        let mut clients = Vec::new();
        for name in ["a", "b", "c"] {
            clients.push(client(&world, name).await);
        }
        Self {
            world,
            clients,
            waiters: BTreeMap::new(),
            client_of: BTreeMap::new(),
            granted: Granted::default(),
            inner: Vec::new(),
            lost: false,
            last_token: 0,
            next: 0,
        }
    }

    fn join(&mut self, client: usize) -> u32 {
        let id = self.next;
        self.next += 1;
        let (lock, granted) = (fair(&self.clients[client]), Arc::clone(&self.granted));
        let waiter = tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            granted.lock().unwrap().insert(id, guard);
        });
        self.waiters.insert(id, waiter);
        self.client_of.insert(id, client);
        id
    }

    fn holds(&self, id: u32) -> bool {
        self.granted.lock().unwrap().contains_key(&id)
    }

    /// Waits until the lock agrees with the model.
    async fn agrees(&mut self, model: &Model) {
        let within = if std::mem::take(&mut self.lost) {
            POLL + ms(20)
        } else {
            ms(20)
        };
        let limit = Instant::now() + within;
        loop {
            let held = match model.holder {
                Some((id, _)) => self.holds(id),
                None => self.world.admin(&["EXISTS", "job"]) == "0",
            };
            let length = queued(&self.world) == model.queue.len();
            if held && length {
                break;
            }
            assert!(
                Instant::now() < limit,
                "not within {within:?}: {model:?}, {} in the queue, held by {:?}",
                queued(&self.world),
                self.world.as_engine().execute(&["HGETALL", "job"]),
            );
            sleep(ms(1)).await;
        }
        let status = fair(&self.clients[0]).status().await.unwrap();
        let count = status.holder.as_ref().map(|holder| holder.hold_count);
        assert_eq!(count, model.holder.map(|(_, count)| count), "{model:?}");
        for id in &model.queue {
            assert!(!self.holds(*id), "{id} holds out of turn: {model:?}");
        }
        if let Some((id, _)) = model.holder {
            let granted = self.granted.lock().unwrap();
            let guard = &granted[&id];
            assert!(guard.is_held());
            assert_eq!(status.holder.unwrap().owner, guard.owner().to_string());
            let token = guard.fencing_token().unwrap().get();
            assert!(token >= self.last_token, "P2");
            self.last_token = token;
        }
    }

    fn take(&mut self, id: u32) -> FairLockGuard {
        self.waiters.remove(&id);
        self.granted.lock().unwrap().remove(&id).unwrap()
    }

    async fn take_step(&mut self, model: &mut Model, step: Step) {
        match step {
            Step::Join(client) => {
                let id = self.join(client);
                if model.holder.is_none() {
                    model.holder = Some((id, 1));
                } else {
                    model.queue.push_back(id);
                }
            }
            Step::Try(client) => {
                let guard = fair(&self.clients[client]).try_acquire().await.unwrap();
                assert_eq!(guard.is_some(), model.holder.is_none());
                if let Some(guard) = guard {
                    guard.release().await.unwrap();
                }
            }
            Step::Release => {
                let Some((id, count)) = model.holder else {
                    return;
                };
                if let Some(inner) = self.inner.pop() {
                    inner.release().await.unwrap();
                    model.holder = Some((id, count - 1));
                } else {
                    self.take(id).release().await.unwrap();
                    model.succeed();
                }
            }
            Step::Drop => {
                let Some((id, _)) = model.holder else { return };
                self.inner.clear();
                drop(self.take(id));
                model.succeed();
            }
            Step::Reenter => {
                let Some((id, count)) = model.holder else {
                    return;
                };
                let owner: Owner = self.granted.lock().unwrap()[&id].owner().clone();
                let options = AcquireOptions::new().owner(&owner);
                let client = &self.clients[self.client_of[&id]];
                let inner = fair(client).acquire_with(options).await.unwrap();
                self.inner.push(inner);
                model.holder = Some((id, count + 1));
            }
            Step::Leave(nth) => {
                if model.queue.is_empty() {
                    return;
                }
                let id = model.queue.remove(nth % model.queue.len()).unwrap();
                let waiter = self.waiters.remove(&id).unwrap();
                waiter.abort();
            }
            Step::Force(client) => {
                let freed = fair(&self.clients[client])
                    .danger()
                    .force_release()
                    .await
                    .unwrap();
                assert_eq!(freed, model.holder.is_some());
                let Some((id, _)) = model.holder else { return };
                // The holder does not know yet. Its release must not affect its successor's hold.
                self.inner.clear();
                let stale = self.take(id);
                model.succeed();
                let released = stale.release().await;
                assert!(released.is_err());
            }
            Step::LoseMessage => {
                if let (Some(next), Some((id, _))) = (model.queue.front(), model.holder) {
                    // Within one client the reply to the release is the grant, so there is no message to lose.
                    if self.client_of[next] != self.client_of[&id] {
                        self.world.as_engine().faults().lose_messages(1);
                        self.lost = true;
                    }
                    self.inner.clear();
                    self.take(id).release().await.unwrap();
                    model.succeed();
                }
            }
            Step::Pass(millis) => sleep(ms(millis)).await,
        }
    }

    async fn finish(mut self, mut model: Model) {
        while model.holder.is_some() {
            self.take_step(&mut model, Step::Drop).await;
            self.agrees(&model).await;
        }
        self.world.at_rest().await;
        assert_eq!(self.clients.iter().map(Client::waiters).sum::<usize>(), 0);
    }
}

async fn run(steps: Vec<Step>) {
    let mut subject = Subject::new().await;
    let mut model = Model::default();
    for step in steps {
        subject.take_step(&mut model, step).await;
        subject.agrees(&model).await;
    }
    subject.finish(model).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_fair_lock_agrees_with_its_model(steps in steps()) {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap()
            .block_on(run(steps));
    }
}
