//! The acquire loop that all primitives share: try, subscribe, try, wait for a message or the timer, try.
//!
//! An acquire with `wait` begins with a fresh wire owner ([`Asking`]) and a place in the local queue ([`Ticket`]). Each turn
//! `Try` sends one request. A grant becomes a [`Hold`], which takes over all clean-up; a refusal parks the ticket; a request
//! without an answer may still run, so its deadline is kept in `Asking::unanswered_until`. The loop also ends with a hold that
//! was handed over or granted by message, with the deadline, an outage or a shutdown. An acquire that does not wait ([`once`])
//! has no place in the queue, only a visit.
//!
//! Each request runs inside a [`Persistent`]: when the caller drops its future, the request is awaited in the background, a
//! grant is released there, and the drop of [`Asking`] sweeps the rest (P3). After a request without an answer the same owner
//! asks again; an owner whose hold is being released does not, the next attempt has a fresh one (rule R1).
//!
//! An acquire as an explicit [`Owner`] first takes that owner's seat at the name, so that its acquires take turns, and re-enters
//! a hold that it finds there.
//!
//! Long: one loop and the outcomes of its requests, which are read together.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::MutexGuard;

use crate::description::{
    Hint, Request, Sharing, Subject, Synchronizer, Tenure, Verdict, now_of, rest_of,
};
use crate::error::{AcquireError, Brief, Rejection};
use crate::hold::handle::Hold;
use crate::hold::release::Leftover;
use crate::hold::renew::{as_acquire_error, reenter};
use crate::hold::state::{Grant, HoldState};
use crate::lease::Lease;
use crate::options::{AcquireOptions, HoldTerms, Reentry};
use crate::owner::Owner;
use crate::seat::{Seat, Seated, live};
use crate::shared::Core;
use crate::token::FencingToken;
use crate::waiting::{Applicant, Entries, Entry, Ticket, Turn};
use crate::wire_owner::WireOwner;
use stanchion_transport::{Busy, Failure, Moment, Outage, Path, Persistent, micros};

/// The outcome of one request.
enum Attempt {
    /// The hold, and the number of permits still free after it.
    Granted(Hold, u32),
    /// Refused, with the time after which to ask again. Boxed: most hints are empty, and every waiter carries one.
    Busy(Option<Duration>, Box<Hint>),
    /// Refused because it reached the server after its deadline.
    Late,
    /// Granted, but the answer took longer than the lease; the hold is being released.
    Stale,
    NotNow(Outage),
    Unanswered(Outage),
    Rejected(Rejection),
}

/// One logical acquire: the owner it asks for, and its possible leftovers on the server.
///
/// Dropping it sweeps them in the background (P3). A grant disarms that: its hold cleans up from there on.
struct Asking {
    core: Arc<Core>,
    sync: Arc<dyn Synchronizer>,
    owner: WireOwner,
    terms: HoldTerms,
    how: How,
    /// The start of the call.
    began: Moment,
    /// The end of the time in which an unanswered request of this owner may still run (P3). Swept when this is dropped.
    unanswered_until: Moment,
    /// True once the server knows that this owner waits (P3). Its place is given up when this is dropped.
    queued: bool,
    /// Makes a shutdown wait while the last request's outcome is not handled yet (P3). Dropped after the clean-up has begun.
    busy: Option<Busy>,
}

/// The manner of an acquire.
#[derive(Clone, Debug)]
struct How {
    /// True when it waits after a refusal.
    waits: bool,
    /// The owner of the exclusive hold that this acquire shares: a writer that also reads.
    within: Option<WireOwner>,
}

impl Asking {
    fn new(core: &Arc<Core>, sync: &Arc<dyn Synchronizer>, terms: HoldTerms, how: How) -> Self {
        Self {
            core: Arc::clone(core),
            sync: Arc::clone(sync),
            owner: core.next_wire_owner(),
            terms,
            how,
            began: core.clock.now(),
            unanswered_until: Moment::ZERO,
            queued: false,
            busy: None,
        }
    }

    /// Begins a hold without asking: the event that another waiter saw has happened for this one, too.
    fn seen(&self, entry: &Arc<Entry>) -> Hold {
        let grant = Grant {
            owner: self.owner.clone(),
            token: None,
            terms: self.terms,
            sent: self.core.clock.now(),
            first: None,
            unanswered_until: Moment::ZERO,
        };
        Hold::begin(&self.core, &self.sync, entry, grant)
    }

    fn applicant(&self) -> Applicant {
        Applicant {
            sync: Arc::clone(&self.sync),
            owner: self.owner.clone(),
            terms: self.terms,
        }
    }

    /// Switches to a fresh owner. The old one leaves nothing for this acquire to clean up.
    fn begin_anew(&mut self) {
        self.unanswered_until = Moment::ZERO;
        self.queued = false;
        self.owner = self.core.next_wire_owner();
    }

    /// Passes all clean-up to `hold`, which was granted by message.
    fn told(&mut self, hold: &Hold) {
        hold.mind(std::mem::replace(&mut self.unanswered_until, Moment::ZERO));
        self.queued = false;
    }

    /// Asks once; `None` when the deadline passes first. Dropped while under way, the request is awaited in the background and a
    /// grant is released there.
    ///
    /// `first`: see [`Request::first`].
    async fn attempt(
        &mut self,
        entry: &Arc<Entry>,
        first: bool,
        deadline: Moment,
    ) -> Option<Attempt> {
        let (core, sync, entry, owner) = (
            Arc::clone(&self.core),
            Arc::clone(&self.sync),
            Arc::clone(entry),
            self.owner.clone(),
        );
        let (terms, before, how) = (self.terms, self.unanswered_until, self.how.clone());
        let (began, queued) = (self.began, self.queued);
        let runner = Arc::clone(&core.runner);
        // The work has its own `Asking`: if the caller drops its future, that one is dropped with the outcome and cleans up.
        let mut work = Persistent::new(&runner, async move {
            let mut asking = Self {
                core,
                sync,
                owner,
                terms,
                how,
                began,
                unanswered_until: Moment::ZERO,
                queued: false,
                busy: None,
            };
            let outcome = asking.ask(&entry, before, first, queued).await;
            (outcome, asking)
        });
        let (outcome, mut asked) = core_timeout(&self.core, deadline, &mut work).await?;
        self.busy = work.take_busy();
        self.unanswered_until = self
            .unanswered_until
            .max(std::mem::replace(&mut asked.unanswered_until, Moment::ZERO));
        self.queued |= std::mem::take(&mut asked.queued);
        match &outcome {
            // Boxed: rare, and large.
            Attempt::Late => {
                let clock = Box::pin(self.core.synchronise(Path::Direct, self.sync.name()));
                core_timeout(&self.core, deadline, clock).await;
            }
            // The hold cleans up from here on.
            Attempt::Granted(..) => {
                self.unanswered_until = Moment::ZERO;
                self.queued = false;
            }
            // R1: a release of this owner is under way, so it must not ask again.
            Attempt::Stale => self.begin_anew(),
            Attempt::Busy(..)
            | Attempt::Rejected(_)
            | Attempt::NotNow(_)
            | Attempt::Unanswered(_) => {}
        }
        Some(outcome)
    }

    /// Sends one request and reads its answer. `unanswered_before`: the end of earlier requests of this owner.
    async fn ask(
        &mut self,
        entry: &Arc<Entry>,
        unanswered_before: Moment,
        first: bool,
        queued: bool,
    ) -> Attempt {
        let core = Arc::clone(&self.core);
        let sent = core.clock.now();
        let limit = core.limit(self.sync.name(), sent);
        let request = Request {
            since: limit.sent.saturating_sub(micros(sent.since(self.began))),
            waits: self.how.waits,
            first,
            queued,
            within: self.how.within.as_ref(),
            ..limit.request(&self.owner, self.terms.first_lease)
        };
        let call = self.sync.acquire(&request);
        let answer = core.call(Path::Direct, &call).await;
        if let Some(now) = answer.as_ref().ok().and_then(now_of) {
            core.observe(self.sync.name(), now, sent);
        }
        match answer {
            Ok(reply) => match Verdict::read(&reply) {
                Some(Verdict::Granted(token)) => {
                    let (token, left) = match self.sync.sharing() {
                        Sharing::Permits(_) => (None, token.map_or(0, FencingToken::get)),
                        _ => (token, 0),
                    };
                    let left = u32::try_from(left).unwrap_or(u32::MAX);
                    let grant = Grant {
                        owner: self.owner.clone(),
                        token,
                        terms: self.terms,
                        sent,
                        first: None,
                        unanswered_until: unanswered_before,
                    };
                    let hold = Hold::begin(&core, &self.sync, entry, grant);
                    if hold.is_held() {
                        Attempt::Granted(hold, left)
                    } else {
                        Attempt::Stale
                    }
                }
                Some(Verdict::Busy(ttl)) => {
                    let hint = self.sync.hint(rest_of(&reply));
                    self.queued = self.how.waits && (self.sync.leaves_sign() || hint.queued);
                    Attempt::Busy(ttl.map(Duration::from_millis), Box::new(hint))
                }
                Some(Verdict::Late) => Attempt::Late,
                Some(Verdict::Gone) => Attempt::Rejected(Rejection::Deleted),
                None => Attempt::Rejected(Rejection::Other {
                    detail: format!("an unexpected reply: {reply:?}"),
                }),
            },
            Err(Failure::Unanswered(outage)) => {
                if self.sync.tenure() != Tenure::Nothing {
                    self.unanswered_until = limit.ends_by;
                }
                Attempt::Unanswered(outage)
            }
            Err(Failure::NotNow(outage)) => Attempt::NotNow(outage),
            Err(Failure::Rejected(rejection)) => Attempt::Rejected(rejection.into()),
        }
    }

    /// An upper bound on the life of a leftover.
    fn free_by(&self) -> Duration {
        match self.sync.tenure() {
            Tenure::Leased => {
                self.terms.first_lease.length() + self.core.config.response_timeout * 2
            }
            Tenure::Unleased => Duration::MAX,
            Tenure::Nothing => Duration::ZERO,
        }
    }

    /// The longest life of the hold that a request still under way may get, if it may get one.
    fn under_way(&self) -> Option<Duration> {
        (self.sync.tenure() != Tenure::Nothing).then(|| self.free_by())
    }

    /// The longest life of what the answered and unanswered requests so far may have left, if they may have left anything.
    fn leftover(&self) -> Option<Duration> {
        if self.unanswered_until > Moment::ZERO {
            return Some(self.free_by());
        }
        // P8: until a place in the server's queue is given up, the server may grant to it.
        let may_be_granted = self.queued && self.sync.sharing() == Sharing::Queued;
        may_be_granted.then(|| self.sync.beat() * FORGOTTEN + self.core.config.response_timeout)
    }

    fn failed(&self, outage: Outage) -> AcquireError {
        let name = self.sync.name().clone();
        match self.leftover() {
            Some(free_by) => AcquireError::Ambiguous {
                name,
                free_by,
                outage,
            },
            None => AcquireError::Unavailable { name, outage },
        }
    }

    /// Returns `granted`, unless the client is closing: then nobody is given a hold, and dropping this one releases it (P3).
    fn unless_closing<T>(&self, granted: T) -> Result<T, AcquireError> {
        if self.core.closing.is_cancelled() {
            return Err(self.shut_down());
        }
        Ok(granted)
    }

    fn shut_down(&self) -> AcquireError {
        AcquireError::Shutdown {
            name: self.sync.name().clone(),
        }
    }

    fn rejected(&self, rejection: Rejection) -> AcquireError {
        AcquireError::Rejected {
            name: self.sync.name().clone(),
            rejection,
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        // P3, rule R2.
        if self.unanswered_until > Moment::ZERO || self.queued {
            let leftover = Leftover {
                owner: self.owner.clone(),
                lease: self.terms.first_lease,
                unanswered_until: self.unanswered_until,
            };
            leftover.sweep(&self.core, &self.sync);
        }
    }
}

/// Runs `work`; `None` when `deadline` passes first.
async fn core_timeout<T>(
    core: &Core,
    deadline: Moment,
    work: impl Future<Output = T>,
) -> Option<T> {
    if deadline == Moment::FAR {
        return Some(work.await);
    }
    // Boxed: a timer is large, and most waiters have no deadline.
    Box::pin(tokio::time::timeout(deadline.since(core.clock.now()), work))
        .await
        .ok()
}

/// Checks the options, and resolves their defaults.
fn check(
    sync: &dyn Synchronizer,
    options: &AcquireOptions,
    lease: Lease,
) -> Result<HoldTerms, AcquireError> {
    if let Some(max_hold) = options.max_hold
        && max_hold < Lease::MIN.length()
    {
        let rule = format!(
            "max_hold {} is shorter than the shortest lease, 10ms",
            humantime::format_duration(max_hold)
        );
        return Err(AcquireError::Rejected {
            name: sync.name().clone(),
            rejection: Rejection::InvalidOption { rule },
        });
    }
    let lease = options.lease.unwrap_or(lease);
    Ok(HoldTerms {
        lease,
        first_lease: options.first_lease.map_or(lease, |first| first.max(lease)),
        renewal: options.renewal,
        max_hold: options.max_hold,
    })
}

/// Acquires, waiting as `options` say.
pub(crate) async fn acquire(
    core: &Arc<Core>,
    sync: &Arc<dyn Synchronizer>,
    options: AcquireOptions,
    lease: Lease,
) -> Result<Hold, AcquireError> {
    let terms = check(&**sync, &options, lease)?;
    let started = core.clock.now();
    let deadline = options
        .timeout
        .map_or(Moment::FAR, |timeout| started + timeout);
    let timed_out = || AcquireError::TimedOut {
        name: sync.name().clone(),
        waited: core.clock.now().since(started),
        free_by: None,
    };
    let found = match &options.owner {
        None => return wait(core, sync, terms, started, deadline, None).await,
        Some(owner) => {
            let anew = async |seat: &Seat| {
                let hold = wait(core, sync, terms, started, deadline, Some(seat)).await;
                hold.map(Some)
            };
            let seat = owner.seat(&core.realm, Subject::of(&**sync));
            let Some(seated) = core_timeout(core, deadline, seat.take()).await else {
                return Err(timed_out());
            };
            let sitting = Sitting {
                seat: &seat,
                seated,
            };
            // Even with no time left, re-entry of what this owner holds is asked for once.
            let patience = deadline.max(started + FIRST_ASK);
            Box::pin(as_owner(
                core, sync, owner, &options, terms, patience, sitting, anew,
            ))
            .await?
        }
    };
    found.ok_or_else(timed_out)
}

/// An owner's seat at one name, with its lock held.
struct Sitting<'a> {
    seat: &'a Seat,
    seated: MutexGuard<'a, Seated>,
}

/// Re-enters what `owner` holds, or acquires for it with `anew`.
///
/// Holds the seat throughout, so that the owner's acquires of one name take turns and the second finds the first one's hold.
#[expect(clippy::too_many_arguments, reason = "what an acquire is made of")]
async fn as_owner(
    core: &Arc<Core>,
    sync: &Arc<dyn Synchronizer>,
    owner: &Owner,
    options: &AcquireOptions,
    terms: HoldTerms,
    deadline: Moment,
    sitting: Sitting<'_>,
    anew: impl AsyncFnOnce(&Seat) -> Result<Option<Hold>, AcquireError>,
) -> Result<Option<Hold>, AcquireError> {
    let Sitting {
        seat: place,
        seated: mut seat,
    } = sitting;
    let shares = sync.sharing() == Sharing::Together;
    let already = |state: &HoldState, rule| AcquireError::Rejected {
        name: sync.name().clone(),
        rejection: Rejection::AlreadyHeld {
            owner: state.owner.clone(),
            rule,
        },
    };
    let mine = live(seat.of(sync.sharing()));
    if mine.is_none()
        && let Some(state) = live(&seat.shared)
    {
        return Err(already(
            &state,
            "holds it shared already, and would wait for itself for ever: release the read hold first, or write and downgrade",
        ));
    }
    if let Some(state) = mine {
        if options.reentry == Reentry::Refused {
            return Err(already(
                &state,
                "holds it already, and re-entry was refused",
            ));
        }
        match core_timeout(core, deadline, reenter(&state, core)).await {
            None => return Ok(None),
            Some(Ok(hold)) => return Ok(Some(hold)),
            Some(Err(error)) => {
                if let Some(error) = as_acquire_error(error, state.free_by()) {
                    return Err(error);
                }
            }
        }
    }
    let mut hold = None;
    if let Some(state) = live(&seat.exclusive).filter(|_| shares) {
        // This owner excludes all others already, so one attempt is enough.
        let within = Some(state.owner.clone());
        hold = once(core, sync, terms, deadline, within).await?;
    }
    if hold.is_none() {
        hold = anew(place).await?;
    }
    if let Some(hold) = &hold {
        hold.adopt(owner);
        *seat.of(sync.sharing()) = hold.weak();
    }
    Ok(hold)
}

/// The loop of an acquire that waits.
async fn wait(
    core: &Arc<Core>,
    sync: &Arc<dyn Synchronizer>,
    terms: HoldTerms,
    started: Moment,
    deadline: Moment,
    seat: Option<&Seat>,
) -> Result<Hold, AcquireError> {
    let mut in_line = None;
    let how = How {
        waits: true,
        within: None,
    };
    let mut asking = Asking::new(core, sync, terms, how);
    let mut ticket = Entries::join(core, asking.applicant());
    // Even with no time left it asks once, unless a local holder is known.
    let patience = deadline.max(started + FIRST_ASK);
    loop {
        let timed_out = |free_by| AcquireError::TimedOut {
            name: sync.name().clone(),
            waited: core.clock.now().since(started),
            free_by,
        };
        asking.busy = None;
        if ticket.must_wait() {
            core.subscriptions.want(ticket.entry());
            in_line = in_line.or_else(|| seat.map(Seat::in_line));
        }
        let turn = core_timeout(core, deadline, next_turn(core, &mut ticket)).await;
        match turn {
            None => return Err(timed_out(asking.leftover())),
            Some(None) => return Err(asking.shut_down()),
            Some(Some(Turn::Handed(hold))) if hold.is_held() => return Ok(hold),
            Some(Some(Turn::Granted(hold))) if hold.is_held() => {
                asking.told(&hold);
                return Ok(hold);
            }
            // The hold expired before this task ran, and its place in the queue was removed with it. Dropping the hold and the
            // old `Asking` cleans up on the server; a fresh owner joins again.
            Some(Some(Turn::Handed(_) | Turn::Granted(_) | Turn::Missed)) => {
                let how = asking.how.clone();
                asking = Asking::new(core, sync, terms, how);
                ticket = Entries::join(core, asking.applicant());
                continue;
            }
            Some(Some(Turn::OutOfReach(outage))) => return Err(asking.failed(outage)),
            Some(Some(Turn::Seen)) => return Ok(asking.seen(ticket.entry())),
            Some(Some(Turn::Try)) => {}
        }
        let Some(attempt) = asking
            .attempt(ticket.entry(), ticket.is_first(), patience)
            .await
        else {
            return Err(timed_out(asking.under_way()));
        };
        match attempt {
            Attempt::Granted(hold, left) => {
                ticket.acquired(&hold, left);
                return asking.unless_closing(hold);
            }
            Attempt::Busy(ttl, hint) => match &hint.elsewhere {
                Some((name, channel)) if !ticket.entry().is_for(&**sync, name) => {
                    // A new place begins with a try, so no message is missed in between.
                    ticket = Entries::join_at(core, name, channel, asking.applicant());
                }
                _ => ticket.busy(ttl, &hint),
            },
            Attempt::Rejected(rejection) => return Err(asking.rejected(rejection)),
            Attempt::Late => ticket.again(),
            Attempt::Stale => ticket = Entries::join(core, asking.applicant()),
            Attempt::NotNow(outage) | Attempt::Unanswered(outage) => {
                let now = core.clock.now();
                if ticket.unanswered(&outage) {
                    return Err(asking.failed(outage));
                }
                if now >= deadline {
                    // Not `TimedOut`: nobody is known to hold, the server could not be asked.
                    return Err(asking.failed(outage));
                }
                // Boxed, as all that is rare here: ten thousand waiters carry this future.
                let until = deadline.min(now + core.config.outage_tolerance);
                Box::pin(core.recover(until)).await;
                if core.clock.now() >= deadline {
                    return Err(asking.failed(outage));
                }
                ticket.again();
            }
        }
    }
}

/// The beats of silence after which the server has removed a place from its queue, and a grant to it at the last moment has
/// ended: four until it is missed, four more if it had come back before, four that a grant lasts, and four for skew.
const FORGOTTEN: u32 = 16;

/// The time that the one request of a call without any time left may take.
const FIRST_ASK: Duration = Duration::from_millis(45);

/// The next turn; `None` when the client is shut down.
async fn next_turn(core: &Core, ticket: &mut Ticket) -> Option<Turn> {
    tokio::select! {
        biased;
        // The shutdown first: during an outage a turn is always ready.
        () = core.closing.cancelled() => None,
        turn = ticket.turn() => Some(turn),
    }
}

/// Asks once; `None` when another owner holds it.
pub(crate) async fn try_acquire(
    core: &Arc<Core>,
    sync: &Arc<dyn Synchronizer>,
    options: AcquireOptions,
    lease: Lease,
) -> Result<Option<Hold>, AcquireError> {
    let terms = check(&**sync, &options, lease)?;
    let deadline = core.clock.now() + options.timeout.unwrap_or(core.config.operation_timeout);
    match &options.owner {
        None => once(core, sync, terms, deadline, None).await,
        Some(owner) => {
            let anew = async |_: &Seat| once(core, sync, terms, deadline, None).await;
            let seat = owner.seat(&core.realm, Subject::of(&**sync));
            let seated = match core_timeout(core, deadline, seat.take_now()).await {
                Some(Some(seated)) => seated,
                // Another task of this owner waits in line, so another owner holds it.
                Some(None) => return Ok(None),
                None => {
                    let name = sync.name().clone();
                    let detail = "another request of this owner has not been answered".into();
                    let outage = Outage::Unanswered { detail };
                    return Err(AcquireError::Unavailable { name, outage });
                }
            };
            let sitting = Sitting {
                seat: &seat,
                seated,
            };
            Box::pin(as_owner(
                core, sync, owner, &options, terms, deadline, sitting, anew,
            ))
            .await
        }
    }
}

/// An acquire that does not wait. Asks again only while the server cannot be reached and the deadline has not passed.
async fn once(
    core: &Arc<Core>,
    sync: &Arc<dyn Synchronizer>,
    terms: HoldTerms,
    deadline: Moment,
    within: Option<WireOwner>,
) -> Result<Option<Hold>, AcquireError> {
    let visit = Entries::visit(core, &**sync);
    let how = How {
        waits: false,
        within,
    };
    let asked = core.clock.now();
    let mut asking = Asking::new(core, sync, terms, how);
    loop {
        let outage = match asking.attempt(visit.entry(), false, deadline).await {
            Some(Attempt::Granted(hold, left)) => {
                visit.entry().acquired(&hold, left);
                return asking.unless_closing(Some(hold));
            }
            Some(Attempt::Busy(..)) => return Ok(None),
            Some(Attempt::Rejected(rejection)) => return Err(asking.rejected(rejection)),
            Some(Attempt::Late | Attempt::Stale) => Outage::Unanswered {
                detail: "requests reached the server too late".into(),
            },
            Some(Attempt::NotNow(outage) | Attempt::Unanswered(outage)) => outage,
            None => {
                let waited = core.clock.now().since(asked);
                let detail = format!("nothing within {}", Brief(waited));
                let name = sync.name().clone();
                return Err(AcquireError::Ambiguous {
                    name,
                    free_by: asking.free_by(),
                    outage: Outage::Unanswered { detail },
                });
            }
        };
        asking.unless_closing(())?;
        if core.clock.now() >= deadline {
            return Err(asking.failed(outage));
        }
        Box::pin(core.recover(deadline)).await;
    }
}
