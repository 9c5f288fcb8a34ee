//! The facts that are shown of a rate limiter.

use std::time::Duration;

use stanchion::limiter::{LimiterStatus, QuotaScope};
use stanchion::{Client, QueryError, Quota, RateLimiter};

use super::Facts;
use crate::exit::{self, Failure, Library};
use crate::look::Kind;
use crate::wording::age;

/// A handle for reads. Its quota applies only to a new limiter, and reading a status makes none.
fn handle(client: &Client, name: &[u8]) -> Result<RateLimiter, Failure> {
    let quota = Quota::new(1, Duration::from_secs(1));
    let quota = quota.map_err(|error| Failure::new(exit::CONFIG, error))?;
    Ok(RateLimiter::new(client, name, quota).map_err(Library)?)
}

pub(super) async fn read(client: &Client, name: &[u8]) -> Result<Facts, Failure> {
    let status = handle(client, name)?.status().await.map_err(Library)?;
    of(&status)
}

/// The facts of `name`, if it is a rate limiter.
pub(crate) async fn look(client: &Client, name: &[u8]) -> Result<Option<Facts>, Failure> {
    // A name that no limiter can have belongs to no limiter.
    let Ok(api) = handle(client, name) else {
        return Ok(None);
    };
    match api.status().await {
        Ok(status) if status.quota.is_some() => of(&status).map(Some),
        // Other refusals are ignored here: the kinds that are tried next report them.
        Ok(_) | Err(QueryError::Rejected { .. }) => Ok(None),
        // No other kind would be answered, and each would take as long.
        Err(error) => Err(Library(error).into()),
    }
}

fn of(status: &LimiterStatus) -> Result<Facts, Failure> {
    let mut facts = Facts::nothing(Kind::RateLimiter, "unused");
    facts.waiting = None;
    if let serde_json::Value::Object(json) = serde_json::to_value(status)? {
        facts.json = json;
    }
    let Some(quota) = status.quota else {
        return Ok(facts);
    };
    facts.exists = true;
    let kept = match status.keep_alive {
        Some(time) => format!("for {} after the last request", age(time)),
        None => "for ever: made without a keep-alive time".into(),
    };
    if status.scope == QuotaScope::PerClient {
        // The permits that the clients have taken are in one key per client.
        facts.state = format!("{quota} for each client");
        facts.brief = Some(facts.state.clone());
        facts.more.push(("kept", kept));
        return Ok(facts);
    }
    facts.held = status.free <= 0;
    facts.number = Some(status.free);
    facts.state = format!("{} of {quota} free", status.free.max(0));
    let mut brief = facts.state.clone();
    if status.free < 0 {
        facts.more.push(("booked", (-status.free).to_string()));
        brief = format!("{} booked of {quota}", -status.free);
    }
    if !status.next_free_in.is_zero() {
        let next = age(status.next_free_in);
        brief = format!("{brief}, next in {}", age(status.next_free_in));
        facts.more.push(("next", format!("in {next}")));
    }
    if !status.full_again_in.is_zero() {
        let full = age(status.full_again_in);
        facts.more.push(("all free", format!("in {full}")));
    }
    facts.more.push(("kept", kept));
    facts.brief = Some(brief);
    Ok(facts)
}
