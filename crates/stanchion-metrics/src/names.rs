//! The table of metrics: names, units and meanings. Every metric is named here, and `docs/running/monitoring.md` has the same names
//! (`tests/tidy`).

/// The type of a metric.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Type {
    Counter,
    Gauge,
    Histogram,
}

/// The unit of a metric.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Measure {
    Count,
    Seconds,
}

/// A metric, as an exporter describes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) kind: Type,
    pub(crate) unit: Measure,
    pub(crate) help: &'static str,
}

macro_rules! metrics {
    ($($const:ident: $kind:ident of $unit:ident, $name:literal, $help:literal;)*) => {
        $(pub(crate) const $const: &str = $name;)*

        /// All metrics.
        pub(crate) const ALL: &[Metric] = &[
            $(Metric { name: $const, kind: Type::$kind, unit: Measure::$unit, help: $help },)*
        ];
    };
}

metrics! {
    WAIT: Histogram of Seconds, "stanchion_wait_seconds", "From the call of an acquire to its end";
    HOLD: Histogram of Seconds, "stanchion_hold_seconds", "From the grant of a hold to its end";
    RENEWAL: Histogram of Seconds, "stanchion_renewal_seconds", "One batch of renewals, from the request to its answer";
    HELD: Gauge of Count, "stanchion_held", "Holds of this process now";
    WAITING: Gauge of Count, "stanchion_waiting", "Calls of this process that wait now";
    OLDEST_WAIT: Gauge of Seconds, "stanchion_oldest_wait_seconds", "The age of the oldest of them";
    CONNECTED: Gauge of Count, "stanchion_connected", "Open connections of this process";
    HANDED: Counter of Count, "stanchion_handed_total", "Holds that were handed to the next waiter inside the process";
    RELEASED: Counter of Count, "stanchion_released_total", "Holds that were released for all processes";
    LOST: Counter of Count, "stanchion_lost_total", "Holds that were lost";
    WAKES: Counter of Count, "stanchion_wakes_total", "Wakes of waiters; useful: the waiter then held";
    RENEWAL_FAILURES: Counter of Count, "stanchion_renewal_failures_total", "Renewals of a hold that were refused or not answered";
    RECONNECTS: Counter of Count, "stanchion_reconnects_total", "Connections that were lost and are open again";
    LIMITED: Counter of Count, "stanchion_limited_total", "Requests for permits of a limiter that were turned down";
    BOOKED: Histogram of Seconds, "stanchion_booked_seconds", "How far ahead permits of a limiter were booked";
    JOBS: Counter of Count, "stanchion_job_runs_total", "Attempts to run a job";
    TERMS: Counter of Count, "stanchion_terms_total", "Terms of leaders that have ended";
}
