//! The calls of owners of names: numbers of permits, counts of latches, force.

use std::time::Duration;

use stanchion::{
    CountDownLatch, FairLock, IdleExpiry, LeasedSemaphore, Lock, PermitId, QueryError, RwLock,
    Semaphore, Usage,
};

use crate::calls::{OPERATION, masked};
use crate::judge;
use crate::meetings;
use crate::program::{Manage, What};
use crate::roles;
use crate::run::Runner;
use crate::spot::{Spot, Use};
use crate::state::{Op, OpKind, Shared, State};

/// The change that a management call makes, if it succeeds.
enum Change {
    Nothing,
    /// The waits of so many have ended.
    Ended(u64),
    /// A latch lives for so long at least, if nobody counts it down.
    Lives(Duration),
    /// There are so many permits, if it was done.
    Total(Option<i64>),
    By(i64),
    Less(i64),
    Gone,
    /// Some of what is held was taken away.
    Forced,
}

impl Runner {
    pub(crate) fn manage(&self, client: u8, manage: &Manage) {
        let Some(it) = self.shared.lock().client(client) else {
            return;
        };
        let what = match manage {
            Manage::Init(n, _)
            | Manage::Add(n, _)
            | Manage::Reduce(n, _)
            | Manage::Drain(n)
            | Manage::Reclaim(n)
            | Manage::DeletePermits(n) => What::Permits(n, 0),
            Manage::InitLeased(n, _)
            | Manage::SetTotal(n, _)
            | Manage::AddLeased(n, _)
            | Manage::DrainLeased(n)
            | Manage::ReclaimLeased(n) => What::Leased(n, 0),
            Manage::Arm(n, _)
            | Manage::ArmFor(n, ..)
            | Manage::CountDown(n, _)
            | Manage::DeleteLatch(n) => What::Latch(n),
            Manage::SetParties(n, _) | Manage::BreakAll(n) => What::Meet(n, 0, false),
            Manage::ForceRelease(what) | Manage::Look(what) => what.clone(),
            Manage::SetQuota(n, ..) | Manage::DeleteLimiter(n) => What::Rate(n, 0),
        };
        let uses = self.uses_of(&what, client);
        let label = format!("client {client}: {manage:?}");
        // Two questions, at most.
        let ticket = self
            .shared
            .about(label, OpKind::Manage, &uses, OPERATION * 2);
        self.shared
            .lock()
            .latches_may_open(|spot| uses.iter().any(|used| used.spot == *spot));
        judge::meetings::managed(&mut self.shared.lock(), manage, &uses);
        if matches!(manage, Manage::ForceRelease(_)) {
            // Done or not: from here on nobody can tell.
            self.shared.lock().forced(&uses);
        }
        let (shared, manage) = (self.shared.clone(), manage.clone());
        let sets = matches!(manage, Manage::SetQuota(..) | Manage::DeleteLimiter(_));
        self.spawn(async move {
            let unsettled = Duration::from_secs(if sets { 30 } else { 0 });
            let forget = || {
                for used in uses.iter().filter(|_| sets) {
                    shared.lock().books.rate(used.spot).forget(unsettled);
                }
            };
            forget();
            let outcome = do_it(&it, &manage).await;
            drop(it);
            forget();
            shared.managed(ticket.id(), &uses, outcome);
        });
    }
}

impl State {
    pub(crate) fn forced(&mut self, uses: &[Use]) {
        self.taint(|spot| uses.iter().any(|used| same_key(used.spot, *spot)));
    }
}

fn same_key(a: Spot, b: Spot) -> bool {
    (a.server, a.database, a.name) == (b.server, b.database, b.name)
}

impl Shared {
    fn managed(&self, call: u64, uses: &[Use], outcome: Result<Change, QueryError>) {
        let mut state = self.lock();
        let Some(op) = state.ops.remove(&call) else {
            return;
        };
        let change = match outcome {
            Ok(change) => change,
            Err(error) => {
                state.tell(format!("{}: {}", op.label, masked(&error)));
                judge::truth::queried(&mut state, &op, &error);
                // It may have been done.
                Change::Total(None)
            }
        };
        state.latches_may_open(|spot| uses.iter().any(|used| used.spot == *spot));
        for used in uses {
            let now = tokio::time::Instant::now();
            let others = |op: &Op| {
                op.kind == OpKind::Manage && op.uses.iter().any(|it| it.spot == used.spot)
            };
            let others = state.ops.values().any(others);
            let struck = state.skies[usize::from(used.spot.server)].last > op.started;
            let place = state.place(used.spot);
            let alone = !others && !struck && place.stirred <= op.started;
            place.released = now;
            place.stirred = now;
            match change {
                Change::Nothing => {}
                Change::Lives(idle) if alone => {
                    let until = op.started + idle;
                    state.books.idle.insert(used.spot, until);
                }
                Change::Ended(count) => judge::meetings::forced(&mut state, used.spot, count),
                Change::Lives(_) => {}
                Change::Total(total) => {
                    place.total = total;
                    place.reduced = true;
                }
                Change::By(n) => place.total = place.total.map(|total| total + n),
                Change::Less(n) => {
                    place.total = place.total.map(|total| total - n);
                    place.reduced = true;
                }
                Change::Gone => {
                    place.total = None;
                    place.java_permits = 0;
                }
                Change::Forced => {}
            }
        }
        if matches!(change, Change::Gone | Change::Forced) {
            state.forced(uses);
        }
    }
}

async fn do_it(client: &stanchion::Client, manage: &Manage) -> Result<Change, QueryError> {
    let plain = |name| Semaphore::new(client, name).ok();
    let leased = |name| LeasedSemaphore::new(client, name).ok();
    let latch = |name| CountDownLatch::new(client, name).ok();
    let set = |done: bool, n: u32| {
        if done {
            Change::Total(Some(n.into()))
        } else {
            Change::Nothing
        }
    };
    macro_rules! with {
        ($handle:expr) => {
            match $handle {
                Some(handle) => handle,
                None => return Ok(Change::Nothing),
            }
        };
    }
    Ok(match manage {
        Manage::Init(name, n) => set(with!(plain(name)).init(*n).await?, *n),
        Manage::InitLeased(name, n) => set(with!(leased(name)).init(*n).await?, *n),
        Manage::Add(name, n) => {
            with!(plain(name)).add(*n).await?;
            Change::By((*n).into())
        }
        Manage::AddLeased(name, n) => {
            with!(leased(name)).add(*n).await?;
            Change::By((*n).into())
        }
        Manage::Reduce(name, n) => {
            with!(plain(name)).reduce(*n).await?;
            Change::Less((*n).into())
        }
        Manage::SetTotal(name, n) => {
            with!(leased(name)).set_total(*n).await?;
            Change::Total(Some((*n).into()))
        }
        Manage::Drain(name) => Change::Less(with!(plain(name)).drain().await?.into()),
        Manage::DrainLeased(name) => Change::Less(with!(leased(name)).drain().await?.into()),
        Manage::Reclaim(name) => {
            let pool = with!(plain(name));
            if let Some(holder) = pool.status().await?.holders.first() {
                pool.danger().reclaim(&holder.owner).await?;
            }
            Change::Forced
        }
        Manage::ReclaimLeased(name) => {
            let pool = with!(leased(name));
            let first: Option<PermitId> = pool.status().await?.permits.first().map(|p| p.id);
            if let Some(id) = first {
                pool.danger().reclaim(&id).await?;
            }
            Change::Forced
        }
        Manage::DeletePermits(name) => {
            with!(plain(name)).danger().delete().await?;
            Change::Gone
        }
        Manage::Arm(name, n) => {
            with!(latch(name)).arm(*n).await?;
            Change::Nothing
        }
        Manage::ArmFor(name, n, millis) => {
            let idle = with!(IdleExpiry::after(crate::span(*millis)).ok());
            let armed = with!(latch(name)).ephemeral(idle).arm(*n).await?;
            match armed {
                true => Change::Lives(crate::span(*millis)),
                false => Change::Nothing,
            }
        }
        Manage::SetParties(name, n) => {
            with!(meetings::cyclic(client, name, 1))
                .set_parties(*n)
                .await?;
            Change::Nothing
        }
        Manage::BreakAll(name) => {
            let barrier = with!(meetings::cyclic(client, name, 1));
            Change::Ended(barrier.danger().break_all().await?)
        }
        Manage::CountDown(name, n) => {
            with!(latch(name)).count_down_by(*n).await?;
            Change::Nothing
        }
        Manage::DeleteLatch(name) => {
            with!(latch(name)).delete().await?;
            Change::Nothing
        }
        Manage::ForceRelease(what) => {
            match what {
                What::Lock(n) | What::Bare(n) | What::Own(n) => {
                    with!(Lock::new(client, n).ok())
                        .danger()
                        .force_release()
                        .await?
                }
                What::Fair(n) => {
                    with!(FairLock::new(client, n).ok())
                        .danger()
                        .force_release()
                        .await?
                }
                What::Read(n) | What::Write(n) | What::PoliteRead(n) | What::PoliteWrite(n) => {
                    with!(RwLock::new(client, n).ok())
                        .danger()
                        .force_release()
                        .await?
                }
                What::Leader(n, _) => {
                    let election = with!(roles::election(client, n));
                    election.danger().depose().await?
                }
                What::Job(n, ..) => {
                    let lock = with!(Lock::new(client, n).ok());
                    lock.danger().force_release().await?
                }
                _ => false,
            };
            Change::Forced
        }
        Manage::Look(what) => {
            match what {
                What::Lock(n) | What::Bare(n) | What::Own(n) => {
                    drop(with!(Lock::new(client, n).ok()).status().await?);
                }
                What::Fair(n) => {
                    let lock = with!(FairLock::new(client, n).ok());
                    drop(lock.status().await?);
                    lock.position().await?;
                }
                What::Read(n) | What::Write(n) | What::PoliteRead(n) | What::PoliteWrite(n) => {
                    drop(with!(RwLock::new(client, n).ok()).status().await?);
                }
                What::Permits(n, _) => {
                    with!(plain(n)).available().await?;
                }
                What::Leased(n, _) => {
                    with!(leased(n)).total().await?;
                }
                What::Latch(n) => {
                    with!(latch(n)).count().await?;
                }
                What::Leader(n, _) => {
                    let election = with!(roles::election(client, n));
                    drop(election.leader().await?);
                    drop(election.candidates().await?);
                }
                What::Job(n, ..) => {
                    let job = with!(roles::job(client, n, 0, crate::program::ask()));
                    drop(job.status().await?);
                }
                What::Rate(n, _) => {
                    with!(roles::limiter(client, n)).status().await?;
                }
                What::Meet(n, ..) => {
                    with!(meetings::cyclic(client, n, 1)).status().await?;
                }
                What::Inside(n, _) => {
                    with!(meetings::double(client, n, 1)).status().await?;
                }
                What::Multi(_) | What::Red(_) | What::Free(_) | What::Bucket(..) => {
                    tokio::time::sleep(Duration::ZERO).await;
                }
            }
            Change::Nothing
        }
        Manage::SetQuota(name, permits, millis, forgets) => {
            let quota = stanchion::Quota::new(*permits, crate::span(*millis)).ok();
            let usage = if *forgets { Usage::Reset } else { Usage::Keep };
            let limiter = with!(roles::limiter(client, name));
            limiter.set_quota(with!(quota), usage).await?;
            Change::Nothing
        }
        Manage::DeleteLimiter(name) => {
            with!(roles::limiter(client, name)).delete().await?;
            Change::Nothing
        }
    })
}
