//! A server's wall clock that a test can step.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::clock::wall_micros;
use crate::eventually::eventually_blocking;

const SOURCE: &str = include_str!("clock_shim.c");

/// The preloaded library of one server and the file its offset is read from.
#[derive(Debug)]
pub(crate) struct ClockShim {
    library: PathBuf,
    offset_path: PathBuf,
    offset: File,
    total_us: Mutex<i64>,
}

impl ClockShim {
    /// Compiles the library into `dir`.
    pub(crate) fn build(dir: &Path) -> Self {
        let source = dir.join("clock_shim.c");
        let library = dir.join("clock_shim.so");
        fs::write(&source, SOURCE).expect("the data dir");
        let built = Command::new("cc")
            .args(["-O1", "-shared", "-fPIC", "-o"])
            .args([&library, &source])
            .output()
            .expect("a C compiler named `cc`, for a steppable clock");
        let log = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "cc failed: {log}");

        let offset_path = dir.join("clock_offset");
        fs::write(&offset_path, 0_i64.to_ne_bytes()).expect("the data dir");
        let offset = File::options().write(true).open(&offset_path);
        Self {
            library,
            offset_path,
            offset: offset.expect("the file just written"),
            total_us: Mutex::new(0),
        }
    }

    pub(crate) fn preload(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library);
        command.env("STANCHION_CLOCK_OFFSET", &self.offset_path);
    }

    /// Moves the clock by `millis` from where it is.
    ///
    /// The server maps the same page, but Valkey 9.1 reads the time of the system only now and then and counts processor
    /// ticks in between. The call therefore waits until `server_time`, in microseconds, shows the step. The call does not wait for
    /// a server that does not answer (`None`).
    pub(crate) fn step(&self, millis: i64, server_time: impl Fn() -> Option<i64>) {
        let mut total_us = self.total_us.lock().unwrap();
        *total_us += millis * 1000;
        self.offset
            .write_all_at(&total_us.to_ne_bytes(), 0)
            .expect("the offset file");
        let step = millis.abs() * 1000;
        eventually_blocking("the server's clock shows the step", || {
            let sent = wall_micros();
            let Some(shown) = server_time() else {
                return true;
            };
            let took = wall_micros() - sent;
            // True when the time shown is nearer to the new time than to the old one.
            (shown - *total_us - sent - took / 2).abs() < step / 2 - took || step == 0
        });
    }
}
