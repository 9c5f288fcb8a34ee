//! The one observer to which a client and its links report.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::observer::{Gauges, Observer};

impl dyn Observer {
    /// Makes the observer that passes everything on to `observers`. `None` without any, so that nothing is timed.
    #[must_use]
    pub fn of_all(observers: Vec<Arc<dyn Observer>>) -> Option<Arc<dyn Observer>> {
        if observers.is_empty() {
            return None;
        }
        let isolated = |observer| Isolated {
            observer,
            failed: AtomicBool::new(false),
        };
        Some(Arc::new(Sink(
            observers.into_iter().map(isolated).collect(),
        )))
    }
}

struct Sink(Box<[Isolated]>);

/// An observer that is not called again after a panic.
struct Isolated {
    observer: Arc<dyn Observer>,
    failed: AtomicBool,
}

impl Isolated {
    fn tell(&self, event: impl FnOnce(&dyn Observer)) {
        if self.failed.load(Ordering::Relaxed) {
            return;
        }
        // P10: the renewal thread calls it, too, and a panic there would end the renewals of all holds.
        if catch_unwind(AssertUnwindSafe(|| event(&*self.observer))).is_err()
            && !self.failed.swap(true, Ordering::Relaxed)
        {
            tracing::error!("the observer has panicked; it is not called again");
        }
    }
}

macro_rules! pass_on {
    ($($event:ident($($name:ident: $type:ty),*);)*) => {
        $(fn $event(&self, $($name: $type),*) {
            for each in &self.0 {
                each.tell(|observer| observer.$event($($name),*));
            }
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
        for each in &self.0 {
            each.tell(|observer| observer.gauges(now));
        }
    }
}
