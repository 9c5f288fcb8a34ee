//! A request whose answer is not taken yet: those beside it get what a message announces, and it is not forgotten.

use std::pin::pin;

use futures_util::poll;

use super::*;

/// Lets one task of a process wait that is not polled any more after it has asked, and `beside` others. Releases all permits, which
/// the others get at once; then one of these, which the first gets at once.
async fn left_alone(kind: Kind, permits: u32, beside: usize) {
    let world = World::engine();
    let (_holder, held, _) = waited_for(&world, kind, permits, 0).await;
    let client = world.named("p").await;
    let seats = kind.on(&client);
    let mut first = pin!(seats.acquire(1));
    let before = world.scripts_run();
    assert!(poll!(first.as_mut()).is_pending());
    eventually("it has asked", || world.scripts_run() > before).await;
    let mut others = Vec::new();
    for n in 0..beside {
        others.push(taking(kind, &client, 1));
        eventually("it waits", || client.waiters() == n + 2).await;
    }
    gathered(&world, 1).await;
    let released = Instant::now();
    held.release().await.unwrap();
    let mut taken = Vec::new();
    for other in others {
        let other = tokio::time::timeout(ms(20), other).await;
        taken.push(other.unwrap().unwrap());
    }
    assert!(
        released.elapsed() < ms(20),
        "{kind:?}: {:?}",
        released.elapsed()
    );
    // Now it hears that it was refused.
    assert!(poll!(first.as_mut()).is_pending());
    world.quiet().await;
    let given_back = Instant::now();
    taken.pop().unwrap().release().await.unwrap();
    let first = tokio::time::timeout(ms(20), first).await;
    let first = first.unwrap().unwrap();
    assert!(
        given_back.elapsed() < ms(20),
        "{kind:?}: {:?}",
        given_back.elapsed()
    );
    first.release().await.unwrap();
    for other in taken {
        other.release().await.unwrap();
    }
    at_rest(&world, permits.into()).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_left_alone_while_it_asks_delays_nobody() {
    for kind in KINDS {
        left_alone(kind, 1, 1).await;
    }
}

/// P4: its request is older than the message, so none of what that announces is its.
#[tokio::test(start_paused = true)]
async fn a_message_is_not_for_those_who_asked_before_it() {
    for kind in KINDS {
        left_alone(kind, 2, 2).await;
    }
}
