//! The facts that are shown of barriers, cyclic and double.

use stanchion::barrier::OnLeave;
use stanchion::{Client, CyclicBarrier, DoubleBarrier};

use super::Facts;
use crate::barrier::invalid;
use crate::exit::{Failure, Library};
use crate::look::Kind;
use crate::wording::age;

/// Any number of parties: reading the status does not depend on it.
const ANY: u32 = 1;

pub(super) async fn read(client: &Client, name: &[u8]) -> Result<Facts, Failure> {
    let barrier = CyclicBarrier::new(client, name, ANY).map_err(invalid)?;
    let mut facts = Facts::nothing(Kind::Barrier, "nobody waits");
    let Some(status) = barrier.status().await.map_err(Library)? else {
        return Ok(facts);
    };
    facts.exists = true;
    facts.waiting = Some(status.waiting.into());
    facts.state = here(status.waiting, status.parties);
    facts.brief = Some(facts.state.clone());
    facts.number = Some(status.waiting.into());
    facts.more.push(("round", status.generation.to_string()));
    if let Some(next) = status.next_parties {
        facts.more.push(("next round", format!("{next} parties")));
    }
    if status.waiting > 0 && status.on_leave == OnLeave::Break {
        let rule = "whoever leaves breaks the round for all";
        facts.more.push(("rule", rule.into()));
    }
    facts.tell_lease(status.first_lease);
    facts.tell("barrier", &status)?;
    Ok(facts)
}

pub(super) async fn read_double(client: &Client, name: &[u8]) -> Result<Facts, Failure> {
    let barrier = DoubleBarrier::new(client, name, ANY).map_err(invalid)?;
    let mut facts = Facts::nothing(Kind::DoubleBarrier, "nobody is here");
    let Some(status) = barrier.status().await.map_err(Library)? else {
        return Ok(facts);
    };
    facts.exists = true;
    facts.held = status.under_way;
    facts.state = if status.under_way {
        // Parties that wait for the next round have no place yet.
        facts.waiting = None;
        format!("{} of {} are inside", status.members, status.parties)
    } else {
        facts.waiting = Some(status.members.into());
        here(status.members, status.parties)
    };
    facts.brief = Some(facts.state.clone());
    facts.number = Some(status.members.into());
    facts.more.push(("round", status.generation.to_string()));
    facts.tell_lease(status.first_lease);
    facts.tell("barrier", &status)?;
    Ok(facts)
}

fn here(places: u32, parties: u32) -> String {
    format!("{places} of {parties} are here")
}

impl Facts {
    fn tell_lease(&mut self, first: Option<std::time::Duration>) {
        if let Some(left) = first {
            let left = format!("in {}, unless it is renewed", age(left));
            self.more.push(("place ends", left));
        }
    }
}
