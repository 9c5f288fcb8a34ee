//! Strategies that draw the parts of a step.

use proptest::prelude::*;

use crate::generator::fault::Fault;
use crate::generator::profiles::Kind;
use crate::generator::program::{CallOptions, Java, Manage, Name, Polled, Target, Verb};

/// The number of slots that most steps use.
pub(crate) const SLOTS: u8 = 5;

/// Reads targets: `kind name`, and a number for some kinds.
pub(crate) fn targets(text: &'static str) -> impl Iterator<Item = Target> {
    text.split(", ").map(|target| {
        let mut words = target.split(' ');
        let (kind, name) = (words.next().unwrap(), words.next().unwrap());
        let number = words.next().map_or(0, |it| it.parse().unwrap());
        match kind {
            "lock" => Target::Lock(name),
            "unfenced" => Target::Unfenced(name),
            "name_fenced" => Target::NameFenced(name),
            "fair" => Target::Fair(name),
            "read" => Target::Read(name),
            "write" => Target::Write(name),
            "writer_first_read" => Target::WriterFirstRead(name),
            "writer_first_write" => Target::WriterFirstWrite(name),
            "permits" => Target::Permits(name, number),
            "leased" => Target::Leased(name, number),
            "latch" => Target::Latch(name),
            "red" => Target::Red(name),
            "leader" => Target::Leader(name, i8::try_from(number).unwrap()),
            "wait_free" => Target::WaitFree(name),
            "barrier" => Target::Barrier(name, number, false),
            "double" => Target::DoubleBarrier(name, number),
            _ => panic!("no target: {target}"),
        }
    })
}

pub(crate) fn select(text: &'static str) -> BoxedStrategy<Target> {
    proptest::sample::select(targets(text).collect::<Vec<_>>()).boxed()
}

pub(crate) fn locks() -> BoxedStrategy<Target> {
    select("lock x, lock x, lock {x}, lock y, unfenced x, name_fenced x, fair x")
}

pub(crate) fn readers() -> BoxedStrategy<Target> {
    select(
        "read r, read r, read r, write r, write r, write {r}, writer_first_read q, writer_first_read q, writer_first_write q",
    )
}

pub(crate) fn several(clients: u8) -> BoxedStrategy<Target> {
    prop_oneof![
        3 => select("lock x, lock y, fair x, read r, write r"),
        2 => multi(clients)
    ]
    .boxed()
}

pub(crate) fn multi(clients: u8) -> BoxedStrategy<Target> {
    let member = prop_oneof![
        4 => select("lock x, lock y, lock z, unfenced y"),
        1 => select("name_fenced z, fair f, read r, write r, lock {x}")
    ];
    // Mostly through one client, because only then one script serves the whole multi-lock.
    let one = (0..clients, proptest::collection::vec(member.clone(), 2..4))
        .prop_map(|(client, targets)| targets.into_iter().map(|target| (client, target)).collect());
    let many = proptest::collection::vec((0..clients, member), 2..4);
    prop_oneof![3 => one, 2 => many]
        .prop_map(Target::Multi)
        .boxed()
}

pub(crate) fn permits() -> BoxedStrategy<Target> {
    prop_oneof![3 => Just(1_u32), 2 => 2..4_u32, 2 => 4..9_u32, 1 => Just(10_u32)]
        .prop_map(|n| Target::Permits("s", n))
        .boxed()
}

pub(crate) fn leased() -> BoxedStrategy<Target> {
    prop_oneof![4 => Just(1_u32), 2 => 2..4_u32, 1 => 4..9_u32]
        .prop_map(|n| Target::Leased("p", n))
        .boxed()
}

pub(crate) fn call_options(owners: u32) -> BoxedStrategy<CallOptions> {
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
            |(owner, lease, manual, max_hold, timeout, refuses, tries)| CallOptions {
                owner,
                lease,
                manual,
                max_hold,
                timeout,
                refuses_reentry: refuses && owner.is_some(),
                tries,
                ..CallOptions::default()
            },
        )
        .boxed()
}

pub(crate) fn polled(parked: u32) -> BoxedStrategy<Polled> {
    prop_oneof![
        17 - parked => Just(Polled::Always),
        2 * parked => Just(Polled::Once),
        2 => (0..7_u8).prop_map(Polled::Times),
        1 => (1..3_000_u16).prop_map(Polled::For)
    ]
    .boxed()
}

pub(crate) fn verbs(parked: u32) -> BoxedStrategy<Verb> {
    prop_oneof![
        5 => Just(Verb::Release),
        1 => Just(Verb::ReleaseOnce),
        4 => Just(Verb::Discard),
        2 => Just(Verb::Renew),
        4 => (0..SLOTS).prop_map(Verb::Reenter),
        2 => Just(Verb::Watch),
        3 => (100..20_000_u16).prop_map(Verb::Run),
        2 => (0..SLOTS).prop_map(Verb::Downgrade),
        1 => (1..3_000_u16).prop_map(Verb::HandOver),
        1 => Just(Verb::Forget),
        3 * parked => Just(Verb::PollAgain),
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

pub(crate) fn fault() -> BoxedStrategy<Fault> {
    prop_oneof![
        4 => Just(Fault::Frozen),
        5 => Just(Fault::Thawed),
        2 => Just(Fault::Cut),
        2 => Just(Fault::CutSubscribers),
        1 => Just(Fault::Refused),
        2 => Just(Fault::Accepted),
        3 => (1..4_u8).prop_map(Fault::RepliesLost),
        2 => (1..3_u8).prop_map(Fault::RepliesSilent),
        2 => (1..4_u8).prop_map(Fault::MessagesLost),
        4 => (1..3_u8).prop_map(Fault::Delayed),
        4 => Just(Fault::Delivered),
        1 => (1..3_u8).prop_map(Fault::Loading),
        1 => prop_oneof![-20_000..-1_i32, 1..20_000_i32].prop_map(Fault::Stepped),
        1 => Just(Fault::Restarted),
        1 => Just(Fault::RestartedEmpty),
        1 => Just(Fault::Flushed),
        1 => Just(Fault::Full),
        2 => Just(Fault::MemoryFreed),
        1 => Just(Fault::ScriptsForgotten),
        6 => Just(Fault::Cleared)
    ]
    .boxed()
}

/// Faults after which requests are sent again.
pub(crate) fn resends() -> BoxedStrategy<Fault> {
    prop_oneof![
        6 => (1..3_u8).prop_map(Fault::Delayed),
        6 => Just(Fault::Delivered),
        3 => (1..4_u8).prop_map(Fault::RepliesSilent),
        3 => (1..4_u8).prop_map(Fault::RepliesLost),
        1 => Just(Fault::Cleared)
    ]
    .boxed()
}

pub(crate) fn manages(kind: Kind, target: BoxedStrategy<Target>) -> BoxedStrategy<Manage> {
    let locks = prop_oneof![
        2 => target.clone().prop_map(Manage::ForceRelease),
        1 => target.prop_map(Manage::Query)
    ]
    .boxed();
    let plain = |n: Name| {
        prop_oneof![
            3 => (1..11_u32).prop_map(move |k| Manage::Init(n, k)),
            3 => Just(Manage::Init(n, 10)),
            2 => (1..4_u32).prop_map(move |k| Manage::Add(n, k)),
            1 => (1..3_u32).prop_map(move |k| Manage::Reduce(n, k)),
            1 => Just(Manage::Drain(n)),
            2 => Just(Manage::Reclaim(n)),
            1 => Just(Manage::DeletePermits(n)),
            1 => Just(Manage::Query(Target::Permits(n, 1)))
        ]
        .boxed()
    };
    let leased = |n: Name| {
        prop_oneof![
            6 => (1..9_u32).prop_map(move |k| Manage::InitLeased(n, k)),
            1 => (1..4_u32).prop_map(move |k| Manage::AddLeased(n, k)),
            2 => (1..9_u32).prop_map(move |k| Manage::SetTotal(n, k)),
            1 => Just(Manage::DrainLeased(n)),
            1 => Just(Manage::ReclaimLeased(n)),
            1 => Just(Manage::Query(Target::Leased(n, 1)))
        ]
        .boxed()
    };
    let latch = |n: Name| {
        prop_oneof![
            5 => (1..5_u64).prop_map(move |k| Manage::Arm(n, k)),
            8 => (1..3_u64).prop_map(move |k| Manage::CountDown(n, k)),
            1 => Just(Manage::DeleteLatch(n)),
            1 => Just(Manage::Query(Target::Latch(n)))
        ]
        .boxed()
    };
    match kind {
        Kind::Locks | Kind::Roles | Kind::Deadlocks => locks,
        Kind::Limiters => quotas(),
        Kind::Permits => plain("s"),
        Kind::Leased => leased("p"),
        Kind::Latches => prop_oneof![3 => latch("l"), 1 => latch("m")].boxed(),
        Kind::Barriers => prop_oneof![4 => barriers(), 1 => locks].boxed(),
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
    let permits = |n: Name| {
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
        Kind::Locks | Kind::Roles | Kind::Deadlocks | Kind::Limiters | Kind::Barriers => locks,
        Kind::Idle => latch,
        Kind::Permits => permits("s"),
        Kind::Leased => permits("p"),
        Kind::Latches => latch,
        Kind::All => prop_oneof![2 => locks, 2 => permits("s"), 1 => latch].boxed(),
    }
}

/// Campaigns. Their names share channels with each other and with locks.
pub(crate) fn campaigns() -> BoxedStrategy<Target> {
    select("leader x 0, leader x 0, leader x 5, leader {x} 0, lock x, wait_free x")
}

pub(crate) fn jobs() -> BoxedStrategy<Target> {
    let tick = prop_oneof![1 => Just(None), 6 => (0..6_u8).prop_map(Some)];
    let least = prop_oneof![3 => Just(0_u16), 1 => 100..5_000_u16];
    let job = (
        proptest::sample::select(vec!["x", "x", "x", "{x}"]),
        tick,
        least,
    );
    prop_oneof![
        6 => job.prop_map(|(name, tick, least)| Target::Job(name, tick, least)),
        1 => select("lock x, wait_free x")
    ]
    .boxed()
}

/// Limiters. Their names share channels with each other and with locks.
pub(crate) fn limiters() -> BoxedStrategy<Target> {
    let permits = || prop_oneof![3 => Just(1_u32), 2 => 2..5_u32];
    prop_oneof![
        4 => permits().prop_map(|n| Target::Rate("a", n)),
        2 => permits().prop_map(|n| Target::Rate("{t}a", n)),
        2 => permits().prop_map(|n| Target::Bucket("a", n)),
        1 => permits().prop_map(|n| Target::Bucket("x", n)),
        1 => permits().prop_map(|n| Target::Bucket("{x}", n)),
        1 => Just(Target::Lock("x"))
    ]
    .boxed()
}

/// Locks that are detached and adopted, and waits until these locks are free.
pub(crate) fn ticket_targets() -> BoxedStrategy<Target> {
    select("lock x, lock x, lock x, lock {x}, fair f, fair f, wait_free x, wait_free f")
}

/// Options of acquires, half of them with a rest after a crash.
pub(crate) fn options_with_rest(owners: u32) -> BoxedStrategy<CallOptions> {
    let rest = prop_oneof![1 => Just(None), 1 => (500..8_000_u16).prop_map(Some)];
    (call_options(owners), rest)
        .prop_map(|(opts, rest)| CallOptions { rest, ..opts })
        .boxed()
}

/// Options of arrivals, half of them with a lease that a partition outlasts.
pub(crate) fn options_at_barrier() -> BoxedStrategy<CallOptions> {
    (call_options(0), any::<bool>())
        .prop_map(|(opts, short)| CallOptions {
            lease: if short { Some(600) } else { opts.lease },
            ..opts
        })
        .boxed()
}

/// Options of waits without a timeout by shared owners. Most of these waits fail in a deadlock.
pub(crate) fn deadlock_options() -> BoxedStrategy<CallOptions> {
    let owner = prop_oneof![6 => 0..2_u8, 1 => Just(2)];
    (owner, prop_oneof![5 => Just(true), 1 => Just(false)])
        .prop_map(|(owner, fails)| CallOptions {
            owner: Some(owner),
            fails,
            ..CallOptions::default()
        })
        .boxed()
}

/// Verbs for guards of elections, jobs, limiters and tickets.
pub(crate) fn role_verbs(parked: u32) -> BoxedStrategy<Verb> {
    let number = || 0..2_u8;
    let lease = prop_oneof![1 => Just(None), 1 => (600..9_000_u16).prop_map(Some)];
    prop_oneof![
        2 => verbs(parked),
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
        2 => name().prop_map(|name| Manage::Query(Target::Rate(name, 1)))
    ]
    .boxed()
}

/// Barriers of both kinds, under names that they share with each other and with locks.
pub(crate) fn barrier_targets() -> BoxedStrategy<Target> {
    let various = (1..4_u32, any::<bool>()).prop_map(|(n, breaks)| Target::Barrier("y", n, breaks));
    prop_oneof![
        5 => Just(Target::Barrier("x", 2, false)),
        2 => any::<bool>().prop_map(|breaks| Target::Barrier("{x}", 3, breaks)),
        4 => Just(Target::Barrier("y", 2, true)),
        1 => various,
        5 => Just(Target::DoubleBarrier("x", 2)),
        2 => Just(Target::DoubleBarrier("{x}", 3)),
        1 => Just(Target::Lock("x"))
    ]
    .boxed()
}

fn barriers() -> BoxedStrategy<Manage> {
    let name = || proptest::sample::select(vec!["x", "{x}", "y"]);
    prop_oneof![
        2 => name().prop_map(Manage::BreakAll),
        2 => (name(), 1..4_u32).prop_map(|(name, n)| Manage::SetParties(name, n)),
        1 => name().prop_map(|name| Manage::Query(Target::Barrier(name, 1, false))),
        1 => Just(Manage::Query(Target::DoubleBarrier("x", 1)))
    ]
    .boxed()
}

/// Management calls for latches with an idle expiry.
fn idle() -> BoxedStrategy<Manage> {
    let name = || proptest::sample::select(vec!["l", "l", "m"]);
    let count = || 1..3_u64;
    prop_oneof![
        6 => (name(), count(), 1_000..20_000_u16).prop_map(|(n, k, millis)| Manage::ArmFor(n, k, millis)),
        1 => (name(), count()).prop_map(|(n, k)| Manage::Arm(n, k)),
        2 => (name(), count()).prop_map(|(n, k)| Manage::CountDown(n, k)),
        1 => name().prop_map(Manage::DeleteLatch),
        2 => name().prop_map(|n| Manage::Query(Target::Latch(n)))
    ]
    .boxed()
}

/// Draws how a call at a barrier is polled: mostly to its end, because a round needs all its parties.
pub(crate) fn polled_at_barrier(parked: u32) -> BoxedStrategy<Polled> {
    prop_oneof![
        30 => Just(Polled::Always),
        2 * parked => Just(Polled::Once),
        2 => (0..7_u8).prop_map(Polled::Times),
        2 => (1..3_000_u16).prop_map(Polled::For)
    ]
    .boxed()
}
