//! The one observer to which the core and the links report.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[cfg(feature = "metrics")]
use super::facade;
use stanchion_transport::{Gauges, Observer};

/// Makes the observer of a client: the facade, and `given`. `None` when there is neither, so that nothing is timed.
pub(crate) fn sink(given: Option<Arc<dyn Observer>>) -> Option<Arc<dyn Observer>> {
    if !cfg!(feature = "metrics") && given.is_none() {
        return None;
    }
    #[cfg(feature = "metrics")]
    facade::describe();
    Some(Arc::new(Sink {
        #[cfg(feature = "metrics")]
        number: next_number(),
        given,
        failed: AtomicBool::new(false),
    }))
}

#[cfg(feature = "metrics")]
fn next_number() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

struct Sink {
    /// Distinguishes the clients of a process, for the gauges.
    #[cfg(feature = "metrics")]
    number: u64,
    given: Option<Arc<dyn Observer>>,
    /// True once the given observer has panicked.
    failed: AtomicBool,
}

impl Sink {
    fn tell(&self, event: impl FnOnce(&dyn Observer)) {
        let Some(given) = &self.given else { return };
        if self.failed.load(Ordering::Relaxed) {
            return;
        }
        // P10: the renewal thread calls it, too, and a panic there would end the renewals of all holds.
        if catch_unwind(AssertUnwindSafe(|| event(&**given))).is_err()
            && !self.failed.swap(true, Ordering::Relaxed)
        {
            tracing::error!("the observer has panicked; it is not called again");
        }
    }
}

macro_rules! pass_on {
    ($($event:ident($($name:ident: $type:ty),*);)*) => {
        $(fn $event(&self, $($name: $type),*) {
            #[cfg(feature = "metrics")]
            facade::$event($($name),*);
            self.tell(|given| given.$event($($name),*));
        })*
    };
}

impl Observer for Sink {
    pass_on! {
        waited(kind: &'static str, outcome: &'static str, time: Duration);
        held(kind: &'static str, time: Duration);
        lost(kind: &'static str, reason: &'static str);
        handed(kind: &'static str);
        released(kind: &'static str);
        woken(kind: &'static str, useful: bool);
        renewed(time: Duration);
        renewal_failed(kind: &'static str);
        reconnected();
        limited(kind: &'static str);
        booked(kind: &'static str, ahead: Duration);
        job(outcome: &'static str);
        term(end: &'static str);
    }

    fn gauges(&self, now: &Gauges) {
        #[cfg(feature = "metrics")]
        facade::gauges(self.number, Some(now));
        self.tell(|given| given.gauges(now));
    }
}

#[cfg(feature = "metrics")]
impl Drop for Sink {
    fn drop(&mut self) {
        facade::gauges(self.number, None);
    }
}
