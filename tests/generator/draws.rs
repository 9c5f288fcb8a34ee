//! Strategies that draw the parts of a step.

use proptest::prelude::*;

use crate::profiles::Kind;
use crate::program::{Ask, Java, Manage, Named, Polled, Verb, What};
use crate::weather::Weather;

/// The number of a program's variables.
pub(crate) const HANDS: u8 = 5;

pub(crate) fn select(whats: &[What]) -> BoxedStrategy<What> {
    proptest::sample::select(whats.to_vec()).boxed()
}

pub(crate) fn locks() -> BoxedStrategy<What> {
    select(&[
        What::Lock("x"),
        What::Lock("x"),
        What::Lock("{x}"),
        What::Lock("y"),
        What::Bare("x"),
        What::Own("x"),
        What::Fair("x"),
    ])
}

pub(crate) fn readers() -> BoxedStrategy<What> {
    select(&[
        What::Read("r"),
        What::Read("r"),
        What::Read("r"),
        What::Write("r"),
        What::Write("r"),
        What::Write("{r}"),
        What::PoliteRead("q"),
        What::PoliteRead("q"),
        What::PoliteWrite("q"),
    ])
}

pub(crate) fn several(clients: u8) -> BoxedStrategy<What> {
    prop_oneof![
        3 => select(&[What::Lock("x"), What::Lock("y"), What::Fair("x"), What::Read("r"), What::Write("r")]),
        2 => multi(clients)
    ]
    .boxed()
}

pub(crate) fn multi(clients: u8) -> BoxedStrategy<What> {
    let member = prop_oneof![
        4 => select(&[What::Lock("x"), What::Lock("y"), What::Lock("z"), What::Bare("y")]),
        1 => select(&[What::Own("z"), What::Fair("f"), What::Read("r"), What::Write("r"), What::Lock("{x}")])
    ];
    // Mostly through one client: that is what one script serves.
    let one = (0..clients, proptest::collection::vec(member.clone(), 2..4))
        .prop_map(|(client, whats)| whats.into_iter().map(|what| (client, what)).collect());
    let many = proptest::collection::vec((0..clients, member), 2..4);
    prop_oneof![3 => one, 2 => many]
        .prop_map(What::Multi)
        .boxed()
}

pub(crate) fn permits() -> BoxedStrategy<What> {
    prop_oneof![3 => Just(1_u32), 2 => 2..4_u32, 2 => 4..9_u32, 1 => Just(10_u32)]
        .prop_map(|n| What::Permits("s", n))
        .boxed()
}

pub(crate) fn leased() -> BoxedStrategy<What> {
    prop_oneof![4 => Just(1_u32), 2 => 2..4_u32, 1 => 4..9_u32]
        .prop_map(|n| What::Leased("p", n))
        .boxed()
}

pub(crate) fn asks(owners: u32) -> BoxedStrategy<Ask> {
    let owner = prop_oneof![
        10 - owners => Just(None),
        owners => (0..2_u8).prop_map(Some)
    ];
    let lease = prop_oneof![
        6 => Just(None),
        1 => Just(Some(600_u16)),
        2 => Just(Some(900)),
        2 => Just(Some(10_000))
    ];
    let timeout = prop_oneof![
        4 => Just(None),
        1 => Just(Some(0_u16)),
        1 => (1..60_u16).prop_map(Some),
        2 => (60..4_000_u16).prop_map(Some)
    ];
    let max_hold = prop_oneof![9 => Just(None), 1 => (100..4_000_u16).prop_map(Some)];
    let rarely = |n: u32| prop_oneof![10 - n => Just(false), n => Just(true)];
    (
        owner,
        lease,
        rarely(1),
        max_hold,
        timeout,
        rarely(1),
        rarely(2),
    )
        .prop_map(
            |(owner, lease, manual, max_hold, timeout, refuses, tries)| Ask {
                owner,
                lease,
                manual,
                max_hold,
                timeout,
                refuses_reentry: refuses && owner.is_some(),
                tries,
                ..Ask::default()
            },
        )
        .boxed()
}

pub(crate) fn polled(left: u32) -> BoxedStrategy<Polled> {
    prop_oneof![
        17 - left => Just(Polled::Always),
        2 * left => Just(Polled::Once),
        2 => (0..7_u8).prop_map(Polled::Times),
        1 => (1..3_000_u16).prop_map(Polled::For)
    ]
    .boxed()
}

pub(crate) fn verbs(left: u32) -> BoxedStrategy<Verb> {
    prop_oneof![
        5 => Just(Verb::Release),
        1 => Just(Verb::ReleaseOnce),
        4 => Just(Verb::Let),
        2 => Just(Verb::Renew),
        4 => (0..HANDS).prop_map(Verb::Reenter),
        2 => Just(Verb::Watch),
        3 => (100..20_000_u16).prop_map(Verb::Run),
        2 => (0..HANDS).prop_map(Verb::Downgrade),
        1 => (1..3_000_u16).prop_map(Verb::HandOver),
        1 => Just(Verb::Forget),
        3 * left => Just(Verb::PollAgain),
        1 => Just(Verb::Resume)
    ]
    .boxed()
}

pub(crate) fn passes(long: u32) -> BoxedStrategy<u16> {
    prop_oneof![
        10 - long => prop_oneof![3 => 1..100_u16, 3 => 100..1_500_u16, 1 => 1_500..6_000_u16],
        long => 6_000..30_000_u16
    ]
    .boxed()
}

pub(crate) fn weather() -> BoxedStrategy<Weather> {
    prop_oneof![
        4 => Just(Weather::Frozen),
        5 => Just(Weather::Thawed),
        2 => Just(Weather::Cut),
        2 => Just(Weather::CutListeners),
        1 => Just(Weather::Refused),
        2 => Just(Weather::Accepted),
        3 => (1..4_u8).prop_map(Weather::RepliesLost),
        2 => (1..3_u8).prop_map(Weather::RepliesSilent),
        2 => (1..4_u8).prop_map(Weather::MessagesLost),
        4 => (1..3_u8).prop_map(Weather::Delayed),
        4 => Just(Weather::Delivered),
        1 => (1..3_u8).prop_map(Weather::Loading),
        1 => prop_oneof![-20_000..-1_i32, 1..20_000_i32].prop_map(Weather::Stepped),
        1 => Just(Weather::Restarted),
        1 => Just(Weather::RestartedEmpty),
        1 => Just(Weather::Flushed),
        1 => Just(Weather::Full),
        2 => Just(Weather::Roomy),
        1 => Just(Weather::ScriptsForgotten),
        6 => Just(Weather::Calm)
    ]
    .boxed()
}

pub(crate) fn manages(kind: Kind, what: BoxedStrategy<What>) -> BoxedStrategy<Manage> {
    let locks = prop_oneof![
        2 => what.clone().prop_map(Manage::ForceRelease),
        1 => what.prop_map(Manage::Look)
    ]
    .boxed();
    let plain = |n: Named| {
        prop_oneof![
            3 => (1..11_u32).prop_map(move |k| Manage::Init(n, k)),
            3 => Just(Manage::Init(n, 10)),
            2 => (1..4_u32).prop_map(move |k| Manage::Add(n, k)),
            1 => (1..3_u32).prop_map(move |k| Manage::Reduce(n, k)),
            1 => Just(Manage::Drain(n)),
            2 => Just(Manage::Reclaim(n)),
            1 => Just(Manage::DeletePermits(n)),
            1 => Just(Manage::Look(What::Permits(n, 1)))
        ]
        .boxed()
    };
    let leased = |n: Named| {
        prop_oneof![
            6 => (1..9_u32).prop_map(move |k| Manage::InitLeased(n, k)),
            1 => (1..4_u32).prop_map(move |k| Manage::AddLeased(n, k)),
            2 => (1..9_u32).prop_map(move |k| Manage::SetTotal(n, k)),
            1 => Just(Manage::DrainLeased(n)),
            1 => Just(Manage::ReclaimLeased(n)),
            1 => Just(Manage::Look(What::Leased(n, 1)))
        ]
        .boxed()
    };
    let latch = |n: Named| {
        prop_oneof![
            5 => (1..3_u64).prop_map(move |k| Manage::Arm(n, k)),
            4 => (1..3_u64).prop_map(move |k| Manage::CountDown(n, k)),
            1 => Just(Manage::DeleteLatch(n)),
            1 => Just(Manage::Look(What::Latch(n)))
        ]
        .boxed()
    };
    match kind {
        Kind::Locks | Kind::Newer | Kind::Tangles => locks,
        Kind::Limiters => quotas(),
        Kind::Permits => plain("s"),
        Kind::Leased => leased("p"),
        Kind::Latches => prop_oneof![3 => latch("l"), 1 => latch("m")].boxed(),
        Kind::Meetings => prop_oneof![4 => barriers(), 1 => locks].boxed(),
        Kind::Idle => idle(),
        Kind::All => {
            prop_oneof![1 => locks, 2 => plain("s"), 2 => leased("p"), 2 => latch("l")].boxed()
        }
    }
}

pub(crate) fn javas(kind: Kind) -> BoxedStrategy<Java> {
    let locks = prop_oneof![
        2 => Just(Java::Delete("x")),
        2 => (100..4_000_u16).prop_map(|millis| Java::LockFor("x", millis)),
        1 => Just(Java::Unlock("x"))
    ]
    .boxed();
    let permits = |n: Named| {
        prop_oneof![
            3 => Just(Java::Delete(n)),
            4 => (1..9_u32).prop_map(move |k| Java::SetPermits(n, k)),
            1 => Just(Java::TakePermit(n)),
            1 => Just(Java::GivePermit(n))
        ]
        .boxed()
    };
    let latch = prop_oneof![
        1 => Just(Java::Delete("l")),
        2 => (1..3_u32).prop_map(|k| Java::SetCount("l", k)),
        2 => Just(Java::CountDownTo0("l"))
    ]
    .boxed();
    match kind {
        Kind::Locks | Kind::Newer | Kind::Tangles | Kind::Limiters | Kind::Meetings => locks,
        Kind::Idle => latch,
        Kind::Permits => permits("s"),
        Kind::Leased => permits("p"),
        Kind::Latches => latch,
        Kind::All => prop_oneof![2 => locks, 2 => permits("s"), 1 => latch].boxed(),
    }
}

/// Campaigns, under names that share channels with each other and with locks.
pub(crate) fn campaigns() -> BoxedStrategy<What> {
    select(&[
        What::Leader("x", 0),
        What::Leader("x", 0),
        What::Leader("x", 5),
        What::Leader("{x}", 0),
        What::Lock("x"),
        What::Free("x"),
    ])
}

pub(crate) fn jobs() -> BoxedStrategy<What> {
    let tick = prop_oneof![1 => Just(None), 6 => (0..6_u8).prop_map(Some)];
    let least = prop_oneof![3 => Just(0_u16), 1 => 100..5_000_u16];
    let job = (
        proptest::sample::select(vec!["x", "x", "x", "{x}"]),
        tick,
        least,
    );
    prop_oneof![
        6 => job.prop_map(|(name, tick, least)| What::Job(name, tick, least)),
        1 => select(&[What::Lock("x"), What::Free("x")])
    ]
    .boxed()
}

/// Limiters, whose names share channels with each other and with locks.
pub(crate) fn limiters() -> BoxedStrategy<What> {
    let permits = || prop_oneof![3 => Just(1_u32), 2 => 2..5_u32];
    prop_oneof![
        4 => permits().prop_map(|n| What::Rate("a", n)),
        2 => permits().prop_map(|n| What::Rate("{t}a", n)),
        2 => permits().prop_map(|n| What::Bucket("a", n)),
        1 => permits().prop_map(|n| What::Bucket("x", n)),
        1 => permits().prop_map(|n| What::Bucket("{x}", n)),
        1 => Just(What::Lock("x"))
    ]
    .boxed()
}

/// Locks that are handed on by tickets, and waited for without being taken.
pub(crate) fn handed_on() -> BoxedStrategy<What> {
    select(&[
        What::Lock("x"),
        What::Lock("x"),
        What::Lock("x"),
        What::Lock("{x}"),
        What::Fair("f"),
        What::Fair("f"),
        What::Free("x"),
        What::Free("f"),
    ])
}

/// Acquires that ask for a rest after a crash now and then.
pub(crate) fn resting(owners: u32) -> BoxedStrategy<Ask> {
    let rest = prop_oneof![1 => Just(None), 1 => (500..8_000_u16).prop_map(Some)];
    (asks(owners), rest)
        .prop_map(|(ask, rest)| Ask { rest, ..ask })
        .boxed()
}

/// Waits without an end by an owner, which give up in a deadlock.
pub(crate) fn entangled() -> BoxedStrategy<Ask> {
    let owner = prop_oneof![6 => 0..2_u8, 1 => Just(2)];
    (owner, prop_oneof![5 => Just(true), 1 => Just(false)])
        .prop_map(|(owner, fails)| Ask {
            owner: Some(owner),
            fails,
            ..Ask::default()
        })
        .boxed()
}

/// The verbs of guards of the newer kinds.
pub(crate) fn newer_verbs(left: u32) -> BoxedStrategy<Verb> {
    let number = || 0..2_u8;
    let lease = prop_oneof![1 => Just(None), 1 => (600..9_000_u16).prop_map(Some)];
    prop_oneof![
        2 => verbs(left),
        1 => (600..12_000_u16).prop_map(Verb::RenewFor),
        2 => (number(), lease).prop_map(|(number, lease)| Verb::Detach(number, lease)),
        1 => Just(Verb::Proclaim),
        1 => Just(Verb::Resign)
    ]
    .boxed()
}

pub(crate) fn quotas() -> BoxedStrategy<Manage> {
    let name = || proptest::sample::select(vec!["a", "{t}a"]);
    prop_oneof![
        2 => (name(), 4..9_u32, 200..3_000_u16, any::<bool>())
            .prop_map(|(name, permits, millis, forgets)| Manage::SetQuota(name, permits, millis, forgets)),
        1 => name().prop_map(Manage::DeleteLimiter),
        2 => name().prop_map(|name| Manage::Look(What::Rate(name, 1)))
    ]
    .boxed()
}

/// Barriers of both kinds, under names that they share with each other and with locks.
pub(crate) fn gathered() -> BoxedStrategy<What> {
    let various = (1..4_u32, any::<bool>()).prop_map(|(n, breaks)| What::Meet("y", n, breaks));
    prop_oneof![
        5 => Just(What::Meet("x", 2, false)),
        2 => any::<bool>().prop_map(|breaks| What::Meet("{x}", 3, breaks)),
        4 => Just(What::Meet("y", 2, true)),
        1 => various,
        5 => Just(What::Inside("x", 2)),
        2 => Just(What::Inside("{x}", 3)),
        1 => Just(What::Lock("x"))
    ]
    .boxed()
}

fn barriers() -> BoxedStrategy<Manage> {
    let name = || proptest::sample::select(vec!["x", "{x}", "y"]);
    prop_oneof![
        2 => name().prop_map(Manage::BreakAll),
        2 => (name(), 1..4_u32).prop_map(|(name, n)| Manage::SetParties(name, n)),
        1 => name().prop_map(|name| Manage::Look(What::Meet(name, 1, false))),
        1 => Just(Manage::Look(What::Inside("x", 1)))
    ]
    .boxed()
}

/// What is done with latches that end.
fn idle() -> BoxedStrategy<Manage> {
    let name = || proptest::sample::select(vec!["l", "l", "m"]);
    let count = || 1..3_u64;
    prop_oneof![
        6 => (name(), count(), 1_000..20_000_u16).prop_map(|(n, k, millis)| Manage::ArmFor(n, k, millis)),
        1 => (name(), count()).prop_map(|(n, k)| Manage::Arm(n, k)),
        2 => (name(), count()).prop_map(|(n, k)| Manage::CountDown(n, k)),
        1 => name().prop_map(Manage::DeleteLatch),
        2 => name().prop_map(|n| Manage::Look(What::Latch(n)))
    ]
    .boxed()
}
