//! Calls that wait for each other.

use stanchion::{Certainty, Client, Deadlock, DeadlockEdge, QueryError};

use super::finding::Finding;
use crate::wording::{age, printable};

/// Looks for deadlocks. Takes 12 s where there may be one, because only the second look makes it sure.
pub(super) async fn check(client: &Client) -> Result<Vec<Finding>, QueryError> {
    const CHECK: &str = "deadlock";
    let found = match client.deadlocks().await {
        Ok(found) => found,
        Err(QueryError::Rejected { rejection }) => {
            let what = format!("not checked: what processes tell may not be read ({rejection})");
            let advice =
                "ACL SETUSER … ~stanchion_client* +get +zrangebyscore, for the operator's user";
            return Ok(vec![Finding::skip(CHECK, what, advice)]);
        }
        Err(error) => return Err(error),
    };
    if found.is_empty() {
        return Ok(vec![Finding::ok(
            CHECK,
            "no process tells of calls that wait for each other",
        )]);
    }
    Ok(found.iter().map(|deadlock| told(CHECK, deadlock)).collect())
}

fn told(check: &'static str, deadlock: &Deadlock) -> Finding {
    let edges: Vec<String> = deadlock.edges.iter().map(edge).collect();
    let mut what = edges.join("; ");
    let break_it = deadlock.edges.first().map_or_else(String::new, |edge| {
        let name = printable(edge.hold.name.as_bytes());
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
    format!(
        "{} waits {} for {}, which {} has held for {}",
        printable(edge.waiter_app.as_bytes()),
        age(edge.wait.waiting),
        printable(edge.wait.name.as_bytes()),
        printable(edge.holder_app.as_bytes()),
        age(edge.hold.held),
    )
}
