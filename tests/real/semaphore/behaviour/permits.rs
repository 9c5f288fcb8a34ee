//! Tests that are the same for plain and leased semaphores: numbers, errors, and foreign values.

use stanchion::{AcquireError, AcquireOptions, Client, QueryError, Rejection};
use stanchion_tests::idle::{LONG, after};
use stanchion_tests::permits::{Kind, LEASES, NAME, Seat, Seats};
use stanchion_tests::{World, ms};

/// Makes a suite of the tests for each kind.
macro_rules! both_kinds {
    ($($name:ident),+ $(,)?) => {
        both_kinds! { of plain, Plain: $($name),+ }
        both_kinds! { of leased, Leased: $($name),+ }
    };
    (of $module:ident, $kind:ident: $($name:ident),+) => {
        mod $module {
            use super::{Kind, World};

            suite! { $($name),+ }

            $(async fn $name(world: &World) {
                super::$name(world, Kind::$kind).await;
            })+
        }
    };
}

both_kinds! {
    the_number_of_permits_is_set_once,
    a_timeout_says_that_the_semaphore_has_no_permits,
    foreign_leases_are_left_untouched,
    a_release_that_is_refused_loses_no_permit,
    bad_numbers_and_options_are_refused_before_anything_is_sent,
}

async fn semaphore(kind: Kind, client: &Client, permits: u32) -> Seats {
    let semaphore = kind.on(client);
    assert!(semaphore.init(permits).await.unwrap());
    semaphore
}

async fn the_number_of_permits_is_set_once(world: &World, kind: Kind) {
    let semaphore = semaphore(kind, &world.client().await, 2).await;
    assert!(!semaphore.init(7).await.unwrap());
    assert_eq!(semaphore.available().await.unwrap(), 2);
    if let Seats::Leased(leased) = &semaphore {
        assert_eq!(leased.total().await.unwrap(), 2);
    }
    kind.at_rest(world, 2).await;
}

async fn a_timeout_says_that_the_semaphore_has_no_permits(world: &World, kind: Kind) {
    let (ours, other) = (
        kind.on(&world.client().await),
        kind.on(&world.client().await),
    );
    let wait = world.limit(ms(50));
    let text = |error: AcquireError| error.to_string();
    let hint = "the semaphore has no permits: call `init`";
    for _ in 0..2 {
        let missing = text(ours.acquire_timeout(1, wait).await.unwrap_err());
        assert!(missing.contains(hint), "{missing}");
    }
    assert!(other.init(1).await.unwrap());
    let held = other.acquire(1).await.unwrap();
    let taken = text(ours.acquire_timeout(1, wait).await.unwrap_err());
    assert!(!taken.contains("init"), "{taken}");
    drop(held);
    kind.at_rest(world, 1).await;
}

fn refused(make: &[&str], result: Result<(), QueryError>) {
    match result.unwrap_err() {
        QueryError::Rejected {
            rejection: Rejection::WrongType { .. },
        } => {}
        other => panic!("{make:?}: {other}"),
    }
}

/// P8, R7. `client/behaviour/one_name` has foreign values under the name.
async fn foreign_leases_are_left_untouched(world: &World, kind: Kind) {
    let Seats::Leased(leased) = kind.on(&world.client().await) else {
        return;
    };
    let make = ["SET", LEASES, "precious"];
    let _ = world.admin(&make);
    leased.init(1).await.unwrap();
    assert!(leased.acquire().await.is_err());
    refused(&make, leased.status().await.map(drop));
    refused(&make, leased.set_total(3).await.map(drop));
    assert_eq!(world.admin(&["GET", LEASES]), "precious");
}

/// R15.
async fn a_release_that_is_refused_loses_no_permit(world: &World, kind: Kind) {
    let semaphore = semaphore(kind, &world.client().await, 5).await;
    for make in [
        &["HSET", NAME, "field", "precious"][..],
        &["SET", NAME, "precious"],
        &["SET", NAME, "1.5"],
        &["SET", NAME, "0x10"],
        &["SET", NAME, "99999999999999999999"],
    ] {
        let two = semaphore.acquire(2).await.unwrap();
        let (owner, ids) = match &two {
            Seat::Plain(permit) => (permit.owner().to_string(), Vec::new()),
            Seat::Leased(permit) => (String::new(), permit.ids()),
        };
        let reclaimed = async || match &semaphore {
            Seats::Plain(plain) => plain.danger().reclaim(&owner).await,
            Seats::Leased(leased) => {
                let mut sum = 0;
                for id in &ids {
                    sum += u32::from(leased.danger().reclaim(id).await?);
                }
                Ok(sum)
            }
        };
        let _ = world.admin(&["DEL", NAME]);
        let _ = world.admin(make);
        assert!(two.release().await.is_err(), "{make:?}");
        assert!(reclaimed().await.is_err());
        world.quiet().await;
        assert_eq!(kind.held(world), 2, "{make:?}");
        let _ = world.admin(&["DEL", NAME]);
        let _ = world.admin(&["SET", NAME, "3"]);
        assert_eq!(reclaimed().await.unwrap(), 2);
        kind.at_rest(world, 5).await;
    }
}

async fn bad_numbers_and_options_are_refused_before_anything_is_sent(world: &World, kind: Kind) {
    let client = world.client().await;
    let semaphore = kind.on(&client);
    let before = world.scripts_run();
    let most = if kind == Kind::Plain {
        2_147_483_647
    } else {
        1000
    };
    for bad in [0, most + 1, u32::MAX] {
        for refused in [
            semaphore.acquire(bad).await.map(drop),
            semaphore.try_acquire(bad).await.map(drop),
        ] {
            let text = refused.unwrap_err().to_string();
            assert!(text.contains(&format!("{bad} permits")), "{text}");
        }
    }
    for bad in [2_147_483_648, u32::MAX] {
        for refused in [
            semaphore.init(bad).await.map(drop),
            semaphore.add(bad).await.map(drop),
            semaphore.reduce(bad).await.map(drop),
            match &semaphore {
                Seats::Leased(leased) => leased.set_total(bad).await.map(drop),
                Seats::Plain(plain) => plain.add(bad).await.map(drop),
            },
        ] {
            let text = refused.unwrap_err().to_string();
            assert!(text.contains("at most 2147483647"), "{text}");
        }
    }
    if let Seats::Leased(leased) = &semaphore {
        let options = AcquireOptions::new().owner(&client.owner());
        let owned = leased.acquire_with(1, options.clone()).await.unwrap_err();
        let text = owned.to_string();
        assert!(text.contains("owner: permits are not re-entered"), "{text}");
        assert!(leased.try_acquire_with(1, options).await.is_err());
    }
    let many = semaphore.clone().ephemeral(u32::MAX, after(LONG));
    assert!(
        many.add(1)
            .await
            .unwrap_err()
            .to_string()
            .contains("at most")
    );
    assert!(many.acquire(1).await.is_err());
    assert_eq!(world.scripts_run(), before);
    // The server refuses a sum beyond 32 bits, and changes nothing.
    assert!(semaphore.init(2_147_483_647).await.unwrap());
    let text = semaphore.add(1).await.unwrap_err().to_string();
    assert!(text.contains("beyond 32 bits"), "{text}");
    assert_eq!(world.admin(&["GET", NAME]), "2147483647");
}
