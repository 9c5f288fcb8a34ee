//! Tests of the tower layer, above all while the server is unreachable.

use std::convert::Infallible;
use std::future::{Ready, poll_fn, ready};
use std::task::{Context, Poll};

use stanchion::limiter::{LayerError, LimitLayer, LimitService, Waiting};
use stanchion::{AcquireError, InvalidName, RateLimiter};
use stanchion_tests::{World, assert_is};
use tower_layer::Layer as _;
use tower_service::Service;

use stanchion_tests::limiter::*;

/// Answers every request with itself.
#[derive(Clone, Debug)]
struct Echo;

impl Service<u32> for Echo {
    type Response = u32;
    type Error = Infallible;
    type Future = Ready<Result<u32, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u32) -> Self::Future {
        ready(Ok(request))
    }
}

async fn send<F>(
    service: &mut LimitService<Echo, F>,
    request: u32,
) -> Result<u32, LayerError<Infallible>>
where
    F: Fn(&u32) -> Result<Option<RateLimiter>, InvalidName>,
{
    poll_fn(|cx| service.poll_ready(cx)).await?;
    service.call(request).await
}

/// A layer that fails open lets requests through in an outage, and they take no permits. Any other layer refuses them.
#[tokio::test(start_paused = true)]
async fn a_layer_that_fails_open_passes_requests_in_an_outage() {
    let (world, client) = World::engine().with_client().await;
    let limiters = client.clone();
    let limiter_of = move |_: &u32| RateLimiter::new(&limiters, NAME, quota("2/h")).map(Some);
    let layer = LimitLayer::new(limiter_of);
    let mut closed = layer.clone().layer(Echo);
    let mut open = layer.fail_open().layer(Echo);
    assert_eq!(send(&mut open, 1).await.unwrap(), 1);
    let faults = world.faults();
    faults.freeze(None);
    for request in 2..12 {
        assert_eq!(send(&mut open, request).await.unwrap(), request);
        let refused = send(&mut closed, request).await.unwrap_err();
        assert!(matches!(refused, LayerError::Acquire(_)), "{refused:?}");
    }
    faults.thaw(None);
    // P3: permits of requests in flight are given back.
    world.until(&["GET", VALUE], "1").await;
    // Until then, the client refuses without a request, and the layer lets requests pass.
    stanchion_testkit::eventually("connected again", || client.is_connected()).await;
    assert_eq!(send(&mut open, 12).await.unwrap(), 12);
    let limited = send(&mut open, 13).await.unwrap_err();
    assert!(matches!(limited, LayerError::Limited(_)), "{limited:?}");
}

/// A rejected request or an invalid name is not an outage.
#[tokio::test(start_paused = true)]
async fn a_layer_that_fails_open_still_refuses_rejected_requests() {
    let (world, client) = World::engine().with_client().await;
    let _ = world.admin(&["SET", NAME, "something else"]);
    let limiter_of = move |name: &u32| {
        let name = if *name == 0 { "" } else { NAME };
        RateLimiter::new(&client, name, quota("2/h")).map(Some)
    };
    let mut open = LimitLayer::new(limiter_of).fail_open().layer(Echo);
    let odd = send(&mut open, 0).await.unwrap_err();
    assert!(matches!(odd, LayerError::Name(_)), "{odd:?}");
    let refused = send(&mut open, 1).await.unwrap_err();
    assert!(matches!(refused, LayerError::Acquire(_)), "{refused:?}");
}

/// A request that times out behind other calls of its process gets no decision, but the server is reachable.
#[tokio::test(start_paused = true)]
async fn a_layer_that_fails_open_refuses_a_request_that_times_out_in_the_queue() {
    let (_world, client) = World::engine().with_client().await;
    let api = limiter(&client, "1/h").waiting(Waiting::Asked);
    let _taken = granted(&api, 1).await;
    let waiting = tokio::spawn(api.acquire());
    stanchion_testkit::eventually("one call waits", || client.waiters() == 1).await;
    let limiter_of = move |_: &u32| Ok(Some(api.clone()));
    let layer = LimitLayer::new(limiter_of).wait(ms(100)).fail_open();
    let refused = send(&mut layer.layer(Echo), 1).await.unwrap_err();
    assert_is!(
        refused,
        LayerError::Acquire(AcquireError::TimedOut { free_by: None, .. })
    );
    waiting.abort();
}

/// A server that does not reply within the wait time of a request counts as unreachable.
#[tokio::test(start_paused = true)]
async fn a_layer_that_fails_open_waits_no_longer_than_its_wait_time() {
    let (world, client) = World::engine().with_client().await;
    let api = limiter(&client, "2/h");
    let limiter_of = move |_: &u32| Ok(Some(api.clone()));
    let layer = LimitLayer::new(limiter_of).wait(ms(100)).fail_open();
    let faults = world.faults();
    faults.freeze(None);
    let began = tokio::time::Instant::now();
    assert_eq!(send(&mut layer.layer(Echo), 7).await.unwrap(), 7);
    assert!(began.elapsed() <= ms(150), "{:?}", began.elapsed());
    faults.thaw(None);
    // P3: permits of requests in flight are given back.
    stanchion_testkit::eventually("no permit is taken", || world.admin(&["GET", VALUE]) != "1")
        .await;
}
