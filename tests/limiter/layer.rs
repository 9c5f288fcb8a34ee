//! The tower layer, and what it does while the server is out of reach.

use std::convert::Infallible;
use std::future::{Ready, poll_fn, ready};
use std::task::{Context, Poll};

use stanchion::{InvalidName, LayerError, LimitLayer, LimitService, RateLimiter};
use stanchion_tests::World;
use tower_layer::Layer as _;
use tower_service::Service;

use super::support::*;

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

async fn ask<F>(
    service: &mut LimitService<Echo, F>,
    request: u32,
) -> Result<u32, LayerError<Infallible>>
where
    F: Fn(&u32) -> Result<Option<RateLimiter>, InvalidName>,
{
    poll_fn(|cx| service.poll_ready(cx)).await?;
    service.call(request).await
}

/// An outage lets requests go on only where that is wished, and nothing is taken for them.
#[tokio::test(start_paused = true)]
async fn requests_go_on_in_an_outage_where_the_layer_fails_open() {
    let world = World::engine();
    let client = world.client().await;
    let limiter_of = move |_: &u32| RateLimiter::new(&client, NAME, quota("2/h")).map(Some);
    let layer = LimitLayer::new(limiter_of);
    let mut closed = layer.clone().layer(Echo);
    let mut open = layer.fail_open().layer(Echo);
    assert_eq!(ask(&mut open, 1).await.unwrap(), 1);
    let faults = world.as_engine().faults();
    faults.freeze(None);
    for request in 2..12 {
        assert_eq!(ask(&mut open, request).await.unwrap(), request);
        let refused = ask(&mut closed, request).await.unwrap_err();
        assert!(matches!(refused, LayerError::Acquire(_)), "{refused:?}");
    }
    faults.thaw(None);
    // P3: what was under way is given back.
    stanchion_testkit::eventually("one is taken", || world.admin(&["GET", VALUE]) == "1").await;
    assert_eq!(ask(&mut open, 12).await.unwrap(), 12);
    let limited = ask(&mut open, 13).await.unwrap_err();
    assert!(matches!(limited, LayerError::Limited(_)), "{limited:?}");
}

/// A wrong request or a wrong name is no outage.
#[tokio::test(start_paused = true)]
async fn a_layer_that_fails_open_still_refuses_what_is_refused() {
    let world = World::engine();
    let client = world.client().await;
    let _ = world.admin(&["SET", NAME, "something else"]);
    let limiter_of = move |name: &u32| {
        let name = if *name == 0 { "" } else { NAME };
        RateLimiter::new(&client, name, quota("2/h")).map(Some)
    };
    let mut open = LimitLayer::new(limiter_of).fail_open().layer(Echo);
    let odd = ask(&mut open, 0).await.unwrap_err();
    assert!(matches!(odd, LayerError::Name(_)), "{odd:?}");
    let refused = ask(&mut open, 1).await.unwrap_err();
    assert!(matches!(refused, LayerError::Acquire(_)), "{refused:?}");
}
