//! Tests of P6: a request takes effect once although its reply is lost.

use std::sync::atomic::{AtomicU32, Ordering};

use stanchion::jobs::{Activity, Outcome};
use stanchion_tests::{LostReply, World};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_claim_with_a_lost_reply_runs_the_tick_once() {
    for way in LostReply::WAYS {
        let (world, client) = World::engine().with_client().await;
        let (job, tick) = (nightly(&client), this_minute(&world));
        assert_eq!(job.run(|_| async {}).await.unwrap(), Outcome::Done(()));
        world.lose_next_reply(way);
        let runs = AtomicU32::new(0);
        let work = async || runs.fetch_add(1, Ordering::Relaxed);
        assert_eq!(
            job.run_tick(tick, |_| work()).await.unwrap(),
            Outcome::Done(0),
            "{way:?}"
        );
        only_the_record_is_left(&world).await;
        let again = job.run_tick(tick, |_| work()).await.unwrap();
        assert!(
            matches!(again, Outcome::Already { .. }),
            "{way:?}: {again:?}"
        );
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_with_a_lost_reply_takes_effect_once() {
    for way in LostReply::WAYS {
        for least in [0, 60] {
            let (world, client) = World::engine().with_client().await;
            let job = nightly(&client);
            assert_eq!(job.run(|_| async {}).await.unwrap(), Outcome::Done(()));
            let job = job.at_least(secs(least));
            let out = job
                .run(|_| async { world.lose_next_reply(way) })
                .await
                .unwrap();
            assert_eq!(out, Outcome::Done(()), "{way:?}");
            let status = job.status().await.unwrap();
            let activity = status.holder.map(|holder| holder.activity);
            let expected = (least > 0).then_some(Activity::Resting);
            assert_eq!(activity, expected, "{way:?}");
            if least > 0 {
                let left = ttl(&world);
                assert!(left > 40_000 && left <= 60_000, "{way:?}: {left}");
            }
        }
    }
}
