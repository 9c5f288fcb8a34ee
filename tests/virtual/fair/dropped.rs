//! Tests of the fair lock's futures, dropped at every await point.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_acquire_dropped_anywhere_leaves_nothing() {
    let (world, ours, theirs) = slow().await;
    let polls = for_each_await_point(async |polls| {
        let done = cancel_after(fair(&ours).acquire(), polls).await.is_some();
        world.at_rest().await;
        assert_eq!(ours.waiters(), 0, "after {polls} polls");
        let started = Instant::now();
        let guard = fair(&theirs).acquire().await.unwrap();
        assert!(started.elapsed() < ms(100), "after {polls} polls");
        guard.release().await.unwrap();
        done
    })
    .await;
    assert!(polls > 1);
}

#[tokio::test(start_paused = true)]
async fn a_try_dropped_anywhere_leaves_nothing() {
    let (world, ours, _theirs) = slow().await;
    for_each_await_point(async |polls| {
        let done = cancel_after(fair(&ours).try_acquire(), polls)
            .await
            .is_some();
        world.at_rest().await;
        done
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_waiting_acquire_dropped_anywhere_passes_its_grant_on() {
    for timeout in [None, Some(Duration::from_secs(60))] {
        let (world, ours, theirs) = slow().await;
        let polls = for_each_await_point(async |polls| {
            let held = fair(&theirs).acquire().await.unwrap();
            let options =
                timeout.map_or_else(AcquireOptions::new, |t| AcquireOptions::new().timeout(t));
            let doomed = tokio::spawn({
                let lock = fair(&ours);
                async move {
                    cancel_after(lock.acquire_with(options), polls)
                        .await
                        .is_some()
                }
            });
            // The grant is sent while the doomed waiter is at any point of its wait.
            let releasing = tokio::spawn(async move {
                sleep(ms(40)).await;
                held.release().await.unwrap();
            });
            sleep(ms(1)).await;
            let started = Instant::now();
            let survivor = fair(&ours).acquire().await.unwrap();
            assert!(started.elapsed() < ms(200), "after {polls} polls");
            survivor.release().await.unwrap();
            releasing.await.unwrap();
            let covered = doomed.await.unwrap();
            world.at_rest().await;
            assert_eq!(ours.waiters(), 0, "after {polls} polls");
            covered
        })
        .await;
        assert!(polls > 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_to_a_waiter_that_leaves_goes_to_the_next() {
    let (world, ours, theirs) = slow().await;
    for after in 0..16 {
        let held = fair(&theirs).acquire().await.unwrap();
        let doomed = waiting(&world, &fair(&ours)).await;
        let survivor = waiting(&world, &fair(&theirs)).await;
        sleep(ms(50)).await;
        let releasing = tokio::spawn(held.release());
        sleep(ms(after)).await;
        doomed.abort();
        drop(doomed);
        let started = Instant::now();
        let guard = granted(survivor).await;
        assert!(started.elapsed() < ms(100), "dropped after {after} ms");
        guard.release().await.unwrap();
        releasing.await.unwrap().unwrap();
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_dropped_anywhere_grants_to_the_next_waiter() {
    for waiters in [0, 1] {
        let (world, ours, theirs) = slow().await;
        for_each_await_point(async |polls| {
            let guard = fair(&ours).acquire().await.unwrap();
            let mut next = Vec::new();
            for _ in 0..waiters {
                next.push(waiting(&world, &fair(&theirs)).await);
            }
            sleep(ms(50)).await;
            let covered = cancel_after(guard.release(), polls).await.is_some();
            let started = Instant::now();
            for next in next {
                granted(next).await.release().await.unwrap();
            }
            world.at_rest().await;
            assert!(started.elapsed() < ms(100), "after {polls} polls");
            covered
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_re_entry_dropped_anywhere_does_not_change_the_count() {
    let (world, ours, _theirs) = slow().await;
    let guard = fair(&ours).acquire().await.unwrap();
    let owner = guard.owner().to_string();
    for_each_await_point(async |polls| {
        let done = cancel_after(guard.reenter(), polls).await.is_some();
        sleep(ms(100)).await;
        assert_eq!(
            world.admin(&["HGET", "job", &owner]),
            "1",
            "after {polls} polls"
        );
        done
    })
    .await;
    guard.release().await.unwrap();
    world.at_rest().await;
}
