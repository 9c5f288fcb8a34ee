//! The metrics of a survey, as a page.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use clap::ValueEnum as _;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use crate::entry::Entry;
use crate::look::Kind;
use crate::trouble::Trouble;

/// What a survey has found.
#[derive(Debug)]
pub(super) struct Survey {
    pub(super) entries: Vec<Entry>,
    /// The names with metrics of their own, by their places in `entries`, and the number of those that are left out.
    pub(super) own: (Vec<usize>, usize),
    pub(super) keys: u64,
    pub(super) complete: bool,
    /// The servers, each with whether it answered.
    pub(super) nodes: Vec<(String, bool)>,
    /// The number of keys without a TTL and without a known reason for that.
    pub(super) endless: u64,
    /// `None`: this user may not read what processes publish.
    pub(super) deadlocks: Option<usize>,
    pub(super) took: Duration,
    pub(super) at: Instant,
}

/// The last survey that succeeded, and whether the last one did.
#[derive(Debug, Default)]
pub(super) struct Page {
    survey: Option<Survey>,
    /// `None`: no survey has ended yet. The first one can take minutes, and the server is not down during that time.
    is_up: Option<bool>,
}

type Labels = Vec<(&'static str, String)>;
type Gauges = Family<Labels, Gauge<f64, AtomicU64>>;

impl Page {
    pub(super) fn surveyed(&mut self, survey: Survey) {
        *self = Self {
            survey: Some(survey),
            is_up: Some(true),
        };
    }

    pub(super) fn failed(&mut self) {
        self.is_up = Some(false);
    }

    /// Writes the page. Names have no metrics while the server cannot be reached: old values would look like present ones.
    pub(super) fn text(&self) -> String {
        let mut metrics = Metrics::default();
        if let Some(is_up) = self.is_up {
            metrics.set(
                "stanchion_server_up",
                "1 if the last survey of the server, or of a server of a cluster, succeeded",
                [],
                f64::from(u8::from(is_up)),
            );
        }
        if let Some(survey) = &self.survey {
            metrics.of_survey(survey);
            if self.is_up == Some(true) {
                metrics.of_nodes(survey);
                metrics.of_kinds(survey);
                metrics.of_names(survey);
            }
        }
        metrics.text()
    }
}

/// Metrics by name, in the order in which they were first set.
#[derive(Debug, Default)]
struct Metrics {
    registry: Registry,
    gauges: BTreeMap<&'static str, Gauges>,
}

#[expect(
    clippy::cast_precision_loss,
    reason = "Prometheus counts in floating point numbers"
)]
impl Metrics {
    fn gauges(&mut self, name: &'static str, help: &str) -> &Gauges {
        self.gauges.entry(name).or_insert_with(|| {
            let gauges = Gauges::default();
            self.registry.register(name, help, gauges.clone());
            gauges
        })
    }

    fn set(&mut self, name: &'static str, help: &str, labels: impl Into<Labels>, value: f64) {
        self.gauges(name, help)
            .get_or_create(&labels.into())
            .set(value);
    }

    fn of_survey(&mut self, survey: &Survey) {
        let Survey {
            keys,
            complete,
            took,
            at,
            ..
        } = survey;
        let age = at.elapsed().as_secs_f64();
        self.set(
            "stanchion_server_survey_age_seconds",
            "Time since the last survey that succeeded",
            [],
            age,
        );
        self.set(
            "stanchion_server_survey_duration_seconds",
            "Duration of that survey",
            [],
            took.as_secs_f64(),
        );
        let complete = f64::from(u8::from(*complete));
        self.set(
            "stanchion_server_survey_complete",
            "1 if that survey looked at all keys of the servers that answered, within its budget",
            [],
            complete,
        );
        self.set(
            "stanchion_server_keys",
            "Keys that the last survey looked at",
            [],
            *keys as f64,
        );
    }

    fn of_nodes(&mut self, survey: &Survey) {
        for (node, is_up) in &survey.nodes {
            self.set(
                "stanchion_server_node_up",
                "1 if this server answered the last survey; the names of a server that did not have no metrics",
                [("node", node.clone())],
                f64::from(u8::from(*is_up)),
            );
        }
    }

    fn of_kinds(&mut self, survey: &Survey) {
        let mut kinds: BTreeMap<String, Sum> = BTreeMap::new();
        for entry in &survey.entries {
            kinds.entry(name_of(entry.kind)).or_default().add(entry);
        }
        for (kind, sum) in kinds {
            let kind = || vec![("kind", kind.clone())];
            self.set(
                "stanchion_server_names",
                "Names that are held or waited for",
                kind(),
                sum.names as f64,
            );
            self.set(
                "stanchion_server_holders",
                "Holders, or permits taken",
                kind(),
                sum.holders as f64,
            );
            self.set(
                "stanchion_server_waiters",
                "Entries of waiting calls and processes in the queues",
                kind(),
                sum.waiters as f64,
            );
            let help = "Longest hold; of a hold that no process publishes, the time since a survey first saw it";
            self.set(
                "stanchion_server_longest_hold_seconds",
                help,
                kind(),
                seconds(sum.longest_hold),
            );
            let help = "Longest wait that a process publishes";
            self.set(
                "stanchion_server_longest_wait_seconds",
                help,
                kind(),
                seconds(sum.longest_wait),
            );
            self.set(
                "stanchion_server_dead_holders",
                "Names whose holder has no connection",
                kind(),
                sum.dead as f64,
            );
            self.set(
                "stanchion_server_endless_holds",
                "Holds without a TTL",
                kind(),
                sum.endless as f64,
            );
        }
        let help = "Keys of synchronizers without a TTL and without a known reason for that";
        self.set(
            "stanchion_server_keys_without_ttl",
            help,
            [],
            survey.endless as f64,
        );
        if let Some(deadlocks) = survey.deadlocks {
            self.set(
                "stanchion_server_deadlocks",
                "Deadlocks among processes that publish what they wait for",
                [],
                deadlocks as f64,
            );
        }
    }

    fn of_names(&mut self, survey: &Survey) {
        let (places, left_out) = &survey.own;
        for entry in places.iter().filter_map(|at| survey.entries.get(*at)) {
            let labels = || vec![("name", entry.name.clone()), ("kind", name_of(entry.kind))];
            self.set(
                "stanchion_server_name_holders",
                "Holders of a name, or its permits taken",
                labels(),
                entry.holders as f64,
            );
            let waiters = entry.waiting.unwrap_or_default() as f64;
            self.set(
                "stanchion_server_name_waiters",
                "Entries in the queue of a name",
                labels(),
                waiters,
            );
            let help = "Age of the hold of a name";
            self.set(
                "stanchion_server_name_hold_seconds",
                help,
                labels(),
                seconds(entry.held_ms.unwrap_or_default()),
            );
        }
        if !places.is_empty() {
            let help = "Names that match --names and have no metrics of their own";
            self.set(
                "stanchion_server_names_left_out",
                help,
                [],
                *left_out as f64,
            );
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        // OK: writing to a text does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// The sum of the names of one kind.
#[derive(Debug, Default)]
struct Sum {
    names: u64,
    holders: u64,
    waiters: u64,
    longest_hold: u64,
    longest_wait: u64,
    dead: u64,
    endless: u64,
}

impl Sum {
    fn add(&mut self, entry: &Entry) {
        let has = |wanted: &Trouble| u64::from(entry.trouble.contains(wanted));
        self.names += 1;
        self.holders += entry.holders;
        self.waiters += entry.waiting.unwrap_or_default();
        self.longest_hold = self.longest_hold.max(entry.held_ms.unwrap_or_default());
        self.longest_wait = self
            .longest_wait
            .max(entry.longest_wait_ms.unwrap_or_default());
        self.dead += has(&Trouble::HolderGone);
        self.endless += has(&Trouble::NoTtl);
    }
}

fn name_of(kind: Option<Kind>) -> String {
    let value = kind.and_then(|kind| kind.to_possible_value());
    value.map_or_else(|| "unknown".to_owned(), |value| value.get_name().to_owned())
}

/// Of milliseconds.
fn seconds(millis: u64) -> f64 {
    Duration::from_millis(millis).as_secs_f64()
}
