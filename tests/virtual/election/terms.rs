//! Terms: one leader at a time, the end of a term, and the cleanup after it.
//!
//! Long: one test for each case.

use stanchion::election::CampaignOptions;
use stanchion::{
    AcquireError, AcquireOptions, Election, Fencing, Lock, LostReason, Rejection, RenewError,
};
use stanchion_testkit::{cancel_after, eventually_async, for_each_await_point};
use stanchion_tests::{LostReply, World, assert_is, assert_within, ms, secs};
use tokio::time::Instant;

use stanchion_tests::election::*;

/// With client-go's ReleaseOnCancel and LeaderSelector's autoRequeue, the leader that steps down can win again at once.
#[tokio::test(start_paused = true)]
async fn a_leader_that_steps_down_wins_again_only_if_alone() {
    let (world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    let first = election(&ours).campaign("ours").await.unwrap();
    let mut other = campaign(&theirs, "theirs");
    candidates(&world, &ours, 1).await;
    let started = Instant::now();
    first.step_down().await.unwrap();
    // This request is sent before the other candidate receives the message.
    let again = campaign(&ours, "ours");
    let term = (&mut other).await.unwrap().unwrap();
    assert_within(started, ms(20), ());
    assert!(!again.is_finished());
    // Without other candidates it wins at once.
    again.abort();
    candidates(&world, &ours, 0).await;
    term.step_down().await.unwrap();
    let started = Instant::now();
    let term = election(&theirs).campaign("theirs").await.unwrap();
    assert!(started.elapsed() < ms(20));
    // After its rest it also wins against a dead candidate, whose entry lasts for 15 s.
    let dead = campaign(&ours, "ours");
    candidates(&world, &theirs, 1).await;
    world.faults().freeze(Some("ours"));
    term.step_down().await.unwrap();
    let started = Instant::now();
    let term = election(&theirs).campaign("theirs").await.unwrap();
    let waited = started.elapsed();
    assert!(
        waited > HEAD_START && waited < HEAD_START * 2 + ms(20),
        "{waited:?}"
    );
    dead.abort();
    drop(term);
}

#[tokio::test(start_paused = true)]
async fn a_candidate_leads_when_the_lease_of_a_crashed_leader_ends() {
    let (world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    let term = election(&theirs).campaign("theirs").await.unwrap();
    let waiting = campaign(&ours, "ours");
    candidates(&world, &ours, 1).await;
    // The crash is at the time of a renewal.
    tokio::time::sleep(LEASE * 10).await;
    world.faults().freeze(Some("theirs"));
    let started = Instant::now();
    let next = waiting.await.unwrap().unwrap();
    let took = started.elapsed();
    assert!(took >= LEASE * 2 / 3 - ms(100), "{took:?}");
    assert!(took <= LEASE + ms(100), "{took:?}");
    // P5: the former leader knows of its loss.
    assert!(!term.is_held());
    drop(next);
}

/// etcd#21128 and cadence PR#7608: a failed campaign leaves its key, and becomes a leader without a process.
#[tokio::test(start_paused = true)]
async fn a_campaign_dropped_anywhere_leaves_no_candidate_and_no_term() {
    for leads in [false, true] {
        let (world, [ours, theirs]) = World::slow_engine().with_named(["ours", "theirs"]).await;
        let polls = for_each_await_point(async |polls| {
            let held = match leads {
                true => Some(election(&theirs).campaign("theirs").await.unwrap()),
                false => None,
            };
            let releasing = tokio::spawn(async move {
                // The office becomes free while the cancelled campaign waits.
                tokio::time::sleep(ms(40)).await;
                drop(held);
            });
            let doomed = cancel_after(election(&ours).campaign("ours"), polls).await;
            let done = doomed.is_some();
            drop(doomed);
            releasing.await.unwrap();
            // The candidate is removed within a round trip. Its entry does not have to expire.
            world.quiet().await;
            let left = world.keys();
            let rests = |key: &String| key.starts_with("stanchion_heir");
            assert!(left.iter().all(rests), "{left:?} after {polls} polls");
            assert_eq!(ours.waiters(), 0);
            // The next campaign does not wait for a lease.
            let started = Instant::now();
            let next = election(&theirs).campaign("theirs").await.unwrap();
            assert_within(started, secs(1), polls);
            next.step_down().await.unwrap();
            // The rest expires.
            world.at_rest().await;
            done
        })
        .await;
        assert!(polls > 1);
    }
}

/// The first campaign of a process is dropped. The second must not miss the message.
#[tokio::test(start_paused = true)]
async fn a_waiting_candidate_dropped_anywhere_passes_its_wake_on() {
    let (world, [ours, theirs]) = World::slow_engine().with_named(["ours", "theirs"]).await;
    let polls = for_each_await_point(async |polls| {
        let held = election(&theirs).campaign("theirs").await.unwrap();
        let releasing = tokio::spawn(async move {
            tokio::time::sleep(ms(40)).await;
            held.step_down().await.unwrap();
        });
        let doomed = election(&ours).campaign("doomed");
        let doomed = tokio::spawn(async move { cancel_after(doomed, polls).await.is_some() });
        tokio::task::yield_now().await;
        let started = Instant::now();
        let term = election(&ours).campaign("ours").await.unwrap();
        // The first campaign may have led and stepped down. Then there is no other candidate.
        assert_within(started, secs(1), polls);
        term.step_down().await.unwrap();
        releasing.await.unwrap();
        let covered = doomed.await.unwrap();
        world.at_rest().await;
        covered
    })
    .await;
    assert!(polls > 2);
}

#[tokio::test(start_paused = true)]
async fn a_campaign_whose_reply_was_lost_leads_once() {
    for way in LostReply::WAYS {
        let (world, client) = World::engine().with_client().await;
        let known = election(&client).campaign("v").await.unwrap();
        known.step_down().await.unwrap();
        world.lose_next_reply(way);
        let term = election(&client).campaign("v").await.unwrap();
        let leader = election(&client).leader().await.unwrap().unwrap();
        assert_eq!(leader.token, term.fencing_token(), "the token of the reply");
        assert_eq!(leader.id, term.id());
        assert_eq!(world.admin(&["HLEN", "indexer"]), "1");
        assert!(election(&client).candidates().await.unwrap().is_empty());
        term.step_down().await.unwrap();
        world.at_rest().await;
    }
}

/// P3: the request arrives long after its caller has ended.
#[tokio::test(start_paused = true)]
async fn a_late_request_makes_no_leader_and_no_candidate() {
    for leads in [false, true] {
        let (world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
        let known = election(&ours).campaign("known").await.unwrap();
        known.step_down().await.unwrap();
        world.at_rest().await;
        let held = match leads {
            true => Some(election(&theirs).campaign("theirs").await.unwrap()),
            false => None,
        };
        let faults = world.faults();
        faults.hold_requests("EVALSHA", 1);
        let soon = secs(1);
        let late = election(&ours).campaign_timeout("late", soon).await;
        assert!(late.is_err());
        // The cleanup after the time-out has run by then.
        tokio::time::sleep(LEASE * 4).await;
        faults.deliver();
        world.quiet().await;
        assert!(election(&theirs).candidates().await.unwrap().is_empty());
        let leader = election(&theirs).leader().await.unwrap();
        assert_eq!(leader.is_some(), leads);
        drop(held);
        world.at_rest().await;
    }
}

/// The replies to a refused campaign, a renewal and a resignation are lost.
#[tokio::test(start_paused = true)]
async fn any_reply_may_be_lost_once() {
    for way in LostReply::WAYS {
        let (world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
        let term = election(&theirs).campaign("theirs").await.unwrap();
        world.lose_next_reply(way);
        let waiting = campaign(&ours, "ours");
        candidates(&world, &ours, 1).await;
        world.lose_next_reply(way);
        term.renew().await.unwrap();
        let token = term.fencing_token();
        world.lose_next_reply(way);
        term.step_down().await.unwrap();
        let term = waiting.await.unwrap().unwrap();
        assert!(term.fencing_token() > token);
        term.step_down().await.unwrap();
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_message_costs_at_most_a_poll() {
    let (world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    let term = election(&theirs).campaign("theirs").await.unwrap();
    let waiting = campaign(&ours, "ours");
    candidates(&world, &ours, 1).await;
    world.faults().lose_messages(2);
    let started = Instant::now();
    term.step_down().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
    let took = started.elapsed();
    assert!(took <= POLL, "{took:?}");
    assert!(took > ms(100), "the message was not lost");
}

#[tokio::test(start_paused = true)]
async fn a_flush_is_reported_to_the_leader_and_tokens_keep_growing() {
    let (world, client) = World::engine().with_client().await;
    let term = election(&client).campaign("v").await.unwrap();
    let before = term.fencing_token();
    world.faults().flush_all();
    let started = Instant::now();
    assert_eq!(term.lost().await, LostReason::Gone);
    assert!(started.elapsed() <= LEASE / 3 + ms(10));
    let next = election(&client).campaign("v").await.unwrap();
    assert!(next.fencing_token() > before);
}

/// client-go#1155: the election ends after one lost term.
#[tokio::test(start_paused = true)]
async fn a_longest_term_ends_and_another_candidate_leads() {
    let (_world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    let longest = CampaignOptions::new().max_term(secs(20));
    let term = election(&ours)
        .campaign_with("ours", longest)
        .await
        .unwrap();
    let started = Instant::now();
    let waiting = campaign(&theirs, "theirs");
    assert_eq!(term.lost().await, LostReason::MaxHold);
    assert!(!term.is_held());
    let next = waiting.await.unwrap().unwrap();
    let took = started.elapsed();
    assert!(took >= secs(20) && took < secs(36), "{took:?}");
    drop((term, next));
}

/// redlease uses the name of a service as the id of a participant, which makes two leaders.
#[tokio::test(start_paused = true)]
async fn two_elections_of_one_client_exclude_each_other() {
    let (_world, client) = World::engine().with_client().await;
    let (one, two) = (election(&client), election(&client));
    let term = one.campaign("v").await.unwrap();
    assert!(two.try_campaign("v").await.unwrap().is_none());
    let waiting = tokio::spawn(two.campaign("v"));
    tokio::time::sleep(LEASE * 2).await;
    assert!(!waiting.is_finished() && term.is_held());
    term.step_down().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_leads_is_refused_another_term() {
    let (_world, client) = World::engine().with_client().await;
    let owner = client.owner();
    let options = || AcquireOptions::new().owner(&owner);
    let term = election(&client)
        .campaign_with("v", options())
        .await
        .unwrap();
    let again = election(&client).campaign_with("v", options()).await;
    assert_is!(
        again,
        Err(AcquireError::Rejected {
            rejection: Rejection::AlreadyHeld { .. },
            ..
        })
    );
    assert!(term.is_held());
}

#[tokio::test(start_paused = true)]
async fn invalid_arguments_are_rejected_before_a_request_is_sent() {
    let (world, client) = World::engine().with_client().await;
    let before = world.scripts_run();
    let long = vec![b'x'; 4097];
    let refused = election(&client).try_campaign(&long).await.unwrap_err();
    assert!(refused.to_string().contains("4097 bytes"), "{refused}");
    let longer = CampaignOptions::new().cooldown(secs(3601));
    let refused = election(&client)
        .campaign_with("a", longer)
        .await
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .ends_with("cooldown 1h 1s: at most an hour"),
        "{refused}"
    );
    assert_eq!(world.scripts_run(), before);
    let term = election(&client).campaign(&long[..4096]).await.unwrap();
    let refused = term.proclaim(&long).await.unwrap_err();
    assert!(matches!(refused, RenewError::Rejected { .. }), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_foreign_key_rejects_a_campaign_and_stays() {
    let kinds = [
        "leader",
        "candidates",
        "candidate_seen",
        "candidate_rank",
        "heir",
    ];
    for kind in kinds {
        let (world, client) = World::engine().with_client().await;
        let key = format!("stanchion_{kind}:{{indexer}}");
        let _ = world.admin(&["RPUSH", &key, "foreign"]);
        let refused = election(&client).try_campaign("v").await;
        assert!(
            matches!(
                refused,
                Err(AcquireError::Rejected {
                    rejection: Rejection::WrongType { .. },
                    ..
                })
            ),
            "{kind}: {refused:?}"
        );
        assert_eq!(world.keys(), std::slice::from_ref(&key));
        // A foreign key that appears during a term does not stop renewals or the resignation.
        let _ = world.admin(&["DEL", &key]);
        let term = election(&client).campaign("v").await.unwrap();
        let _ = world.admin(&["DEL", &key]);
        let _ = world.admin(&["RPUSH", &key, "foreign"]);
        tokio::time::sleep(LEASE * 2).await;
        assert!(term.is_held(), "{kind}");
        term.step_down().await.unwrap();
        assert_eq!(world.admin(&["EXISTS", "indexer"]), "0", "{kind}");
    }
    let (world, client) = World::engine().with_client().await;
    let _ = world.admin(&["SET", "indexer", "mine"]);
    assert!(election(&client).try_campaign("v").await.is_err());
    assert!(election(&client).leader().await.is_err());
    assert!(election(&client).danger().depose().await.is_err());
    assert_eq!(world.admin(&["GET", "indexer"]), "mine");
}

#[tokio::test(start_paused = true)]
async fn a_full_server_lets_leaders_stay_and_step_down() {
    let (world, client) = World::engine().with_client().await;
    let term = election(&client).campaign("v").await.unwrap();
    let full = stanchion::embedded::Switch::On;
    world.faults().out_of_memory(full);
    tokio::time::sleep(LEASE * 3).await;
    assert!(term.is_held(), "P10");
    term.step_down().await.unwrap();
    let refused = election(&client).try_campaign("v").await;
    assert!(
        matches!(
            refused,
            Err(AcquireError::Rejected {
                rejection: Rejection::OutOfMemory { .. },
                ..
            })
        ),
        "{refused:?}"
    );
    assert_eq!(world.admin(&["EXISTS", "indexer"]), "0");
}

/// A lock and an election of one name are the same lock, so a Java process can take part with `RLock`.
#[tokio::test(start_paused = true)]
async fn a_holder_of_the_plain_lock_is_a_leader_without_a_value() {
    let (world, client) = World::engine().with_client().await;
    let lock = Lock::new(&client, "indexer").unwrap();
    let guard = lock.acquire().await.unwrap();
    let waiting = campaign(&client, "v");
    eventually_async("the campaign is a candidate", async || {
        !election(&client).candidates().await.unwrap().is_empty()
    })
    .await;
    let leader = election(&client).leader().await.unwrap().unwrap();
    assert!(leader.id.starts_with(&client.id().to_string()));
    assert_eq!((leader.value, leader.token), (None, None));
    world.quiet().await;
    let started = Instant::now();
    guard.release().await.unwrap();
    let term = waiting.await.unwrap().unwrap();
    assert!(started.elapsed() < ms(20), "by message");
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert!(lock.status().await.unwrap().is_held());
    drop(term);
}

#[tokio::test(start_paused = true)]
async fn names_in_braces_are_separate_elections_and_any_bytes_work() {
    let (world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    let mut terms = Vec::new();
    for name in [
        &b"x"[..],
        b"{x}",
        b"a{x}b",
        b"line\nbreak \0\xff",
        b"{",
        b"}{",
    ] {
        let first = Election::new(&ours, name).unwrap();
        let other = Election::new(&theirs, name).unwrap();
        terms.push(first.campaign(b"\0\xff \n".as_slice()).await.unwrap());
        assert!(other.try_campaign("v").await.unwrap().is_none());
        let leader = other.leader().await.unwrap().unwrap();
        assert_eq!(leader.value.unwrap(), b"\0\xff \n");
        let waiting = tokio::spawn(other.campaign(b" \0 1 2".as_slice()));
        eventually_async("the campaign is a candidate", async || {
            let there = first.candidates().await.unwrap();
            there.first().is_some_and(|it| it.value == b" \0 1 2")
        })
        .await;
        waiting.abort();
    }
    for term in terms {
        term.step_down().await.unwrap();
    }
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn without_fencing_a_term_has_no_token() {
    let (_world, client) = World::engine().with_client().await;
    let without = election(&client).fencing(Fencing::Off);
    let term = without.campaign("v").await.unwrap();
    assert_eq!(term.fencing_token(), None);
    assert_eq!(without.leader().await.unwrap().unwrap().token, None);
    tokio::time::sleep(LEASE * 2).await;
    assert!(term.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_deposed_leader_is_notified() {
    let (_world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    let term = election(&ours).campaign("v").await.unwrap();
    tokio::time::sleep(secs(2)).await;
    assert!(election(&theirs).danger().depose().await.unwrap());
    let started = Instant::now();
    assert_eq!(term.lost().await, LostReason::Gone);
    assert!(started.elapsed() < ms(50));
    assert!(!election(&theirs).danger().depose().await.unwrap());
    assert!(term.step_down().await.is_err());
    drop(election(&theirs).campaign("v").await.unwrap());
}

/// Expired entries of a thousand candidates are removed while the leader stays.
#[tokio::test(start_paused = true)]
async fn dead_candidates_do_not_pile_up() {
    let (world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    let term = election(&ours).campaign("v").await.unwrap();
    let (mut entries, mut seen) = (vec!["HSET".to_owned()], vec!["ZADD".to_owned()]);
    let mut rank = seen.clone();
    entries.push("stanchion_candidates:{indexer}".into());
    seen.push("stanchion_candidate_seen:{indexer}".into());
    rank.push("stanchion_candidate_rank:{indexer}".into());
    for n in 0..1000 {
        let dead = format!("7c9e6679-7425-40de-944b-e07fc1f90ae7:{n}");
        entries.extend([dead.clone(), "9 v".into()]);
        seen.extend(["1".into(), dead.clone()]);
        rank.extend(["-9".into(), dead]);
    }
    let run = |command: &[String]| {
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let _ = world.admin(&command);
    };
    for command in [&entries, &seen, &rank] {
        run(command);
    }
    assert!(election(&ours).candidates().await.unwrap().is_empty());
    let waiting = campaign(&theirs, "v");
    tokio::time::sleep(POLL * 20).await;
    assert_eq!(
        world.admin(&["HLEN", "stanchion_candidates:{indexer}"]),
        "1"
    );
    assert_eq!(
        world.admin(&["ZCARD", "stanchion_candidate_seen:{indexer}"]),
        "1"
    );
    assert_eq!(
        world.admin(&["ZCARD", "stanchion_candidate_rank:{indexer}"]),
        "1"
    );
    let started = Instant::now();
    term.step_down().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
    assert_within(started, ms(20), "dead candidates cause no delay");
}

/// P5: a leader is subscribed to notices from its election on.
#[tokio::test(start_paused = true)]
async fn a_leader_deposed_right_after_its_election_is_notified_at_once() {
    let (world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    for waits in [false, true] {
        let before = match waits {
            true => Some(election(&theirs).campaign("theirs").await.unwrap()),
            false => None,
        };
        let campaign = campaign(&ours, "ours");
        if let Some(before) = before {
            candidates(&world, &theirs, 1).await;
            before.step_down().await.unwrap();
        }
        let term = campaign.await.unwrap().unwrap();
        tokio::time::sleep(ms(10)).await;
        let started = Instant::now();
        assert!(election(&theirs).danger().depose().await.unwrap());
        assert_eq!(term.lost().await, LostReason::Gone);
        assert_within(started, ms(50), ());
    }
}
