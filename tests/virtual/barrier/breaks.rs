//! Rounds that break, by their `OnLeave` rule or by `break_all`.

use tokio::time::{Instant, sleep};

use super::*;

async fn three_wait(world: &World, options: WaitOptions) -> Vec<Waiting> {
    let clients = world.fleet(3).await;
    let waits = clients
        .iter()
        .map(|client| wait_with(&of(client, 4), options))
        .collect();
    settled(world, 3).await;
    waits
}

async fn assert_all_broken(waits: Vec<Waiting>, why: BrokenBy) -> u64 {
    let mut rounds = Vec::new();
    for waiting in waits {
        let ended = waiting.await.unwrap();
        assert_broken(&ended, why);
        match ended {
            Err(BarrierError::Broken { generation, .. }) => rounds.push(generation),
            other => panic!("{other:?}"),
        }
    }
    rounds.dedup();
    assert_eq!(rounds.len(), 1, "{rounds:?}");
    rounds[0]
}

/// One message breaks the round, within 10 ms.
#[tokio::test(start_paused = true)]
async fn a_dropped_wait_breaks_the_round_for_the_others() {
    let world = engine();
    let mut waits = three_wait(&world, breaking()).await;
    let began = Instant::now();
    waits.remove(1).abort();
    assert_all_broken(waits, BrokenBy::Left).await;
    assert!(began.elapsed() <= ms(10), "{:?}", began.elapsed());
    the_next_round_works(&world, 4).await;
}

#[tokio::test(start_paused = true)]
async fn a_time_out_breaks_the_round_for_the_others() {
    let world = engine();
    let patient = wait_with(&barrier(&world, 3).await, breaking());
    settled(&world, 1).await;
    let began = Instant::now();
    let hasty = wait_with(&barrier(&world, 3).await, breaking().timeout(ms(400)));
    assert_uncounted(&hasty.await.unwrap());
    assert_broken(&patient.await.unwrap(), BrokenBy::TimedOut);
    assert!(began.elapsed() <= ms(410), "{:?}", began.elapsed());
    the_next_round_works(&world, 3).await;
}

#[tokio::test(start_paused = true)]
async fn the_first_arrival_sets_the_rule_of_the_round() {
    let world = engine();
    let first = wait(&barrier(&world, 3).await);
    settled(&world, 1).await;
    let second = wait_with(&barrier(&world, 3).await, breaking());
    taken(&world, 2).await;
    second.abort();
    taken(&world, 1).await;
    assert!(!first.is_finished());
    first.abort();
    taken(&world, 0).await;
    // The next round begins with the other rule.
    let first = wait_with(&barrier(&world, 3).await, breaking());
    settled(&world, 1).await;
    let second = wait(&barrier(&world, 3).await);
    taken(&world, 2).await;
    let status = barrier(&world, 3).await.status().await.unwrap().unwrap();
    assert_eq!(status.on_leave, OnLeave::Break);
    second.abort();
    assert_broken(&first.await.unwrap(), BrokenBy::Left);
}

/// In virtual time; `servers` kills a real process. The lease of a frozen client is not renewed, and the others check when it ends.
#[tokio::test(start_paused = true)]
async fn the_death_of_a_party_breaks_the_round_when_its_lease_has_passed() {
    let world = engine();
    let dying = wait_with(&of(&world.named("dying").await, 4), breaking());
    settled(&world, 1).await;
    sleep(ms(1_700)).await;
    let mut waits = Vec::new();
    for n in 0..2 {
        waits.push(wait_with(&barrier(&world, 4).await, breaking()));
        taken(&world, 2 + n).await;
    }
    let began = Instant::now();
    world.faults().freeze(Some("dying"));
    assert_all_broken(waits, BrokenBy::Died).await;
    assert!(began.elapsed() <= LEASE + ms(20), "{:?}", began.elapsed());
    assert!(began.elapsed() >= LEASE / 2);
    the_next_round_works(&world, 4).await;
    // When the frozen party continues, it learns that its round broke, and has no place.
    world.faults().thaw(Some("dying"));
    assert_broken(&dying.await.unwrap(), BrokenBy::Died);
    taken(&world, 0).await;
}

/// No other party checks the lease. The party itself breaks the round when it is back.
#[tokio::test(start_paused = true)]
async fn a_party_that_returns_after_its_lease_breaks_its_round() {
    let world = engine();
    let away = wait_with(&of(&world.named("away").await, 2), breaking());
    settled(&world, 1).await;
    world.faults().freeze(Some("away"));
    sleep(LEASE + secs(2)).await;
    world.faults().thaw(Some("away"));
    assert_broken(&away.await.unwrap(), BrokenBy::Died);
    the_next_round_works(&world, 2).await;
}

/// In virtual time; `servers` kills a real process.
#[tokio::test(start_paused = true)]
async fn the_place_of_a_dead_party_is_free_when_its_lease_has_passed() {
    let world = engine();
    let dying = wait(&of(&world.named("dying").await, 3));
    let alive = wait(&barrier(&world, 3).await);
    settled(&world, 2).await;
    world.faults().freeze(Some("dying"));
    sleep(LEASE + ms(10)).await;
    let third = wait(&barrier(&world, 3).await);
    sleep(ms(500)).await;
    let status = barrier(&world, 3).await.status().await;
    assert!(
        !third.is_finished() && !alive.is_finished(),
        "{} {} {status:?}",
        third.is_finished(),
        alive.is_finished()
    );
    taken(&world, 2).await;
    world.faults().thaw(Some("dying"));
    // The frozen party arrives again and completes the round.
    let (dying, third) = (passed(dying).await, passed(third).await);
    assert!(dying.is_last());
    assert_eq!(dying.generation(), third.generation());
    assert_eq!(passed(alive).await.generation(), third.generation());
    taken(&world, 0).await;
}

#[tokio::test(start_paused = true)]
async fn break_all_breaks_a_round_with_any_rule() {
    let world = engine();
    let looking = barrier(&world, 4).await;
    assert_eq!(looking.danger().break_all().await.unwrap(), 0);
    for options in [WaitOptions::new(), breaking()] {
        let waits = three_wait(&world, options).await;
        assert_eq!(looking.danger().break_all().await.unwrap(), 3);
        let broken = assert_all_broken(waits, BrokenBy::Forced).await;
        assert_eq!(looking.danger().break_all().await.unwrap(), 0);
        assert_eq!(the_next_round_works(&world, 4).await, broken + 1);
    }
}

/// The message about the break does not arrive, and later rounds pass and break before the waiter is back.
#[tokio::test(start_paused = true)]
async fn a_break_with_a_lost_message_is_found_after_later_rounds() {
    let world = engine();
    let frozen = wait(&of(&world.named("frozen").await, 2));
    settled(&world, 1).await;
    world.faults().freeze(Some("frozen"));
    let looking = barrier(&world, 2).await;
    assert_eq!(looking.danger().break_all().await.unwrap(), 1);
    the_next_round_works(&world, 2).await;
    let other = wait_with(&looking, breaking());
    taken(&world, 1).await;
    other.abort();
    taken(&world, 0).await;
    the_next_round_works(&world, 2).await;
    world.faults().thaw(Some("frozen"));
    assert_broken(&frozen.await.unwrap(), BrokenBy::Forced);
}

#[tokio::test(start_paused = true)]
async fn a_new_number_of_parties_applies_after_a_broken_round() {
    let world = engine();
    let pair = barrier(&world, 2).await;
    let first = wait_with(&pair, breaking());
    settled(&world, 1).await;
    assert!(!pair.set_parties(3).await.unwrap());
    assert_eq!(pair.danger().break_all().await.unwrap(), 1);
    assert_broken(&first.await.unwrap(), BrokenBy::Forced);
    the_next_round_works(&world, 3).await;
}
