//! Management calls: permits, latches, barriers, quotas, forced releases and queries.

use std::time::Duration;

use stanchion::limiter::Usage;
use stanchion::semaphore::PermitId;
use stanchion::{
    CountDownLatch, FairLock, IdleExpiry, LeasedSemaphore, Lock, QueryError, RwLock, Semaphore,
};

use crate::generator::barriers;
use crate::generator::calls::{OPERATION, masked};
use crate::generator::judge;
use crate::generator::keys;
use crate::generator::program::{Manage, Target};
use crate::generator::resource::{Resource, Use};
use crate::generator::roles;
use crate::generator::run::Runner;
use crate::generator::state::{Op, OpKind, Shared, State};

/// The change that a successful management call makes.
enum Change {
    Nothing,
    /// So many waits were ended by force.
    Ended(u64),
    /// A latch lives at least for this time, unless it is counted down.
    Lives(Duration),
    /// The number of permits, or `None` if it is not known.
    Total(Option<i64>),
    By(i64),
    /// A latch was counted down by the first number, and the second one is left.
    Counted(i64, i64),
    Less(i64),
    Deleted,
    /// A hold was ended by force.
    Forced,
}

impl Runner {
    pub(crate) fn manage(&self, client: u8, manage: &Manage) {
        let Some(it) = self.shared.lock().client(client) else {
            return;
        };
        let target = match manage {
            Manage::Init(n, _)
            | Manage::Add(n, _)
            | Manage::Reduce(n, _)
            | Manage::Drain(n)
            | Manage::Reclaim(n)
            | Manage::DeletePermits(n) => Target::Permits(n, 0),
            Manage::InitLeased(n, _)
            | Manage::SetTotal(n, _)
            | Manage::AddLeased(n, _)
            | Manage::DrainLeased(n)
            | Manage::ReclaimLeased(n) => Target::Leased(n, 0),
            Manage::Arm(n, _)
            | Manage::ArmFor(n, ..)
            | Manage::CountDown(n, _)
            | Manage::DeleteLatch(n) => Target::Latch(n),
            Manage::SetParties(n, _) | Manage::BreakAll(n) => Target::Barrier(n, 0, false),
            Manage::ForceRelease(target) | Manage::Query(target) => target.clone(),
            Manage::SetQuota(n, ..) | Manage::DeleteLimiter(n) => Target::Rate(n, 0),
        };
        let uses = self.uses_of(&target, client);
        let label = format!("client {client}: {manage:?}");
        // A call sends two requests at most.
        let ticket = self
            .shared
            .about(label, OpKind::Manage, &uses, OPERATION * 2);
        let before = uses.first().map_or(0, |used| {
            let engine = &self.shared.lock().engines[usize::from(used.resource.server)];
            keys::snapshot(engine, used.resource).number
        });
        self.shared
            .lock()
            .latches_may_open(|resource| uses.iter().any(|used| used.resource == *resource));
        judge::barriers::managed(&mut self.shared.lock(), manage, &uses);
        if matches!(manage, Manage::ForceRelease(_)) {
            // From now on a hold of this resource may have ended, even if the call fails.
            self.shared.lock().forced(&uses);
        }
        let (shared, manage) = (self.shared.clone(), manage.clone());
        let sets = matches!(manage, Manage::SetQuota(..) | Manage::DeleteLimiter(_));
        self.spawn(async move {
            let unsettled = Duration::from_secs(if sets { 30 } else { 0 });
            let forget = || {
                for used in uses.iter().filter(|_| sets) {
                    shared.lock().tracking.rate(used.resource).forget(unsettled);
                }
            };
            forget();
            let outcome = do_it(&it, &manage).await;
            drop(it);
            forget();
            shared.managed(ticket.id(), &uses, before, outcome);
        });
    }
}

impl State {
    pub(crate) fn forced(&mut self, uses: &[Use]) {
        self.taint(|resource| uses.iter().any(|used| same_key(used.resource, *resource)));
    }
}

fn same_key(a: Resource, b: Resource) -> bool {
    (a.server, a.database, a.name) == (b.server, b.database, b.name)
}

impl Shared {
    fn managed(&self, call: u64, uses: &[Use], before: i64, outcome: Result<Change, QueryError>) {
        let mut state = self.lock();
        let Some(op) = state.ops.remove(&call) else {
            return;
        };
        let change = match outcome {
            Ok(change) => change,
            Err(error) => {
                state.log(format!("{}: {}", op.label, masked(&error)));
                judge::truth::queried(&mut state, &op, &error);
                // The call may have had its effect.
                Change::Total(None)
            }
        };
        state.latches_may_open(|resource| uses.iter().any(|used| used.resource == *resource));
        for used in uses {
            let now = tokio::time::Instant::now();
            let others = |op: &Op| {
                op.kind == OpKind::Manage && op.uses.iter().any(|it| it.resource == used.resource)
            };
            let others = state.ops.values().any(others);
            let had_fault = state.fault_states[usize::from(used.resource.server)].last > op.started;
            let record = state.record(used.resource);
            let alone = !others && !had_fault && record.last_change <= op.started;
            record.released = now;
            record.last_change = now;
            match change {
                Change::Nothing => {}
                Change::Lives(idle) if alone => {
                    let until = op.started + idle;
                    state.tracking.idle.insert(used.resource, until);
                }
                Change::Counted(by, left) if alone => {
                    judge::latch::counted(&mut state, &op, before, by, left);
                }
                Change::Counted(..) => {}
                Change::Ended(count) => judge::barriers::forced(&mut state, used.resource, count),
                Change::Lives(_) => {}
                Change::Total(total) => {
                    record.total = total;
                    record.reduced = true;
                }
                Change::By(n) => record.total = record.total.map(|total| total + n),
                Change::Less(n) => {
                    record.total = record.total.map(|total| total - n);
                    record.reduced = true;
                }
                Change::Deleted => {
                    record.total = None;
                    record.java_permits = 0;
                }
                Change::Forced => {}
            }
        }
        if matches!(change, Change::Deleted | Change::Forced) {
            state.forced(uses);
        }
    }
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
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
            Change::Deleted
        }
        Manage::Arm(name, n) => {
            with!(latch(name)).arm(*n).await?;
            Change::Nothing
        }
        Manage::ArmFor(name, n, millis) => {
            let idle = with!(IdleExpiry::after(crate::generator::span(*millis)).ok());
            let armed = with!(latch(name)).ephemeral(idle).arm(*n).await?;
            match armed {
                true => Change::Lives(crate::generator::span(*millis)),
                false => Change::Nothing,
            }
        }
        Manage::SetParties(name, n) => {
            with!(barriers::cyclic(client, name, 1))
                .set_parties(*n)
                .await?;
            Change::Nothing
        }
        Manage::BreakAll(name) => {
            let barrier = with!(barriers::cyclic(client, name, 1));
            Change::Ended(barrier.danger().break_all().await?)
        }
        Manage::CountDown(name, n) => {
            let left = with!(latch(name)).count_down_by(*n).await?;
            Change::Counted(signed(*n), signed(left))
        }
        Manage::DeleteLatch(name) => {
            with!(latch(name)).danger().delete().await?;
            Change::Nothing
        }
        Manage::ForceRelease(target) => {
            match target {
                Target::Lock(n) | Target::Unfenced(n) | Target::NameFenced(n) => {
                    with!(Lock::new(client, n).ok())
                        .danger()
                        .force_release()
                        .await?
                }
                Target::Fair(n) => {
                    with!(FairLock::new(client, n).ok())
                        .danger()
                        .force_release()
                        .await?
                }
                Target::Read(n)
                | Target::Write(n)
                | Target::WriterFirstRead(n)
                | Target::WriterFirstWrite(n) => {
                    with!(RwLock::new(client, n).ok())
                        .danger()
                        .force_release()
                        .await?
                }
                Target::Leader(n, _) => {
                    let election = with!(roles::election(client, n));
                    election.danger().depose().await?
                }
                Target::Job(n, ..) => {
                    let lock = with!(Lock::new(client, n).ok());
                    lock.danger().force_release().await?
                }
                _ => false,
            };
            Change::Forced
        }
        Manage::Query(target) => {
            match target {
                Target::Lock(n) | Target::Unfenced(n) | Target::NameFenced(n) => {
                    drop(with!(Lock::new(client, n).ok()).status().await?);
                }
                Target::Fair(n) => {
                    let lock = with!(FairLock::new(client, n).ok());
                    drop(lock.status().await?);
                    lock.position().await?;
                }
                Target::Read(n)
                | Target::Write(n)
                | Target::WriterFirstRead(n)
                | Target::WriterFirstWrite(n) => {
                    drop(with!(RwLock::new(client, n).ok()).status().await?);
                }
                Target::Permits(n, _) => {
                    with!(plain(n)).available().await?;
                }
                Target::Leased(n, _) => {
                    with!(leased(n)).total().await?;
                }
                Target::Latch(n) => {
                    with!(latch(n)).count().await?;
                }
                Target::Leader(n, _) => {
                    let election = with!(roles::election(client, n));
                    drop(election.leader().await?);
                    drop(election.candidates().await?);
                }
                Target::Job(n, ..) => {
                    let job = with!(roles::job(client, n, 0, crate::generator::program::opts()));
                    drop(job.status().await?);
                }
                Target::Rate(n, _) => {
                    with!(roles::limiter(client, n)).status().await?;
                }
                Target::Barrier(n, ..) => {
                    with!(barriers::cyclic(client, n, 1)).status().await?;
                }
                Target::DoubleBarrier(n, _) => {
                    with!(barriers::double(client, n, 1)).status().await?;
                }
                Target::Multi(_) | Target::Red(_) | Target::WaitFree(_) | Target::Bucket(..) => {
                    tokio::time::sleep(Duration::ZERO).await;
                }
            }
            Change::Nothing
        }
        Manage::SetQuota(name, permits, millis, forgets) => {
            let quota = stanchion::Quota::new(*permits, crate::generator::span(*millis)).ok();
            let usage = if *forgets { Usage::Reset } else { Usage::Keep };
            let limiter = with!(roles::limiter(client, name));
            limiter.set_quota(with!(quota), usage).await?;
            Change::Nothing
        }
        Manage::DeleteLimiter(name) => {
            with!(roles::limiter(client, name))
                .danger()
                .delete()
                .await?;
            Change::Nothing
        }
    })
}
