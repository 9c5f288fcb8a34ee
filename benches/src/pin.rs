//! Keeps the client and its servers on cores of their own for a while.

use std::fmt;
use std::process::{Child, Command, Stdio};

use stanchion_testkit::RedisServer;

/// This process on one core, servers on the others, until it is dropped.
#[derive(Debug)]
pub(crate) struct Pinned {
    client: usize,
    others: Vec<usize>,
    before: sys::Cores,
}

impl Pinned {
    /// Pins this process to the first of its cores, and each of `servers` to one of the others.
    ///
    /// # Errors
    /// Why they were left where they were.
    pub(crate) fn apart(servers: &[RedisServer]) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("cannot pin: {error}");
        let before = sys::cores().map_err(failed)?;
        let mut cores = sys::numbers(&before).into_iter();
        let (Some(client), others) = (cores.next(), cores.collect::<Vec<_>>()) else {
            return Err("no core is known".to_owned());
        };
        if others.is_empty() {
            return Err("there is one core only".to_owned());
        }
        // From here on, whatever fails is undone. The servers end with the figure.
        let pinned = Self {
            client,
            others,
            before,
        };
        sys::pin(std::process::id(), &sys::only(client)).map_err(failed)?;
        for (server, core) in servers.iter().zip(pinned.others.iter().cycle()) {
            sys::pin(server.pid(), &sys::only(*core)).map_err(failed)?;
        }
        Ok(pinned)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Err(error) = sys::pin(std::process::id(), &self.before) {
            println!("this process stays on core {}: {error}", self.client);
        }
    }
}

impl Pinned {
    /// Keeps the cores awake.
    ///
    /// # Errors
    /// Why they may fall asleep.
    pub(crate) fn keep_awake(&self) -> Result<Awake, String> {
        let mut awake = Awake(Vec::new());
        for core in self.others.iter().chain([&self.client]) {
            awake.spin(*core)?;
        }
        Ok(awake)
    }
}

/// Processes that use a core whenever it is idle, until this value is dropped. A sleeping core takes time to wake up: a single
/// request
/// pays for that at each end, several at once pay for it once, and the ratio of the two shows the sleep more than the requests.
#[derive(Debug)]
pub(crate) struct Awake(Vec<Child>);

impl Awake {
    fn spin(&mut self, core: usize) -> Result<(), String> {
        // The process also ends when this one does, for any reason.
        let spin = format!(
            "while kill -0 {} 2>&-; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done",
            std::process::id()
        );
        // Of the idle class: any other process that can run there runs at once.
        let child = Command::new("chrt")
            .args(["--idle", "0", "sh", "-c", &spin])
            .stdin(Stdio::null())
            .spawn()
            .map_err(|error| format!("chrt: {error}"))?;
        let id = child.id();
        self.0.push(child);
        sys::pin(id, &sys::only(core)).map_err(|error| format!("cannot pin: {error}"))
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Fails only if it has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl fmt::Display for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let others: Vec<String> = self.others.iter().map(ToString::to_string).collect();
        write!(
            f,
            "client on core {}, servers on {}",
            self.client,
            others.join(", ")
        )
    }
}

#[cfg(target_os = "linux")]
mod sys {
    use std::{fs, io};

    use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

    pub(super) type Cores = CpuSet;

    /// The cores of the calling thread.
    pub(super) fn cores() -> io::Result<Cores> {
        Ok(sched_getaffinity(None)?)
    }

    pub(super) fn numbers(cores: &Cores) -> Vec<usize> {
        let set = |core: &usize| cores.is_set(*core);
        (0..CpuSet::MAX_CPU).filter(set).collect()
    }

    pub(super) fn only(core: usize) -> Cores {
        let mut cores = CpuSet::new();
        cores.set(core);
        cores
    }

    /// Pins all threads of a process. Those that they start are pinned as they are.
    pub(super) fn pin(process: u32, cores: &Cores) -> io::Result<()> {
        for thread in fs::read_dir(format!("/proc/{process}/task"))? {
            let name = thread?.file_name();
            let thread = name.to_str().and_then(|name| name.parse().ok());
            match sched_setaffinity(thread.and_then(Pid::from_raw), cores) {
                // The thread has ended since the directory was read.
                Err(rustix::io::Errno::SRCH) => {}
                result => result?,
            }
        }
        Ok(())
    }
}

#[cfg(not(target_os = "linux"))]
mod sys {
    use std::io;

    pub(super) type Cores = ();

    pub(super) fn cores() -> io::Result<Cores> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn numbers((): &Cores) -> Vec<usize> {
        Vec::new()
    }

    pub(super) fn only(_core: usize) -> Cores {}

    pub(super) fn pin(_process: u32, (): &Cores) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
