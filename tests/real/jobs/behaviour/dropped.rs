//! Tests of P3: a run that is dropped before its work begins leaves no hold and no claim. After that, its tick counts as run.

use stanchion::jobs::Begun;

use super::super::*;

on_both! {
    /// The tick counts as run as soon as the call has returned the guard.
    async fn the_tick_of_a_dropped_guard_counts_as_run(world) {
        let client = world.client().await;
        let tick = this_minute(world);
        drop(nightly(&client).begin_tick(tick).await.unwrap());
        only_the_record_is_left(world).await;
        let again = nightly(&client).begin_tick(tick).await.unwrap();
        assert!(matches!(again, Begun::Already { .. }), "{again:?}");
    }
}
