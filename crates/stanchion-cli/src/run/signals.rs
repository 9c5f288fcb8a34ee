//! The signals that `run` passes on to the command.

use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

const PASSED_ON: [Signal; 6] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::TERM,
];

/// A stream of the signals to this process, which no longer end it.
#[derive(Debug)]
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Starts to catch the signals. A signal that is ignored stays ignored, here and in the command: `nohup` relies on it.
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored_signals();
        PASSED_ON
            .into_iter()
            .filter(|signal| ignored & bit(*signal) == 0)
            .map(|signal| Ok((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?)))
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// The next signal. Safe to cancel.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            for (signal, stream) in &mut self.0 {
                if let Poll::Ready(Some(())) = stream.poll_recv(cx) {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The signal with this number.
pub(super) fn numbered(number: i32) -> Option<Signal> {
    Signal::from_named_raw(number)
}

/// Returns whether a terminal sends its signals to this process and its whole group.
pub(super) fn is_in_foreground() -> bool {
    let foreground = File::open("/dev/tty").map(rustix::termios::tcgetpgrp);
    matches!(foreground, Ok(Ok(group)) if group == rustix::process::getpgrp())
}

fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

/// The signals that were ignored when this process started, one bit each. Known on Linux only: elsewhere it takes unsafe code.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .unwrap_or_default();
    u64::from_str_radix(mask.trim(), 16).unwrap_or_default()
}
