//! Random load with faults on the fair lock. A referee reads the queue on the server and checks the order of grants.

use super::*;

/// Checks P7 from outside: a granted waiter joined the queue before all that are still queued.
#[derive(Default)]
struct Referee {
    arrivals: Mutex<HashMap<String, usize>>,
}

impl Referee {
    fn record(&self, world: &World) {
        let mut arrivals = self.arrivals.lock().unwrap();
        for waiter in entries(world) {
            let next = arrivals.len();
            arrivals.entry(waiter).or_insert(next);
        }
    }

    fn judge(&self, world: &World, granted: &str) {
        self.record(world);
        let arrivals = self.arrivals.lock().unwrap();
        // Some waiters are granted the lock before the referee has seen them in the queue.
        let Some(mine) = arrivals.get(granted) else {
            return;
        };
        for waiter in entries(world) {
            assert!(arrivals[&waiter] > *mine, "{granted} overtook {waiter}");
        }
    }
}

async fn storm(seed: u64) {
    const TASKS: u64 = 40;
    const ROUNDS: u64 = 12;
    let world = Arc::new(World::engine());
    let faults = world.as_engine().faults();
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut clients = Vec::new();
    for i in 0..4 {
        let name = format!("client{i}");
        clients.push(client(&world, &name).await);
        faults.delay(Some(&name), ms(rng.u64(0..4)));
    }
    let referee = Arc::new(Referee::default());
    let observer = tokio::spawn({
        let (world, referee) = (Arc::clone(&world), Arc::clone(&referee));
        async move {
            loop {
                referee.record(&world);
                sleep(ms(5)).await;
            }
        }
    });
    let granted = Arc::new(Mutex::new(BTreeMap::<u64, u64>::new()));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (world, referee, granted) = (
                Arc::clone(&world),
                Arc::clone(&referee),
                Arc::clone(&granted),
            );
            let lock = fair(&clients[usize::try_from(task % 4).unwrap()]);
            let mut rng = rng.fork();
            tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    sleep(Duration::from_micros(rng.u64(0..40_000))).await;
                    let patience = if rng.u8(0..4) == 0 {
                        Duration::from_micros(rng.u64(0..200_000))
                    } else {
                        Duration::from_secs(300)
                    };
                    // Some are dropped, some time out.
                    let guard = if rng.bool() {
                        tokio::time::timeout(patience, lock.acquire())
                            .await
                            .ok()
                            .map(Result::unwrap)
                    } else {
                        lock.acquire_timeout(patience).await.ok()
                    };
                    let Some(guard) = guard else { continue };
                    referee.judge(&world, guard.owner().to_string().as_str());
                    let token = guard.fencing_token().unwrap().get();
                    let earlier = granted.lock().unwrap().insert(token, task);
                    assert_eq!(earlier, None, "P2");
                    assert_eq!(
                        granted.lock().unwrap().keys().next_back(),
                        Some(&token),
                        "P2"
                    );
                    sleep(Duration::from_micros(rng.u64(0..3_000))).await;
                    assert!(guard.is_held());
                    if rng.bool() {
                        guard.release().await.unwrap();
                    }
                }
            })
        })
        .collect();
    let mut noise = rng.fork();
    let trouble = tokio::spawn({
        let faults = world.as_engine().faults();
        async move {
            loop {
                sleep(ms(noise.u64(20..400))).await;
                match noise.u8(0..4) {
                    0 => faults.lose_messages(1),
                    1 => faults.lose_replies("EVALSHA", 1),
                    2 => faults.kill_subscribers(),
                    _ => faults.kill_label(&format!("client{}", noise.u8(0..4))),
                }
            }
        }
    });
    for task in tasks {
        task.await.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
    trouble.abort();
    observer.abort();
    faults.clear();
    world.at_rest().await;
    assert_eq!(clients.iter().map(Client::waiters).sum::<usize>(), 0);
    assert!(granted.lock().unwrap().len() > 200, "seed {seed}");
}

#[tokio::test(start_paused = true)]
async fn random_load_with_faults_keeps_the_order() {
    for seed in 0..4 {
        storm(seed).await;
    }
}
