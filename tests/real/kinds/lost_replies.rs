//! P6 for every kind of hold on a real server and a real socket. `virtual/lost_replies` has all operations.

use futures_util::future::join_all;
use stanchion_testkit::{Matcher, Proxy, Then};
use stanchion_tests::World;
use stanchion_tests::faults::{LONG, connect, soon};
use stanchion_tests::kinds::{Case, Kind};

#[tokio::test]
async fn a_script_whose_reply_is_lost_takes_effect_once() {
    for then in [Then::Reset, Then::Freeze] {
        let (_turn, servers) = super::servers().await;
        let servers = servers.into_iter();
        join_all(servers.map(async |(kind, world)| takes_effect_once(kind, world, then).await))
            .await;
    }
}

async fn takes_effect_once(kind: Kind, world: World, then: Then) {
    let World::Server(server) = world else { return };
    let proxy = Proxy::start(server.addr());
    let clients = [connect(proxy.url()).await, connect(server.url()).await];
    let case = Case::of(kind, World::Server(server), clients).await;
    // Loads the scripts, so that the next reply is that of the script.
    for target in [case.ours(), case.theirs()] {
        target.acquire().await.unwrap().release().await.unwrap();
    }
    let lose = || {
        let script = Matcher::command("EVALSHA").containing(case.names()[0]);
        proxy.swallow_next_reply(script, then);
    };
    lose();
    let held = soon(LONG / 3, case.ours().acquire()).await.unwrap();
    proxy.thaw();
    case.world.quiet().await;
    assert!(held.is_held() && case.is_held().await, "{}", case.label);
    lose();
    soon(LONG / 3, held.release()).await.unwrap();
    proxy.thaw();
    case.world.quiet().await;
    assert_eq!(proxy.swallowed(), 2, "{}: the faults happened", case.label);
    case.soon_at_rest().await;
    assert!(!case.is_held().await, "{} {then:?}", case.label);
}
