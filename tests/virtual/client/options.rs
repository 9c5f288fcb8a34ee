//! Each option with each verb of each kind: it has an effect, or the call is refused before anything is sent.

use std::time::Duration;

use stanchion::election::CampaignOptions;
use stanchion::{
    AcquireError, AcquireOptions, AdoptError, Client, CountDownLatch, Election, FairLock, Job,
    LeasedSemaphore, Lock, MultiLock, OnDeadlock, RedLock, RedLockError, Reentry, Rejection,
    Renewal, RwLock, Semaphore,
};
use stanchion_tests::{World, ms, secs};

/// The verbs that take options, each with a kind.
const VERBS: &str = "lock; lock, try; lock, adopt; fair; fair, try; fair, adopt; read; read, try; write; write, try; multi; multi, try; \
    red; red, try; permits; permits, try; leased; leased, try; latch; campaign; campaign, try";

/// Makes the call with names that are free. Returns the rule that refused it.
async fn refused(
    clients: &[Client],
    verb: &'static str,
    options: AcquireOptions,
) -> Option<String> {
    let client = &clients[0];
    // A name for each verb: the hold of the verb before may still be released in the background.
    let lock = |name: &str| Lock::new(client, format!("{verb}{name}")).unwrap();
    let fair = FairLock::new(client, verb).unwrap();
    let rwlock = RwLock::new(client, verb).unwrap();
    let multi = MultiLock::new([&lock("a"), &lock("b")]).unwrap();
    let red = RedLock::new(clients, verb).unwrap();
    let permits = Semaphore::new(client, "permits").unwrap();
    let leased = LeasedSemaphore::new(client, "leased").unwrap();
    let latch = CountDownLatch::new(client, "latch").unwrap();
    let election = Election::new(client, verb).unwrap();
    let done: Result<(), AcquireError> = match verb {
        "lock" => lock("").acquire_with(options).await.map(drop),
        "lock, try" => lock("").try_acquire_with(options).await.map(drop),
        "lock, adopt" => {
            let ticket = lock("").acquire().await.unwrap().detach().await;
            let adopted = lock("").adopt_with(&ticket.unwrap(), options).await;
            free(&lock("")).await;
            adopted.map(drop).map_err(of_adopt)
        }
        "fair" => fair.acquire_with(options).await.map(drop),
        "fair, try" => fair.try_acquire_with(options).await.map(drop),
        "fair, adopt" => {
            let ticket = fair.acquire().await.unwrap().detach().await.unwrap();
            let adopted = fair.adopt_with(&ticket, options).await;
            fair.danger().force_release().await.unwrap();
            adopted.map(drop).map_err(of_adopt)
        }
        "read" => rwlock.read_with(options).await.map(drop),
        "read, try" => rwlock.try_read_with(options).await.map(drop),
        "write" => rwlock.write_with(options).await.map(drop),
        "write, try" => rwlock.try_write_with(options).await.map(drop),
        "multi" => multi.acquire_with(options).await.map(drop),
        "multi, try" => multi.try_acquire_with(options).await.map(drop),
        "red" => red.acquire_with(options).await.map(drop).map_err(of_red),
        "red, try" => {
            let tried = red.try_acquire_with(options).await;
            tried.map(drop).map_err(of_red)
        }
        "permits" => permits.acquire_with(1, options).await.map(drop),
        "permits, try" => permits.try_acquire_with(1, options).await.map(drop),
        "leased" => leased.acquire_with(1, options).await.map(drop),
        "leased, try" => leased.try_acquire_with(1, options).await.map(drop),
        "latch" => latch.wait_with(options).await,
        "campaign" => {
            let options = CampaignOptions::from(options);
            election.campaign_with("v", options).await.map(drop)
        }
        "campaign, try" => {
            let options = CampaignOptions::from(options);
            election.try_campaign_with("v", options).await.map(drop)
        }
        _ => unreachable!("{verb}"),
    };
    match done {
        Ok(()) => None,
        Err(AcquireError::Rejected {
            rejection: Rejection::InvalidOption { rule },
            ..
        }) => Some(rule),
        // A RedLock whose nodes refuse has their reasons as text.
        Err(AcquireError::Rejected {
            rejection: Rejection::Other { detail },
            ..
        }) => Some(detail),
        Err(error) => panic!("{verb}: {error}"),
    }
}

async fn free(lock: &Lock) {
    lock.danger().force_release().await.unwrap();
}

fn of_adopt(error: AdoptError) -> AcquireError {
    match error {
        AdoptError::Failed(error) => error,
        error => panic!("{error}"),
    }
}

fn of_red(error: RedLockError) -> AcquireError {
    error.into()
}

#[tokio::test(start_paused = true)]
async fn an_option_has_an_effect_or_is_refused() {
    let worlds = [World::engine(), World::engine(), World::engine()];
    let mut clients = Vec::new();
    for world in &worlds {
        clients.push(world.client().await);
    }
    let permits = Semaphore::new(&clients[0], "permits").unwrap();
    permits.init(9).await.unwrap();
    let leased = LeasedSemaphore::new(&clients[0], "leased").unwrap();
    leased.init(9).await.unwrap();
    let owner = clients[0].owner();
    let options = AcquireOptions::new;
    let second = secs(1);
    let tries = "lock, try; lock, adopt; fair, try; fair, adopt; read, try; write, try; multi, try; permits, try; leased, try; \
        campaign, try";
    let no_lease = "permits; permits, try; latch";
    let no_owner = "lock, adopt; fair, adopt; red; red, try; permits; permits, try; leased; leased, try; latch";
    let waits = format!("{tries}; red; red, try");
    let searches = format!("{waits}; permits; leased; latch; campaign");
    let rows: [(&str, AcquireOptions, &str); 13] = [
        ("timeout", options().timeout(second), ""),
        ("owner", options().owner(&owner), no_owner),
        ("reentry", options().reentry(Reentry::Refused), VERBS),
        ("lease", options().lease(second), no_lease),
        ("lease", options().lease(ms(9)), VERBS),
        ("first_lease", options().first_lease(60 * second), no_lease),
        ("first_lease", options().first_lease(Duration::MAX), VERBS),
        ("renewal", options().renewal(Renewal::Manual), no_lease),
        ("max_hold", options().max_hold(second), no_lease),
        ("max_hold", options().max_hold(Duration::ZERO), VERBS),
        (
            "rest_after_crash",
            options().rest_after_crash(second),
            no_lease,
        ),
        ("on_queued", options().on_queued(|| ()), &waits),
        (
            "on_deadlock",
            options().on_deadlock(OnDeadlock::Fail).owner(&owner),
            &searches,
        ),
    ];
    for (option, options, refusing) in rows {
        let refusing: Vec<&str> = refusing.split("; ").collect();
        for verb in VERBS.split("; ") {
            let before = worlds[1].scripts_run();
            let rule = refused(&clients, verb, options.clone()).await;
            let context = format!("{option}, {verb}: {rule:?}");
            assert_eq!(rule.is_some(), refusing.contains(&verb), "{context}");
            if let Some(rule) = rule {
                let by_owner = option == "on_deadlock" && rule.contains("owner");
                assert!(rule.contains(option) || by_owner, "{context}");
                assert_eq!(worlds[1].scripts_run(), before, "{context}");
            }
        }
    }
}

/// Each run of a job is an owner of its own that never waits.
#[tokio::test(start_paused = true)]
async fn a_job_refuses_the_options_of_owners_and_waits() {
    let (world, client) = World::engine().with_client().await;
    let options = AcquireOptions::new;
    for (option, options) in [
        ("owner", options().owner(&client.owner())),
        ("reentry", options().reentry(Reentry::Refused)),
        ("on_queued", options().on_queued(|| ())),
        ("on_deadlock", options().on_deadlock(OnDeadlock::Fail)),
        ("lease", options().lease(Duration::ZERO)),
    ] {
        let job = Job::new(&client, "job").unwrap().options(options);
        let error = job.begin().await.unwrap_err().to_string();
        assert!(error.contains(option), "{option}: {error}");
    }
    assert_eq!(world.scripts_run(), 0);
}
