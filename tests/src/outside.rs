//! Processes of Redisson's in virtual time, at a distance from the server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::{World, ms};

/// The synchronizer that a process of Redisson's uses, with the name `job`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// An `RLock`.
    Lock,
    /// The write side of an `RReadWriteLock`.
    Writers,
    /// An `RSemaphore`.
    Permits,
    /// An `RPermitExpirableSemaphore`.
    Leased,
}

/// The grants of a process.
#[derive(Debug, Default)]
pub struct Grants {
    count: AtomicU64,
    longest_micros: AtomicU64,
}

impl Grants {
    /// Records a grant after a wait since `began`.
    pub fn add(&self, began: Instant) {
        let waited = u64::try_from(began.elapsed().as_micros()).unwrap();
        self.count.fetch_add(1, Ordering::Relaxed);
        self.longest_micros.fetch_max(waited, Ordering::Relaxed);
    }

    /// Returns the number of grants and the longest wait since the last call.
    pub fn take(&self) -> (u64, Duration) {
        let longest = self.longest_micros.swap(0, Ordering::Relaxed);
        let count = self.count.swap(0, Ordering::Relaxed);
        (count, Duration::from_micros(longest))
    }
}

const LOCK: [&str; 2] = [
    "if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end redis.call('HSET', KEYS[1], ARGV[1], '1')
     return redis.call('PEXPIRE', KEYS[1], 30000)",
    "redis.call('DEL', KEYS[1]) return redis.call('PUBLISH', ARGV[2], '0')",
];
const WRITERS: [&str; 2] = [
    "if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
     redis.call('HSET', KEYS[1], 'mode', 'write', ARGV[1] .. ':write', '1') return redis.call('PEXPIRE', KEYS[1], 30000)",
    "redis.call('DEL', KEYS[1]) return redis.call('PUBLISH', ARGV[2], '1')",
];
const PERMITS: [&str; 2] = [
    "if (redis.call('GET', KEYS[1]) or 0) + 0 < 1 then return 0 end redis.call('DECRBY', KEYS[1], 1) return 1",
    "local free = redis.call('INCRBY', KEYS[1], 1) return redis.call('PUBLISH', ARGV[2], free)",
];
const LEASED: [&str; 2] = [
    "if (redis.call('GET', KEYS[1]) or 0) + 0 < 1 then return 0 end redis.call('DECRBY', KEYS[1], 1)
     redis.call('ZADD', KEYS[1] == 'job' and '{job}:timeout', 922337203685477, ARGV[1]) return 1",
    "redis.call('ZREM', '{job}:timeout', ARGV[1])
     local free = redis.call('INCRBY', KEYS[1], 1) return redis.call('PUBLISH', ARGV[2], free)",
];

impl Outside {
    const fn scripts(self) -> [&'static str; 2] {
        match self {
            Self::Lock => LOCK,
            Self::Writers => WRITERS,
            Self::Permits => PERMITS,
            Self::Leased => LEASED,
        }
    }

    const fn channel(self) -> &'static str {
        match self {
            Self::Lock => "redisson_lock__channel:{job}",
            Self::Writers => "redisson_rwlock:{job}",
            Self::Permits | Self::Leased => "redisson_sc:{job}",
        }
    }

    fn run(self, world: &World, script: &str, owner: &str) -> bool {
        world.admin(&["EVAL", script, "1", "job", owner, self.channel()]) == "1"
    }

    /// Acquires, holds for `hold`, releases and pauses for a millisecond in a loop, without an end. Each request, reply and message takes the time
    /// `away`. Like Redisson, the process is subscribed while it waits, and sends a request after each message.
    pub async fn work(
        self,
        world: &World,
        owner: &str,
        away: Duration,
        hold: Duration,
        grants: &Grants,
    ) {
        let [acquire, release] = self.scripts();
        // Distances differ by up to a tenth, so that no process is always the first.
        let mut seed = owner.bytes().fold(1_u32, |seed, byte| {
            seed.wrapping_mul(31).wrapping_add(u32::from(byte))
        });
        let mut away = move || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            away + away / 10 * (seed >> 16) / 0xffff
        };
        loop {
            let began = Instant::now();
            sleep(away()).await;
            let mut granted = self.run(world, acquire, owner);
            sleep(away()).await;
            if !granted {
                sleep(away()).await;
                let mut messages = world.listen(self.channel()).await;
                sleep(away() + away()).await;
                loop {
                    granted = self.run(world, acquire, owner);
                    sleep(away()).await;
                    if granted {
                        break;
                    }
                    messages.next().await;
                    sleep(away() + away()).await;
                }
            }
            grants.add(began);
            sleep(hold + away()).await;
            self.run(world, release, owner);
            sleep(away() + ms(1)).await;
        }
    }
}
