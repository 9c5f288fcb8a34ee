//! Helpers for the election tests.

use std::time::Duration;

use crate::{World, ms, secs};
use stanchion::election::CampaignOptions;
use stanchion::{AcquireError, Client, Election, Leadership};
use stanchion_testkit::eventually_async;
use tokio::task::JoinHandle;

/// The default poll interval.
pub const POLL: Duration = secs(5);
/// The default lease of a term.
pub const LEASE: Duration = secs(15);
/// The time for which a vacancy is reserved for one candidate.
pub const HEAD_START: Duration = ms(500);

pub type Campaign = JoinHandle<Result<Leadership, AcquireError>>;

pub fn election(client: &Client) -> Election {
    Election::new(client, "indexer").unwrap()
}

pub fn campaign(client: &Client, value: &str) -> Campaign {
    tokio::spawn(election(client).campaign(value))
}

pub fn campaign_with(client: &Client, value: &str, options: CampaignOptions) -> Campaign {
    tokio::spawn(election(client).campaign_with(value, options))
}

pub fn priority(priority: i32) -> CampaignOptions {
    CampaignOptions::new().priority(priority)
}

/// Waits until `count` processes are candidates and subscribed, and no request is in flight.
pub async fn candidates(world: &World, looking: &Client, count: usize) {
    let election = election(looking);
    eventually_async("the expected number of candidates", async || {
        election.candidates().await.unwrap().len() == count
    })
    .await;
    if count > 0 {
        world.subscribed("redisson_lock__channel:{indexer}").await;
    }
    world.quiet().await;
}

/// Removes the first campaign that wins, and returns its term.
pub async fn winner(campaigns: &mut Vec<Campaign>) -> Leadership {
    let mut won = 0;
    eventually_async("one of the campaigns wins", async || {
        match campaigns.iter().position(JoinHandle::is_finished) {
            Some(first) => {
                won = first;
                true
            }
            None => false,
        }
    })
    .await;
    campaigns.remove(won).await.unwrap().unwrap()
}

pub fn value(term: Option<stanchion::election::Leader>) -> String {
    let value = term.expect("there is a leader").value.unwrap();
    String::from_utf8(value).unwrap()
}
