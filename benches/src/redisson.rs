//! Redisson itself in a separate Java process, if a JDK and Maven are installed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context as _, Result, bail};
use stanchion_testkit::redisson;

/// The class path of Redisson and of the programs that use it; `None`, with a visible message, if it cannot be built.
pub(crate) fn class_path() -> Option<&'static str> {
    static BUILT: OnceLock<Option<String>> = OnceLock::new();
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tmp");
    let build = || match redisson::build(&target) {
        Ok(path) => Some(path),
        Err(why) => {
            println!("*** SKIPPED: every figure of Redisson, because {why}");
            None
        }
    };
    BUILT.get_or_init(build).as_deref()
}

/// A Java process with a fleet of clients; killed when dropped.
#[derive(Debug)]
pub(crate) struct Fleet {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

/// The grants since the last count, and the waits for them in ms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Count {
    pub(crate) grants: f64,
    pub(crate) longest: f64,
    pub(crate) mean: f64,
}

impl Fleet {
    /// Starts `size` clients that contend for `name`, a primitive of that kind; see `Fleet.java`.
    pub(crate) fn start(
        class_path: &str,
        url: &str,
        kind: &str,
        name: &str,
        size: usize,
        hold_micros: u128,
        permits: u32,
    ) -> Result<Self> {
        let mut child = Command::new("java")
            .args(["-Xshare:auto", "-XX:+UseSerialGC", "-Xmx1g"])
            .args(["-cp", class_path, "interop.Fleet", url, kind, name])
            .args([
                size.to_string(),
                hold_micros.to_string(),
                permits.to_string(),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().context("its input is a pipe")?;
        let stdout = child.stdout.take().context("its output is a pipe")?;
        let stdout = BufReader::new(stdout);
        let mut fleet = Self {
            child,
            stdin,
            stdout,
        };
        let said = fleet.line()?;
        if said != "ready" {
            bail!("the Java fleet said {said:?}");
        }
        Ok(fleet)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line)? == 0 {
            bail!("the Java fleet has ended");
        }
        Ok(line.trim_end().to_owned())
    }

    /// Returns the count since the last call, and resets the count.
    pub(crate) fn count(&mut self) -> Result<Count> {
        writeln!(self.stdin)?;
        let line = self.line()?;
        let numbers: Vec<f64> = line.split(' ').filter_map(|n| n.parse().ok()).collect();
        let [grants, longest, waited] = numbers[..] else {
            bail!("the Java fleet said {line:?}");
        };
        Ok(Count {
            grants,
            longest: longest / 1e6,
            mean: waited / grants.max(1.0) / 1e6,
        })
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
