//! Calls that wait for each other.

use stanchion::survey::{Certainty, Deadlock, DeadlockEdge, DeadlockParty, InTheWay};
use stanchion::{Client, QueryError};

use super::finding::Finding;
use crate::wording::{age, printable};

/// Looks for deadlocks. Takes 12 s if there may be one, because only a second read confirms it.
pub(super) async fn check(client: &Client) -> Vec<Finding> {
    const CHECK: &str = "deadlock";
    let found = match client.deadlocks().await {
        Ok(found) => found,
        Err(QueryError::Rejected { rejection }) => {
            let what = format!("not checked: what processes tell may not be read ({rejection})");
            let advice =
                "ACL SETUSER … ~stanchion_client* +get +zrangebyscore, for the operator's user";
            return vec![Finding::skip(CHECK, what, advice)];
        }
        Err(error) => {
            let what = format!("not checked: {error}");
            return vec![Finding::skip(CHECK, what, "run it again")];
        }
    };
    if found.is_empty() {
        return vec![Finding::ok(
            CHECK,
            "no process tells of calls that wait for each other",
        )];
    }
    found.iter().map(|deadlock| told(CHECK, deadlock)).collect()
}

fn told(check: &'static str, deadlock: &Deadlock) -> Finding {
    let edges: Vec<String> = deadlock.edges.iter().map(edge).collect();
    let mut what = edges.join("; ");
    let break_it = deadlock.edges.first().map_or_else(String::new, |edge| {
        let name = printable(edge.name.as_bytes());
        format!("acquire in one order of names, or as a multi-lock; now: end one of them, or stanchion force-release {name}")
    });
    if let Some(until) = deadlock.until {
        what += &format!(" (it ends by itself within {})", age(until));
        return Finding::warn(check, what, break_it);
    }
    match deadlock.certainty {
        Certainty::Certain => Finding::fail(check, what, break_it),
        _ => Finding::warn(check, format!("suspected: {what}"), break_it),
    }
}

fn edge(edge: &DeadlockEdge) -> String {
    let name = printable(edge.name.as_bytes());
    let waits = edge
        .waiter
        .since
        .map_or_else(String::new, |it| format!(" {}", age(it)));
    let since = edge.blocker.since.map(age);
    let way = match (edge.way, since) {
        (InTheWay::Ahead, Some(since)) => format!("has waited for {since}, and comes first"),
        (InTheWay::Ahead, None) => "waits for, and comes first".into(),
        (_, Some(since)) => format!("has held for {since}"),
        (_, None) => "holds".into(),
    };
    format!(
        "{} waits{waits} for {name}, which {} {way}",
        who(&edge.waiter),
        who(&edge.blocker)
    )
}

/// The application and its name for the actor, or the owner if the party publishes no record.
fn who(party: &DeadlockParty) -> String {
    let Some(app) = &party.app else {
        return printable(party.owner.as_bytes());
    };
    let app = printable(app.as_bytes());
    match &party.label {
        Some(label) => format!("{app} ({})", printable(label.as_bytes())),
        None => app,
    }
}
