//! A program: a world, and what happens in it step by step. Programs are data; their `Debug` output is Rust that makes
//! them again.

use std::fmt;

use crate::weather::Weather;

/// The program that a run executes: nothing else decides what happens.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Program {
    pub(crate) world: World,
    pub(crate) steps: Vec<Step>,
}

/// The place in which a program runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct World {
    pub(crate) servers: u8,
    /// Every reply and message takes so many milliseconds.
    pub(crate) latency: u8,
    /// Those that are there at the start.
    pub(crate) clients: Vec<Seat>,
}

/// The server of a client, and its way to learn of releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) server: u8,
    pub(crate) database: u8,
    pub(crate) hears: Hears,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hears {
    Messages,
    Polls,
}

pub(crate) type Named = &'static str;

/// The object of a call.
#[derive(Clone, PartialEq)]
pub(crate) enum What {
    Lock(Named),
    /// A lock that mints no tokens.
    Bare(Named),
    /// A lock with tokens of its own name.
    Own(Named),
    Fair(Named),
    Read(Named),
    Write(Named),
    /// The sides of a read-write lock that prefers writers.
    PoliteRead(Named),
    PoliteWrite(Named),
    Permits(Named, u32),
    Leased(Named, u32),
    Latch(Named),
    /// All of them, each through a client.
    Multi(Vec<(u8, Self)>),
    /// On every server of the world.
    Red(Named),
    /// A campaign with a priority.
    Leader(Named, i8),
    /// A run of a job: of a tick, if there is one, and with a least time in milliseconds.
    Job(Named, Option<u8>, u16),
    /// Permits of a rate limiter, and of a token bucket.
    Rate(Named, u32),
    Bucket(Named, u32),
    /// A lock that somebody waits for without taking it.
    Free(Named),
    /// A wait at a cyclic barrier of so many; true: who leaves breaks the round.
    Meet(Named, u32, bool),
    /// A place inside a double barrier of so many.
    Inside(Named, u32),
}

impl fmt::Debug for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(n) => write!(f, "Lock({n:?})"),
            Self::Bare(n) => write!(f, "Bare({n:?})"),
            Self::Own(n) => write!(f, "Own({n:?})"),
            Self::Fair(n) => write!(f, "Fair({n:?})"),
            Self::Read(n) => write!(f, "Read({n:?})"),
            Self::Write(n) => write!(f, "Write({n:?})"),
            Self::PoliteRead(n) => write!(f, "PoliteRead({n:?})"),
            Self::PoliteWrite(n) => write!(f, "PoliteWrite({n:?})"),
            Self::Permits(n, k) => write!(f, "Permits({n:?}, {k})"),
            Self::Leased(n, k) => write!(f, "Leased({n:?}, {k})"),
            Self::Latch(n) => write!(f, "Latch({n:?})"),
            Self::Multi(members) => write!(f, "Multi(vec!{members:?})"),
            Self::Red(n) => write!(f, "Red({n:?})"),
            Self::Leader(n, priority) => write!(f, "Leader({n:?}, {priority})"),
            Self::Job(n, tick, least) => write!(f, "Job({n:?}, {tick:?}, {least})"),
            Self::Rate(n, k) => write!(f, "Rate({n:?}, {k})"),
            Self::Bucket(n, k) => write!(f, "Bucket({n:?}, {k})"),
            Self::Free(n) => write!(f, "Free({n:?})"),
            Self::Meet(n, k, breaks) => write!(f, "Meet({n:?}, {k}, {breaks})"),
            Self::Inside(n, k) => write!(f, "Inside({n:?}, {k})"),
        }
    }
}

/// The options of an acquire. Times are milliseconds.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ask {
    /// One of the owners that the program shares among its calls.
    pub(crate) owner: Option<u8>,
    pub(crate) lease: Option<u16>,
    pub(crate) manual: bool,
    pub(crate) max_hold: Option<u16>,
    pub(crate) timeout: Option<u16>,
    /// The name stays taken for so long if the process dies.
    pub(crate) rest: Option<u16>,
    pub(crate) refuses_reentry: bool,
    /// By a try verb.
    pub(crate) tries: bool,
    /// Gives up in a deadlock.
    pub(crate) fails: bool,
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ask()")?;
        if let Some(owner) = self.owner {
            write!(f, ".owner({owner})")?;
        }
        if let Some(lease) = self.lease {
            write!(f, ".lease({lease})")?;
        }
        if self.manual {
            f.write_str(".manual()")?;
        }
        if let Some(max) = self.max_hold {
            write!(f, ".max_hold({max})")?;
        }
        if let Some(timeout) = self.timeout {
            write!(f, ".timeout({timeout})")?;
        }
        if let Some(rest) = self.rest {
            write!(f, ".rest({rest})")?;
        }
        if self.refuses_reentry {
            f.write_str(".refuses_reentry()")?;
        }
        if self.tries {
            f.write_str(".tries()")?;
        }
        if self.fails {
            f.write_str(".fails()")?;
        }
        Ok(())
    }
}

/// Returns the default options. Programs that were pasted call it.
pub(crate) fn ask() -> Ask {
    Ask::default()
}

macro_rules! asks {
    ($($name:ident: $type:ty),*; $($flag:ident),*) => {
        #[expect(dead_code, reason = "for programs that are pasted")]
        impl Ask {
            $(pub(crate) fn $name(mut self, value: $type) -> Self { self.$name = Some(value); self })*
            $(pub(crate) fn $flag(mut self) -> Self { self.$flag = true; self })*
        }
    };
}
asks!(owner: u8, lease: u16, max_hold: u16, timeout: u16, rest: u16; manual, refuses_reentry, tries, fails);

/// The task that polls a call's future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Polled {
    /// A task of its own.
    Always,
    /// Once; then it is left alone, as by a `select!` whose other arm is busy.
    Once,
    /// By its own wakes so often, then it is dropped.
    Times(u8),
    /// For so many milliseconds, then it is dropped.
    For(u16),
}

/// An action on what a hand has: a guard, or a future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Release,
    /// `release()` is polled once and left alone.
    ReleaseOnce,
    Let,
    Renew,
    Reenter(u8),
    /// A task waits for `lost()`.
    Watch,
    /// A task runs work under it, for so long.
    Run(u16),
    Downgrade(u8),
    /// Another task gets it, and drops it after so long.
    HandOver(u16),
    Forget,
    /// A future that was left alone is polled once more.
    PollAgain,
    /// And by a task from now on.
    Resume,
    /// Renewed once, for so long.
    RenewFor(u16),
    /// Its ticket is kept under that number, renewed for so long if it says so.
    Detach(u8, Option<u16>),
    /// A leader has another value.
    Proclaim,
    /// A leader steps down for the first of the candidates.
    Resign,
}

/// A call of the owner of a name, without holding.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Manage {
    Init(Named, u32),
    Add(Named, u32),
    Reduce(Named, u32),
    Drain(Named),
    /// Gives back what the first of the holders holds.
    Reclaim(Named),
    DeletePermits(Named),
    InitLeased(Named, u32),
    SetTotal(Named, u32),
    AddLeased(Named, u32),
    DrainLeased(Named),
    ReclaimLeased(Named),
    Arm(Named, u64),
    CountDown(Named, u64),
    DeleteLatch(Named),
    /// Armed with that count, to end without use for so many milliseconds.
    ArmFor(Named, u64, u16),
    /// The number of parties of a cyclic barrier, and the end of its round by force.
    SetParties(Named, u32),
    BreakAll(Named),
    ForceRelease(What),
    Look(What),
    /// The permits, the milliseconds, and whether what is taken is forgotten.
    SetQuota(Named, u32, u16, bool),
    DeleteLimiter(Named),
}

/// An action of another program on the same keys, as Redisson does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Java {
    /// `RObject.delete`.
    Delete(Named),
    /// `RSemaphore.trySetPermits`, and `RPermitExpirableSemaphore`'s.
    SetPermits(Named, u32),
    /// `tryAcquire` and `release` of one permit.
    TakePermit(Named),
    GivePermit(Named),
    /// `RLock.tryLock` with a lease.
    LockFor(Named, u16),
    Unlock(Named),
    SetCount(Named, u32),
    CountDownTo0(Named),
}

/// One thing that happens. A millisecond passes between two of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Time passes.
    Pass(u16),
    /// A call begins, for a hand; what the hand had before is dropped.
    Take {
        hand: u8,
        client: u8,
        what: What,
        ask: Ask,
        polled: Polled,
    },
    Use(u8, Verb),
    Manage(u8, Manage),
    /// A task that takes, holds, lets go and pauses, again and again.
    Worker {
        client: u8,
        what: What,
        ask: Ask,
        rounds: u16,
        hold: u8,
        pause: u8,
    },
    Connect(Seat),
    Shutdown(u8, u16),
    /// The last handle of a client goes, guards may stay.
    LetClient(u8),
    /// The process of a client dies.
    Kill(u8),
    /// Several processes come, all take the same, and die together after that time.
    Doomed {
        client: u8,
        processes: u8,
        what: What,
        live: u16,
    },
    Weather(u8, Weather),
    /// The network of one client is a black hole until [`Step::Thaw`].
    Freeze(u8),
    Thaw(u8),
    /// The machines with all processes and servers are suspended: their clocks jump, timers do not.
    Suspend(u16),
    /// Nobody runs for so long.
    Stall(u16),
    Java(u8, Java),
    /// The ticket of that number is adopted.
    Adopt {
        hand: u8,
        client: u8,
        ticket: u8,
        ask: Ask,
        polled: Polled,
    },
    /// A job runs its work, or a leader whenever it is elected, for so long.
    Work {
        hand: u8,
        client: u8,
        what: What,
        work: u16,
        polled: Polled,
    },
    /// Somebody looks who leads, to the end.
    Observe(u8, Named),
}
