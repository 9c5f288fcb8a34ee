//! A program: a world and a list of steps. Programs are data, and their `Debug` output is Rust code that builds them again.

use std::fmt;

use crate::generator::fault::Fault;

/// The input of a run, which determines all its events.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Program {
    pub(crate) world: World,
    pub(crate) steps: Vec<Step>,
}

/// The servers and clients of a program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct World {
    pub(crate) servers: u8,
    /// The delay of every reply and message, in milliseconds.
    pub(crate) latency: u8,
    /// The clients that exist at the start.
    pub(crate) clients: Vec<ClientSpec>,
}

/// The server and database of a client, and the way in which it learns of releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientSpec {
    pub(crate) server: u8,
    pub(crate) database: u8,
    pub(crate) wake_mode: WakeMode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeMode {
    Messages,
    Polls,
}

pub(crate) type Name = &'static str;

/// The target of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Target {
    Lock(Name),
    /// A lock without fencing tokens.
    Unfenced(Name),
    /// A lock with fencing tokens per name.
    NameFenced(Name),
    Fair(Name),
    Read(Name),
    Write(Name),
    /// The two sides of a read-write lock that prefers writers.
    WriterFirstRead(Name),
    WriterFirstWrite(Name),
    Permits(Name, u32),
    Leased(Name, u32),
    Latch(Name),
    /// Several locks at once, each through a client.
    Multi(Vec<(u8, Self)>),
    /// A RedLock on all servers of the world.
    Red(Name),
    /// A campaign with a priority.
    Leader(Name, i8),
    /// A run of a job: its tick, if it has one, and its least time in milliseconds.
    Job(Name, Option<u8>, u16),
    /// Permits of a rate limiter, and of a token bucket.
    Rate(Name, u32),
    Bucket(Name, u32),
    /// A wait until a lock is free, which does not acquire the lock.
    WaitFree(Name),
    /// A wait at a cyclic barrier of so many parties. If true, a party that leaves breaks the round.
    Barrier(Name, u32, bool),
    /// A place inside a double barrier of so many parties.
    DoubleBarrier(Name, u32),
}

/// The options of an acquire. Times are in milliseconds.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CallOptions {
    /// The number of an owner that several calls share.
    pub(crate) owner: Option<u8>,
    pub(crate) lease: Option<u16>,
    pub(crate) manual: bool,
    pub(crate) max_hold: Option<u16>,
    pub(crate) timeout: Option<u16>,
    /// The rest after a crash: the name stays taken for so long if the process dies.
    pub(crate) rest: Option<u16>,
    pub(crate) refuses_reentry: bool,
    /// Uses the try form of the call.
    pub(crate) tries: bool,
    /// Fails in a deadlock.
    pub(crate) fails: bool,
}

impl fmt::Debug for CallOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("opts()")?;
        let values = [
            ("owner", self.owner.map(u16::from)),
            ("lease", self.lease),
            ("max_hold", self.max_hold),
            ("timeout", self.timeout),
            ("rest", self.rest),
        ];
        for (name, value) in values {
            value.map_or(Ok(()), |value| write!(f, ".{name}({value})"))?;
        }
        let flags = [
            ("manual", self.manual),
            ("refuses_reentry", self.refuses_reentry),
            ("tries", self.tries),
            ("fails", self.fails),
        ];
        let set = flags.into_iter().filter(|(_, is_set)| *is_set);
        set.into_iter()
            .try_for_each(|(name, _)| write!(f, ".{name}()"))
    }
}

/// Returns the default options. Pasted programs call this function.
pub(crate) fn opts() -> CallOptions {
    CallOptions::default()
}

macro_rules! option_setters {
    ($($name:ident: $type:ty),*; $($flag:ident),*) => {
        #[expect(dead_code, reason = "for programs that are pasted")]
        impl CallOptions {
            $(pub(crate) fn $name(mut self, value: $type) -> Self { self.$name = Some(value); self })*
            $(pub(crate) fn $flag(mut self) -> Self { self.$flag = true; self })*
        }
    };
}
option_setters!(owner: u8, lease: u16, max_hold: u16, timeout: u16, rest: u16; manual, refuses_reentry, tries, fails);

/// Determines how the future of a call is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Polled {
    /// By its own task, to the end.
    Always,
    /// Once. Then the future is kept and not polled, as in a `select!` whose other arm is busy.
    Once,
    /// So many times, each after a wake. Then the future is dropped.
    Times(u8),
    /// For so many milliseconds. Then the future is dropped.
    For(u16),
}

/// An action on the content of a slot: a guard or a kept future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Release,
    /// `release()` is polled once and then kept.
    ReleaseOnce,
    Discard,
    Renew,
    Reenter(u8),
    /// A task waits for `lost()`.
    Watch,
    /// A task runs work under the guard for so many milliseconds.
    Run(u16),
    Downgrade(u8),
    /// Another task gets the guard, and drops it after so many milliseconds.
    HandOver(u16),
    Forget,
    /// A kept future is polled once more.
    PollAgain,
    /// A task polls the kept future to its end.
    Resume,
    /// Renews the hold once, for so many milliseconds.
    RenewFor(u16),
    /// Detaches the hold, with a lease of so many milliseconds if given, and keeps its ticket under this number.
    Detach(u8, Option<u16>),
    /// A leader publishes a new value.
    Proclaim,
    /// A leader hands over to the last of the candidates.
    Resign,
}

/// A management call, which needs no hold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Manage {
    Init(Name, u32),
    Add(Name, u32),
    Reduce(Name, u32),
    Drain(Name),
    /// Takes back the permits of the first holder.
    Reclaim(Name),
    DeletePermits(Name),
    InitLeased(Name, u32),
    SetTotal(Name, u32),
    AddLeased(Name, u32),
    DrainLeased(Name),
    ReclaimLeased(Name),
    Arm(Name, u64),
    CountDown(Name, u64),
    DeleteLatch(Name),
    /// Arms a latch with this count and an idle expiry in milliseconds.
    ArmFor(Name, u64, u16),
    /// Sets the number of parties of a cyclic barrier. `BreakAll` ends its round by force.
    SetParties(Name, u32),
    BreakAll(Name),
    ForceRelease(Target),
    Query(Target),
    /// The permits, the interval in milliseconds, and whether the usage is reset.
    SetQuota(Name, u32, u16, bool),
    DeleteLimiter(Name),
}

/// An action of Redisson on the same keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Java {
    /// `RObject.delete`.
    Delete(Name),
    /// `RSemaphore.trySetPermits`, and `RPermitExpirableSemaphore`'s.
    SetPermits(Name, u32),
    /// `tryAcquire` and `release` of one permit.
    TakePermit(Name),
    GivePermit(Name),
    /// `RLock.tryLock` with a lease.
    LockFor(Name, u16),
    Unlock(Name),
    SetCount(Name, u32),
    CountDownTo0(Name),
}

/// One step. A millisecond passes between two steps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// So many milliseconds pass.
    Pass(u16),
    /// A call begins for a slot. The old content of the slot is dropped.
    Take {
        slot: u8,
        client: u8,
        target: Target,
        opts: CallOptions,
        polled: Polled,
    },
    Use(u8, Verb),
    Manage(u8, Manage),
    /// A task that acquires, holds, releases and pauses in a loop.
    Worker {
        client: u8,
        target: Target,
        opts: CallOptions,
        rounds: u16,
        hold: u8,
        pause: u8,
    },
    Connect(ClientSpec),
    Shutdown(u8, u16),
    /// The last handle of a client is dropped. Guards may stay.
    DropClient(u8),
    /// The process of a client is killed.
    Kill(u8),
    /// Several processes start, acquire the same target, and are killed together after `live` milliseconds.
    KillGroup {
        client: u8,
        processes: u8,
        target: Target,
        live: u16,
    },
    Fault(u8, Fault),
    /// The network of one client is a black hole until [`Step::Thaw`].
    Freeze(u8),
    Thaw(u8),
    /// The network of one client is a black hole for so many milliseconds.
    Partition(u8, u16),
    /// All processes and servers are suspended: their clocks jump, their timers do not.
    Suspend(u16),
    /// No task runs for so many milliseconds.
    Stall(u16),
    Java(u8, Java),
    /// The ticket with this number is adopted.
    Adopt {
        slot: u8,
        client: u8,
        ticket: u8,
        opts: CallOptions,
        polled: Polled,
    },
    /// A job works for so many milliseconds, or a leader whenever it is elected.
    Work {
        slot: u8,
        client: u8,
        target: Target,
        work: u16,
        polled: Polled,
    },
    /// A task observes the leader until the end of the program.
    Observe(u8, Name),
}
