//! The watchdog: renews the leases of holds in batches, and notices when a hold has expired.
//!
//! The timetable's task, in the background, passes the holds that are due to [`tend`]. `tend` puts each hold back into the timetable at its end,
//! so that an expiry is noticed even while the server is silent. Then it spawns a task for each batch of holds of one slot. An answer moves a
//! hold's end and its next renewal. Without an answer the renewal is retried soon, until the hold expires by the client's clock (P5, P10).
//!
//! The holds are the only shared state, through their atomics. No mutex is held while a hold is declared lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::about::Tenure;
use crate::hold::holds::{Base, Holds};
use crate::hold::state::HoldState;
use crate::lease::Lease;
use crate::name::Name;
use crate::wire::Retries;
use stanchion_transport::{Failure, Item, Moment, Outage, Path, Placement, Reply};

/// The most renewals in one script: large enough to amortise the call, small enough not to block the server (about 1 µs each).
const BATCH: usize = 256;

/// The time for which a process holds before its client subscribes, so that short holds cost no subscription. A little less than the longest sleep
/// of the timetable, whose task checks this time.
const HELD_FOR: Duration = Duration::from_millis(900);

/// Renews the holds that are due, or declares them lost. Spawns the requests without waiting for them.
pub(crate) fn tend(core: &Arc<dyn Base>, holds: Vec<Arc<HoldState>>) {
    let now = core.clock.now();
    // One script touches one slot of a cluster; without a cluster slots do not matter.
    // Ordered, so that one seed gives one history in the random tests.
    let mut groups: BTreeMap<(&'static str, u16), Vec<Renewals>> = BTreeMap::new();
    for hold in holds {
        if hold.lost_reason(now).is_some() {
            continue;
        }
        let due = hold.due(now);
        // P10: a task may take the hold at this moment, or at the end of a request in flight. Then it is renewed as any other.
        if due.is_left {
            hold.queue.untaken(&hold);
        }
        if due.lasts {
            hold.listen();
        }
        if due.renews
            && let due = Renewals::new(hold.clone(), now)
            && let Some(first) = due.items.first()
        {
            groups
                .entry((first.script(), core.slot_of(hold.sync.name())))
                .or_default()
                .push(due);
        }
    }
    for dues in groups.into_values() {
        for batch in in_batches(dues, |due| due.items.len()) {
            let core = Arc::clone(core);
            // Each batch has its own task, so a failing batch delays no other.
            let runner = Arc::clone(&core.runner);
            runner.serve(async move { renew_batch(&core, batch).await });
        }
    }
}

/// Subscribes once a hold has lasted for a while. Called at least once a second while anything is held. Does nothing in a cluster, where it would have
/// to check all holds each time: there the first renewal subscribes.
pub(crate) fn listen(core: &Holds) {
    if core.placement == Placement::Slots || !core.subscriptions.may_hear_for_ever() {
        return;
    }
    let now = core.clock.now();
    let lasting = |hold: &HoldState| {
        hold.sync.tenure() == Tenure::Leased
            && hold.sync.about().notices.is_none()
            && now.since(hold.began()) >= HELD_FOR
    };
    let holds = core.live_holds();
    if let Some(hold) = holds.iter().find(|hold| lasting(hold)) {
        hold.listen();
    }
}

/// Divides `dues` into batches of at most [`BATCH`] items. A hold with more items gets a batch of its own.
fn in_batches<T>(dues: Vec<T>, items: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut batches = Vec::new();
    let (mut batch, mut size) = (Vec::new(), 0);
    // Each hold is moved once. Splitting off the rest for each batch took time and memory quadratic in the number of holds.
    for due in dues {
        let more = items(&due);
        if size + more > BATCH && !batch.is_empty() {
            batches.push(std::mem::take(&mut batch));
            size = 0;
        }
        size += more;
        batch.push(due);
    }
    if !batch.is_empty() {
        batches.push(batch);
    }
    batches
}

fn renewals(hold: &HoldState, lease: Lease) -> Vec<Item> {
    let renewed = hold.sync.hold();
    renewed.map_or_else(Vec::new, |it| it.renewals(&hold.debt.owner, lease))
}

/// A hold to be renewed, and its items in the script.
struct Renewals {
    hold: Arc<HoldState>,
    items: Vec<Item>,
}

impl Renewals {
    fn new(hold: Arc<HoldState>, now: Moment) -> Self {
        let items = renewals(&hold, hold.lease_to_ask(now));
        Self { hold, items }
    }
}

async fn renew_batch(core: &Holds, batch: Vec<Renewals>) {
    // P5: read before the request, and the same for the whole batch.
    let sent = core.clock.now();
    let items: Vec<&Item> = batch.iter().flat_map(|due| &due.items).collect();
    // All holds are in one slot, see `tend`.
    let Some(name) = batch.first().map(|due| due.hold.sync.name()) else {
        return;
    };
    let answers = ask(core, Path::Background, name, &items).await;
    // The clock is read only if there is a sink.
    core.tell(|sink| sink.renewed(core.clock.now().since(sent)));
    let mut answers = answers.as_slice();
    for Renewals { hold, items } in &batch {
        let (mine, rest) = answers.split_at(items.len().min(answers.len()));
        answers = rest;
        match together(mine) {
            Ok(Some(true)) => {
                hold.change(|life| {
                    life.renewed(hold.terms.lease, sent);
                    life.renew_at(sent + hold.terms.lease.renewal_interval());
                });
            }
            Ok(Some(false)) => drop(hold.gone()),
            // P5: without an answer the hold is not renewed, and `valid_until` stays where it was.
            unknown => {
                tracing::debug!(name = %hold.sync.name(), ?unknown, "renewal failed");
                core.tell(|sink| sink.renewal_failed(hold.sync.kind().name()));
                let pause = match unknown {
                    // An earlier retry does not help: an operator has to change a right or a key first.
                    Err(Failure::Rejected(_)) => hold.terms.lease.renewal_interval(),
                    _ => hold.terms.lease.retry_interval(),
                };
                let retry = core.clock.now() + pause;
                hold.change(|life| life.renew_at(retry));
            }
        }
    }
}

/// Renews one hold at its caller's request. Returns as [`together`].
pub(crate) async fn renew(
    core: &Holds,
    hold: &HoldState,
    lease: Lease,
) -> Result<Option<bool>, Failure> {
    let items = renewals(hold, lease);
    if items.is_empty() {
        return Ok(Some(true));
    }
    let items: Vec<&Item> = items.iter().collect();
    together(&ask(core, Path::Direct, hold.sync.name(), &items).await)
}

/// Checks with the server whether it still has the hold, after a message that says otherwise. Returns whether the answer is final: without one
/// the next renewal decides.
pub(crate) async fn verify(core: &Holds, hold: &Arc<HoldState>) -> bool {
    // The check is a renewal for the shortest lease, which lengthens nothing (R3), because the hold may be one that is not renewed.
    let items = renewals(hold, Lease::MIN);
    let items: Vec<&Item> = items.iter().collect();
    if items.is_empty() {
        return true;
    }
    let answers = ask(core, Path::Background, hold.sync.name(), &items).await;
    match together(&answers) {
        // A hold that was released during the request has ended and is not lost.
        Ok(Some(false)) => drop(hold.gone()),
        Ok(Some(true)) | Err(Failure::Rejected(_)) => {}
        Ok(None) | Err(_) => return false,
    }
    true
}

/// Checks the hold as [`verify`], until the answer is final or the hold has ended.
pub(crate) async fn confirm(core: &Holds, hold: &Arc<HoldState>) {
    let mut retries = Retries::default();
    while hold.is_held() && !core.closed.is_cancelled() && !verify(core, hold).await {
        core.recover(hold.valid_until(), &mut retries).await;
    }
}

type ItemReply = Result<Reply, Failure>;

/// Sends renewals of `items`, which belong to one script and to the slot of `name`. Returns an answer for each.
///
/// The items are sent together. If that is refused, they are sent one by one, so that one key does not make the
/// others fail. During the migration of a cluster's slot its keys are on two nodes, and a request with keys on both
/// is refused (`TRYAGAIN`). A request with a key for which the user has no right is also refused.
async fn ask(core: &Holds, path: Path, name: &Name, items: &[&Item]) -> Vec<ItemReply> {
    match ask_once(core, path, name, items).await {
        Ok(replies) => replies.into_iter().map(Ok).collect(),
        Err(failure) if !is_of_one_key(&failure) => vec![Err(failure); items.len()],
        Err(failure) => match items {
            [item] => vec![ask_in_parts(core, path, name, item, failure).await],
            // Concurrently: 256 round trips in sequence would outlast a short lease (P10).
            _ => {
                let each = items.iter().map(|item| async {
                    match ask_once(core, path, name, &[item]).await {
                        Ok(replies) => Ok(replies.into_iter().next().unwrap_or(Reply::Nil)),
                        Err(failure) if is_of_one_key(&failure) => {
                            ask_in_parts(core, path, name, item, failure).await
                        }
                        Err(failure) => Err(failure),
                    }
                });
                join_all(each).await
            }
        },
    }
}

/// Renews an item of several keys key by key, up to the first key that is not renewed.
async fn ask_in_parts(
    core: &Holds,
    path: Path,
    name: &Name,
    item: &Item,
    failure: Failure,
) -> ItemReply {
    let mut answer = Err(failure);
    for part in item.parts() {
        // Parts that were renewed before a failure stay renewed, which is harmless (R3). The hold as a whole counts as not renewed.
        let replies = ask_once(core, path, name, &[part]).await?;
        let reply = replies.into_iter().next().unwrap_or(Reply::Nil);
        let renewed = reply.as_int() == Some(1);
        answer = Ok(reply);
        if !renewed {
            break;
        }
    }
    answer
}

/// Sends one request for all `items`. Returns a reply for each: [`Reply::Nil`] when the request came too late.
async fn ask_once(
    core: &Holds,
    path: Path,
    name: &Name,
    items: &[&Item],
) -> Result<Vec<Reply>, Failure> {
    let unknown = || vec![Reply::Nil; items.len()];
    // The call carries `not_after`: a late renewal must not extend a hold that its client has declared lost (P10).
    let Some(call) = Item::call_all(core.not_after(name, core.clock.now()), items) else {
        return Ok(unknown());
    };
    match core.call(path, &call).await? {
        Reply::Array(replies) if replies.len() == items.len() => Ok(replies),
        other => {
            tracing::debug!(?call, ?other, "renewal came too late");
            core.synchronise(path, name).await;
            Ok(unknown())
        }
    }
}

/// Returns whether the failure may have been caused by another key in the same request.
fn is_of_one_key(failure: &Failure) -> bool {
    match failure {
        Failure::NotNow(Outage::Refused { code, .. }) => code == "TRYAGAIN",
        Failure::NotNow(_) | Failure::Unanswered(_) => false,
        Failure::Rejected(_) => true,
    }
}

/// Combines the answers for one hold: `true` (renewed) if all items are renewed; `false` (gone) if one is gone.
/// Otherwise returns the failure, or `None` when the outcome is unknown.
fn together(answers: &[ItemReply]) -> Result<Option<bool>, Failure> {
    let says = |n| {
        answers
            .iter()
            .any(|answer| matches!(answer, Ok(reply) if reply.as_int() == Some(n)))
    };
    // Checked first, because it is certain: the failure of another item may pass, but a part that is gone does not return.
    if says(0) {
        return Ok(Some(false));
    }
    if let Some(Err(failure)) = answers.iter().find(|answer| answer.is_err()) {
        return Err(failure.clone());
    }
    let all = answers
        .iter()
        .all(|answer| matches!(answer, Ok(reply) if reply.as_int() == Some(1)));
    Ok((!answers.is_empty() && all).then_some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_have_at_most_so_many_items_and_keep_no_room_for_more() {
        let items = |due: &usize| *due;
        let of = |dues: &[usize]| in_batches(dues.to_vec(), items);
        assert_eq!(of(&[]), [[0; 0]; 0]);
        assert_eq!(
            of(&[200, 56, 1, 300, 1]),
            [vec![200, 56], vec![1], vec![300], vec![1]]
        );
        // A batch must not keep the memory of all due holds until the batch is answered.
        let batches = in_batches(vec![1; 100_000], items);
        assert_eq!(batches.iter().map(Vec::len).sum::<usize>(), 100_000);
        let room: usize = batches.iter().map(Vec::capacity).sum();
        assert!(room <= 200_000, "{room}");
    }

    #[test]
    fn a_hold_of_many_names_is_renewed_as_a_whole() {
        let read = |numbers: &[i64]| {
            let answers: Vec<ItemReply> = numbers.iter().map(|n| Ok(Reply::Int(*n))).collect();
            together(&answers).unwrap()
        };
        assert_eq!(read(&[1]), Some(true));
        assert_eq!(read(&[1, 1, 1]), Some(true));
        assert_eq!(read(&[1, 0, -1]), Some(false));
        assert_eq!(read(&[1, -1]), None);
        assert_eq!(read(&[]), None);
        let refused = |code: &str| {
            Failure::NotNow(Outage::Refused {
                code: code.into(),
                detail: String::new(),
            })
        };
        let failed = Err(refused("TRYAGAIN"));
        assert!(together(&[Ok(Reply::Int(1)), failed.clone()]).is_err());
        assert_eq!(together(&[failed, Ok(Reply::Int(0))]).unwrap(), Some(false));
        assert!(is_of_one_key(&refused("TRYAGAIN")) && !is_of_one_key(&refused("LOADING")));
    }
}
