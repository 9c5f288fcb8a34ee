//! A request for permits of a rate limiter, as the core sees it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stanchion_client::primitive::{
    About, Arg, Call, Dated, Hint, Holdable, Operation, Reply, Request, Script, Synchronizer,
    whole_millis,
};
use stanchion_client::{Lease, Name, WireOwner};

use crate::keys::{Keys, entry};
use crate::limited::Answer;
use crate::limiter::{QuotaScope, Usage};
use crate::quota::Quota;

/// Builds a script, with the shared functions in front.
macro_rules! script {
    ($name:literal, $file:literal) => {
        Script::new(
            $name,
            concat!(
                include_str!("../../lua/limiter/log.lua"),
                include_str!(concat!("../../lua/limiter/", $file))
            ),
        )
    };
}

static ACQUIRE: Script<7, 10> = script!("limiter/acquire", "acquire.lua");
static REFUND: Script<5, 2> = script!("limiter/refund", "refund.lua");
static CONFIRM: Script<2, 1> = Script::new(
    "limiter/confirm",
    include_str!("../../lua/limiter/confirm.lua"),
);
static STATUS: Script<5, 0> = script!("limiter/status", "status.lua");
static SET_QUOTA: Script<6, 8> = script!("limiter/set_quota", "set_quota.lua");
static DELETE: Script<7, 2> = script!("limiter/delete", "delete.lua");

/// The parameters of a new limiter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) quota: Quota,
    pub(crate) scope: QuotaScope,
    /// `None`: without a limit.
    pub(crate) keep_alive: Option<Duration>,
}

/// The longest keep-alive time: `LONGEST` in `log.lua`.
pub(crate) const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);

impl Terms {
    fn arguments<'a>(&self) -> [Arg<'a>; 4] {
        [
            u64::from(self.quota.permits()).into(),
            self.quota.millis().into(),
            self.scope.number().into(),
            self.keep_alive.map_or(0, whole_millis).into(),
        ]
    }
}

/// One request.
#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) about: About,
    pub(crate) keys: Arc<Keys>,
    pub(crate) terms: Terms,
    pub(crate) permits: u32,
    /// Zero: no bookings.
    pub(crate) horizon: Duration,
    /// The longest wait.
    pub(crate) patience: Option<Duration>,
    pub(crate) answer: Arc<Answer>,
}

impl Synchronizer for Description {
    fn about(&self) -> &About {
        &self.about
    }

    fn acquire(&self, request: &Request<'_>) -> Call {
        let [rate, interval, scope, keep] = self.terms.arguments();
        ACQUIRE.call(
            self.keys.with_written(),
            [
                entry(request.owner, self.permits).as_slice().into(),
                u64::from(self.permits).into(),
                request.not_after.into(),
                super::until(request, self.patience).into(),
                whole_millis(self.horizon).into(),
                rate,
                interval,
                scope,
                keep,
                u64::from(self.answer.refusals()).into(),
            ],
        )
    }

    fn hold(&self) -> Option<&dyn Holdable> {
        Some(self)
    }

    fn hint(&self, rest: &[Reply]) -> Hint {
        self.compare(rest);
        self.answer.refused(rest)
    }

    fn dated(&self, rest: &[Reply]) -> Dated {
        self.compare(rest);
        self.answer.granted(rest)
    }
}

impl Holdable for Description {
    fn release(&self, owner: &WireOwner, _count: u32, _lease: Lease) -> Call {
        let entry = entry(owner, self.permits);
        let permits = u64::from(self.permits).into();
        REFUND.call(self.keys.all(), [entry.as_slice().into(), permits])
    }

    fn confirm(&self, owner: &WireOwner, wait: Duration) -> Option<Call> {
        // A shorter wait is not worth a command: a booking from before a new quota counts for one interval at most.
        let long = wait > self.terms.quota.interval();
        let entry = entry(owner, self.permits);
        long.then(|| CONFIRM.call(self.keys.logs(), [entry.as_slice().into()]))
    }
}

impl Description {
    /// Logs a warning if the reply says that the stored terms are not those of this request. Without it, a new version of a program with another
    /// quota would run at the old one without a sign.
    fn compare(&self, rest: &[Reply]) {
        let [_, _, _, _, rate, interval, kind] = rest else {
            return;
        };
        let (Some(rate), Some(interval), Some(kind)) =
            (rate.as_int(), interval.as_int(), kind.as_int())
        else {
            return;
        };
        let scope = match kind {
            0 => QuotaScope::Overall,
            _ => QuotaScope::PerClient,
        };
        let stored = (Quota::stored(rate, interval), scope);
        let own = (self.terms.quota, self.terms.scope);
        let name = &self.keys.name;
        if stored != own && is_news(name, [stored, own]) {
            let [stored, own] = [stored, own].map(|(quota, scope)| match scope {
                QuotaScope::Overall => quota.to_string(),
                QuotaScope::PerClient => format!("{quota} for each client"),
            });
            tracing::warn!(
                %name,
                "the limiter keeps its stored quota, {stored}, and not {own}: `RateLimiter::set_quota` or `stanchion limit --set` changes it"
            );
        }
    }
}

/// Returns whether this process has not logged these terms of a limiter before. Handles have no state, and a program may make one for each request.
fn is_news(name: &Name, terms: [(Quota, QuotaScope); 2]) -> bool {
    static LOGGED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
    // Limiters whose names come and go fill neither the log nor this list.
    logged.len() < 100 && logged.insert(format!("{name} {terms:?}"))
}

pub(crate) fn status(keys: &Keys) -> Call {
    STATUS.call(keys.all(), [])
}

pub(crate) fn set_quota(keys: &Keys, terms: &Terms, usage: Usage, operation: &Operation) -> Call {
    let [rate, interval, scope, keep] = terms.arguments();
    let [name, value, own_value, log, own_log] = keys.all();
    let usage = match usage {
        Usage::Keep => "keep",
        Usage::Reset => "reset",
    };
    SET_QUOTA.call(
        [name, value, own_value, log, own_log, &keys.once(operation)],
        [
            rate,
            interval,
            scope,
            keep,
            usage.into(),
            operation.not_after.into(),
            (&*keys.channel).into(),
            keys.publish.into(),
        ],
    )
}

pub(crate) fn delete(keys: &Keys) -> Call {
    DELETE.call(
        keys.with_written(),
        [(&*keys.channel).into(), keys.publish.into()],
    )
}
