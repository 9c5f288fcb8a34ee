//! The facts that are shown of an election.

use stanchion::election::{Candidate, Leader};
use stanchion::{Client, Election};

use super::{Facts, Held, Standing};
use crate::exit::{Failure, Library};
use crate::look::Kind;
use crate::table::cut;
use crate::wording::{age, printable};

/// The most of a value that is shown.
const SHOWN: usize = 60;

pub(super) async fn read(client: &Client, name: &[u8]) -> Result<Facts, Failure> {
    let election = Election::new(client, name).map_err(Library)?;
    let (leader, candidates) = tokio::join!(election.leader(), election.candidates());
    let (leader, candidates) = (leader.map_err(Library)?, candidates.map_err(Library)?);
    let mut facts = Facts::nothing(Kind::Election, "vacant");
    facts.exists = leader.is_some() || !candidates.is_empty();
    facts.waiting = Some(candidates.len() as u64);
    facts.tell("leader", &leader)?;
    facts.tell("candidates", &candidates)?;
    facts.standing = candidates.iter().map(standing).collect();
    let Some(leader) = leader else {
        return Ok(facts);
    };
    facts.held = true;
    facts.state = "led".into();
    facts.last_token = leader.token;
    facts.more = more(&leader);
    facts.holders.push(Held {
        owner: leader.id,
        count: 1,
        what: "leads",
        left: leader.remaining,
        since: leader.since,
    });
    Ok(facts)
}

fn standing(candidate: &Candidate) -> Standing {
    Standing {
        owner: candidate.id.clone(),
        what: format!(
            "priority {}, {}",
            candidate.priority,
            shown(&candidate.value)
        ),
        left: Some(candidate.remaining),
    }
}

fn more(leader: &Leader) -> Vec<(&'static str, String)> {
    let mut more = Vec::new();
    match &leader.value {
        Some(value) => more.push(("value", shown(value))),
        None => more.push(("value", "none: a holder of the plain lock".into())),
    }
    if let Some(since) = leader.since {
        more.push(("since", age(since)));
    }
    if leader.priority != 0 {
        more.push(("priority", leader.priority.to_string()));
    }
    more
}

/// A value, and its size where that is not seen: anybody may write anything there.
fn shown(value: &[u8]) -> String {
    let whole = printable(value);
    match cut(&whole, SHOWN) {
        short if short == whole => whole,
        short => format!("{short} ({} bytes)", value.len()),
    }
}
