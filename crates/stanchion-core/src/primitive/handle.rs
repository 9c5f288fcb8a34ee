//! The interface of the core for the crates of the primitives.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tracing::{Instrument as _, Span};

use crate::acquire;
use crate::description::Synchronizer;
use crate::error::{AcquireError, AdoptError, LeaseLost, LostReason, QueryError, Rejection};
use crate::hint::Refusal;
use crate::hold::handle::Hold;
use crate::hold::sweep::{finished, finished_by};
use crate::hold::ticket::HoldTicket;
use crate::lease::Lease;
use crate::name::{InvalidName, Name, NameRule, Namespace};
use crate::notice::Asked;
use crate::observe::{self, span, spans};
use crate::options::AcquireOptions;
use crate::owner::Owner;
use crate::query::{Resend, query, query_until, unanswered_in};
use crate::reading::{natural, unexpected};
use crate::shared::Core;
use crate::token::FencingToken;
use crate::wire::Retries;
use crate::wire_owner::WireOwner;
use stanchion_transport::{
    Call, Messages, Moment, Observer, Outage, Path, Persistent, Placement, Reply, ServerInfo,
};
use uuid::Uuid;

/// A client, as a primitive uses it: acquires, queries, and the data that scripts need. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    pub(crate) core: Arc<Core>,
}

/// The identity and the time limit of an operation that must happen once: see [`Handle::operation`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Operation {
    /// Its unique identity.
    pub id: WireOwner,
    /// Server time in µs after which the script must refuse. By then the caller has stopped waiting, and the request is not sent again.
    pub not_after: u64,
    /// The end of the operation timeout, which began before the server was reached.
    until: Moment,
}

impl Handle {
    /// Returns the handle of `client`.
    #[must_use]
    pub fn of(client: &impl AsRef<Self>) -> Self {
        client.as_ref().clone()
    }

    pub(crate) const fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Returns the identity of the client: the first part of every owner it makes.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.core.id
    }

    /// Returns the current moment on the client's clock.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.core.clock.now()
    }

    /// Makes a new owner, for acquires that re-enter each other.
    #[must_use]
    pub fn owner(&self) -> Owner {
        Owner::new(self.core.next_wire_owner())
    }

    /// Returns the server's properties, as found during the connect.
    #[must_use]
    pub fn server(&self) -> &ServerInfo {
        self.core.facts.get()
    }

    /// Returns whether a request would find a connection now.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.core.servers.is_up()
    }

    /// Returns the reason why a request about `name` would find no connection now; `None` if there is one, or if the first attempt to connect has
    /// not ended.
    #[must_use]
    pub fn outage(&self, name: &Name) -> Option<Outage> {
        self.core.servers.outage(self.core.slot_of(name))
    }

    /// Runs `work` to its end, also if the returned future is dropped. A shutdown waits for it.
    pub fn persist<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Persistent<T> {
        Persistent::begun(&self.core.runner, work)
    }

    /// Returns the number of calls that wait in this client's queues now.
    #[must_use]
    pub fn waiters(&self) -> usize {
        let (waiting, _) = self.core.entries.census();
        let all = waiting.iter().map(|(_, number)| number).sum::<u64>();
        usize::try_from(all).unwrap_or(usize::MAX)
    }

    /// Makes `name` with the client's key prefix, checked for the server's placement of keys.
    ///
    /// # Errors
    /// [`InvalidName`]; nothing is sent.
    pub fn name(&self, name: impl AsRef<[u8]>) -> Result<Name, InvalidName> {
        Name::new(&self.core.config.key_prefix, name, self.core.placement)
    }

    /// Makes the namespace `text`, for names from keys that others choose.
    ///
    /// # Errors
    /// [`InvalidName`]: `text` is no name, or contains `:`.
    pub fn namespace(&self, text: &str) -> Result<Namespace, InvalidName> {
        self.name(text)?;
        Namespace::new(text)
    }

    /// Like [`Handle::name`], for primitives with derived keys that must not be those of another name.
    ///
    /// # Errors
    /// [`InvalidName`]; nothing is sent.
    pub fn name_that_shares_nothing(&self, name: impl AsRef<[u8]>) -> Result<Name, InvalidName> {
        let name = self.name(name)?;
        if name.is_wrapped() {
            return Err(InvalidName::new(name.as_bytes(), NameRule::SharesQueue));
        }
        Ok(name)
    }

    /// Like [`Handle::name`], for primitives with derived names that always have their own braces.
    ///
    /// # Errors
    /// [`InvalidName`]; nothing is sent.
    pub fn name_without_braces(&self, name: impl AsRef<[u8]>) -> Result<Name, InvalidName> {
        let name = self.name(name)?;
        let slots = self.core().placement == Placement::Slots;
        if slots && name.as_bytes().iter().any(|b| matches!(b, b'{' | b'}')) {
            return Err(InvalidName::new(name.as_bytes(), NameRule::Braces));
        }
        Ok(name)
    }

    /// Acquires, and waits as `options` say; `lease` applies if the options have none.
    ///
    /// # Errors
    /// [`AcquireError`].
    pub async fn acquire(
        &self,
        sync: &Arc<dyn Synchronizer>,
        options: &AcquireOptions,
        lease: Duration,
    ) -> Result<Hold, AcquireError> {
        self.open(&**sync)?;
        let started;
        // Pinned here, not awaited by value, and without a local variable for the span: every waiter carries this future.
        let mut work = pin!({
            let span = span!("acquire", sync);
            started = self.started(&span);
            acquire::acquire(self.core(), sync, options, lease).instrument(span)
        });
        let result = work.as_mut().await;
        let of = |hold: &Hold| Some(hold.fencing_token());
        self.waited(&**sync, started, &result, of, work.span());
        result
    }

    /// Returns the start of a wait, if waits are measured.
    pub(super) fn started(&self, span: &Span) -> Option<Moment> {
        let measured = self.core().sink.is_some() || !span.is_disabled();
        measured.then(|| self.now())
    }

    /// Records the time and the outcome of a wait, if waits are measured. `granted` returns the token, if the result is a grant.
    pub(super) fn waited<T>(
        &self,
        sync: &dyn Synchronizer,
        started: Option<Moment>,
        result: &Result<T, AcquireError>,
        granted: impl Fn(&T) -> Option<Option<FencingToken>>,
        span: &Span,
    ) {
        if let Some(started) = started {
            let outcome = observe::outcome(result, |value| granted(value).is_some());
            let (kind, time) = (sync.kind().name(), self.now().since(started));
            let token = result.as_ref().ok().and_then(granted).flatten();
            spans::waited(span, outcome, token, time);
            self.core().tell(|sink| sink.waited(kind, outcome, time));
        }
    }

    /// Tries once, without waiting. `Ok(None)`: another owner holds the name.
    ///
    /// # Errors
    /// [`AcquireError`].
    pub async fn try_acquire(
        &self,
        sync: &Arc<dyn Synchronizer>,
        options: &AcquireOptions,
        lease: Duration,
    ) -> Result<Option<Hold>, AcquireError> {
        self.open(&**sync)?;
        let started;
        let mut work = pin!({
            let span = span!("try_acquire", sync);
            started = self.started(&span);
            acquire::try_acquire(self.core(), sync, options, lease).instrument(span)
        });
        let result = work.as_mut().await;
        let of = |hold: &Option<Hold>| hold.as_ref().map(Hold::fencing_token);
        self.waited(&**sync, started, &result, of, work.span());
        result
    }

    /// Takes over the hold of `ticket`. `lease` applies if `options` have none. The `max_hold` of the ticket still counts. An option that no
    /// adoption can have is rejected: an owner, and the options of a wait.
    ///
    /// # Errors
    /// [`AdoptError`].
    pub async fn adopt(
        &self,
        sync: &Arc<dyn Synchronizer>,
        ticket: &HoldTicket,
        options: &AcquireOptions,
        lease: Duration,
    ) -> Result<Hold, AdoptError> {
        let from = ticket.is_for(sync.kind().name(), sync.name())?;
        self.open(&**sync)?;
        let until = ticket.until(self.core(), sync.name());
        let started;
        let mut work = pin!({
            let span = span!("adopt", sync);
            started = self.started(&span);
            acquire::adopt(self.core(), sync, from, until, options, lease).instrument(span)
        });
        let result = work.as_mut().await;
        let of = |hold: &Option<Hold>| hold.as_ref().map(Hold::fencing_token);
        self.waited(&**sync, started, &result, of, work.span());
        result?.ok_or_else(|| AdoptError::Gone {
            name: sync.name().clone(),
        })
    }

    /// Like [`Handle::try_acquire`] by a new owner, for primitives with refusals that say more than that another owner holds
    /// ([`Refusal::rest`]).
    ///
    /// # Errors
    /// [`AcquireError`].
    pub async fn ask(
        &self,
        sync: &Arc<dyn Synchronizer>,
        options: &AcquireOptions,
        lease: Duration,
    ) -> Result<Result<Hold, Box<Refusal>>, AcquireError> {
        self.open(&**sync)?;
        let started;
        let mut work = pin!({
            let span = span!("try_acquire", sync);
            started = self.started(&span);
            acquire::ask(self.core(), sync, options, lease).instrument(span)
        });
        let result = work.as_mut().await;
        let of =
            |answer: &Result<Hold, Box<Refusal>>| answer.as_ref().ok().map(Hold::fencing_token);
        self.waited(&**sync, started, &result, of, work.span());
        result
    }

    /// Waits for an event that leaves no hold.
    ///
    /// # Errors
    /// [`AcquireError`].
    pub async fn wait(
        &self,
        sync: &Arc<dyn Synchronizer>,
        timeout: Option<Duration>,
    ) -> Result<(), AcquireError> {
        let options = AcquireOptions {
            timeout,
            ..AcquireOptions::default()
        };
        // There is nothing to release.
        self.acquire(sync, &options, Lease::default().length())
            .await
            .map(drop)
    }

    /// Returns an identity and a time limit for one operation that must happen once, however often it is sent (P6). Waits for the server if
    /// the client connects later and has not reached it yet.
    ///
    /// # Errors
    /// [`QueryError`]: the server was not reached in time. Nothing was sent.
    pub async fn operation(&self) -> Result<Operation, QueryError> {
        let core = self.core();
        let until = core.clock.now() + core.config.operation_timeout;
        let mut retries = Retries::default();
        // The limit is a server time, and every try carries the same limit.
        while !core.servers.is_time_known() {
            if core.closed.is_cancelled() {
                return Err(QueryError::Shutdown);
            }
            if core.clock.now() >= until {
                let silence = || unanswered_in(core.config.operation_timeout);
                let outage = core.servers.outage(0).unwrap_or_else(silence);
                return Err(QueryError::Unavailable { outage });
            }
            core.recover(until, &mut retries).await;
        }
        let end = until + core.config.silence_limit();
        Ok(Operation {
            id: core.next_wire_owner(),
            not_after: core.servers.earliest(end.micros()),
            until,
        })
    }

    /// Runs the script of an operation that must happen once. Retries until a reply arrives or the operation timeout has passed.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn operate(&self, operation: &Operation, call: &Call) -> Result<Reply, QueryError> {
        let resend = Resend::UntilAnswered;
        query_until(self.core(), Path::Direct, call, resend, operation.until).await
    }

    /// Returns an identity that no other operation has.
    #[must_use]
    pub fn fresh_id(&self) -> WireOwner {
        self.core().next_wire_owner()
    }

    /// Returns the time of the server of `name` since 1970, as this client knows it: late by at most the shortest round trip so far, never early.
    #[must_use]
    pub fn server_time(&self, name: &Name) -> Duration {
        let core = self.core();
        let now = core.clock.now().micros();
        Duration::from_micros(core.server_clock(name).reach(now).server_micros)
    }

    /// The command that reaches subscribers on this kind of server, `PUBLISH` or `SPUBLISH`.
    #[must_use]
    pub fn publish_command(&self) -> &'static str {
        Messages::of(self.core().placement).publish_command()
    }

    /// Returns the error of an operation after its script replied that the owner of `name` holds nothing.
    #[must_use]
    pub fn gone(name: &Name) -> LeaseLost {
        LeaseLost {
            name: name.clone(),
            reason: LostReason::Gone,
        }
    }

    /// Returns the prefix of the channels for notices to the holders of `name`. Each channel ends with a client's uuid.
    #[must_use]
    pub fn notice(&self, name: &Name) -> Vec<u8> {
        self.core().notice(name)
    }

    /// Sends a release request to the holders of `name`, which are owners in a hash. `modal`: the hash is that of a read-write lock.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn request_release(
        &self,
        name: &Name,
        reason: &str,
        modal: bool,
    ) -> Result<Asked, QueryError> {
        let call = self.core().ask(name, reason, modal)?;
        let reply = self.query(&call, Resend::UntilAnswered).await?;
        let number = |at: usize| u32::try_from(natural(reply.as_array()?.get(at)?)?).ok();
        match (number(0), number(1)) {
            (Some(holders), Some(heard)) => Ok(Asked { holders, heard }),
            _ => Err(unexpected(&reply)),
        }
    }

    /// Frees the name by force, for any holder. Returns whether it was held.
    ///
    /// # Errors
    /// [`QueryError`]. [`QueryError::Unanswered`]: the script may have run. The script is not sent twice, because the second run would free the
    /// next holder.
    pub async fn force_release(&self, sync: &dyn Synchronizer) -> Result<bool, QueryError> {
        let Some(call) = sync.hold().and_then(|it| it.force_release()) else {
            return Err(QueryError::Rejected {
                rejection: Rejection::InvalidOption {
                    rule: format!("a {} cannot be freed by force", sync.kind().name()),
                },
            });
        };
        let reply = self.query(&call, Resend::Never).await?;
        Ok(finished(self.core(), sync, reply) == Reply::Int(1))
    }

    /// Ends the hold of `owner`, if it exists: for a supervisor of a process that was killed. An owner has one hold and never another one, so
    /// this cannot end a later hold, and a second run has no effect (P6).
    ///
    /// # Errors
    /// [`QueryError`]; with [`QueryError::Unanswered`] the hold may have ended.
    pub async fn abandon(
        &self,
        sync: &dyn Synchronizer,
        owner: &str,
        lease: Duration,
    ) -> Result<(), QueryError> {
        // A lease out of bounds has no hold: the acquire was refused.
        let lease = Lease::new(lease).unwrap_or_default();
        let Some(hold) = sync.hold() else {
            return Ok(());
        };
        let call = hold.abandon(&WireOwner::stored(owner), lease);
        let reply = self.query(&call, Resend::UntilAnswered).await?;
        finished(self.core(), sync, reply);
        Ok(())
    }

    /// The length of an outage after which an acquire without a deadline gives up.
    #[must_use]
    pub fn outage_tolerance(&self) -> Duration {
        self.core().config.outage_tolerance
    }

    /// The longest time after which a waiter polls if it received no message.
    #[must_use]
    pub fn poll_interval(&self) -> Duration {
        self.core().config.poll_interval
    }

    /// Runs a script, and retries until a reply arrives or the operation timeout has passed. A script that must not run twice
    /// (`Resend::Never`) is not sent again after its reply was lost.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn query(&self, call: &Call, resend: Resend) -> Result<Reply, QueryError> {
        query(self.core(), Path::Direct, call, resend).await
    }

    /// Reads the reply of a script that may have freed something. If the script has not finished, `tend` is sent later.
    #[must_use]
    pub fn finished(&self, reply: Reply, tend: impl FnOnce() -> Call) -> Reply {
        finished_by(self.core(), reply, || Some(tend()))
    }

    /// Like [`Handle::query`], with retries for at most `within`. After an error the script may have run.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn query_within(&self, call: &Call, within: Duration) -> Result<Reply, QueryError> {
        let (core, resend) = (self.core(), Resend::UntilAnswered);
        query_until(core, Path::Direct, call, resend, core.clock.now() + within).await
    }

    /// Reports an event to the observer, if there is one. For events that the core does not see.
    pub fn tell(&self, event: impl FnOnce(&dyn Observer)) {
        self.core().tell(event);
    }

    /// Fails if the client is closing.
    pub(super) fn open(&self, sync: &dyn Synchronizer) -> Result<(), AcquireError> {
        if self.core().closing.is_cancelled() {
            Err(AcquireError::Shutdown {
                name: sync.name().clone(),
            })
        } else {
            Ok(())
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}

impl AsRef<Self> for Handle {
    fn as_ref(&self) -> &Self {
        self
    }
}
