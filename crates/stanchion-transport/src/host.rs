//! The name of this machine.

use std::sync::OnceLock;

/// Returns the name of this machine: at most 64 characters; a character outside `[A-Za-z0-9._-]` is `_`. `None` on other systems than
/// Linux.
///
/// Read once, from the kernel and not from the environment, which may hold anything.
#[must_use]
pub fn host() -> Option<&'static str> {
    static HOST: OnceLock<Option<String>> = OnceLock::new();
    let read = || {
        let text = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let tame = |c: char| if fits(c) { c } else { '_' };
        Some(text.trim().chars().map(tame).take(64).collect())
    };
    HOST.get_or_init(read).as_deref()
}
