//! The driver's class path.

use std::io::Write as _;
use std::sync::OnceLock;

use stanchion_testkit::redisson;

/// Set to 1 to make a missing JDK a failure, as in continuous integration.
const REQUIRE: &str = "STANCHION_REQUIRE_REDISSON";

/// The driver's class path. Returns `None` after a message if it cannot be built.
///
/// # Panics
/// If it cannot be built and `STANCHION_REQUIRE_REDISSON` is 1.
pub(super) fn class_path() -> Option<&'static str> {
    static BUILT: OnceLock<Option<String>> = OnceLock::new();
    let build = || match redisson::build(&crate::target().join("tmp")) {
        Ok(path) => Some(path),
        Err(why) => {
            let required = std::env::var(REQUIRE).is_ok_and(|value| value == "1");
            assert!(!required, "{REQUIRE}=1, but {why}");
            // Not `eprintln!`, which the test harness captures: a skipped suite must be seen.
            let _ = writeln!(
                std::io::stderr(),
                "\n*** SKIPPED: every test against Redisson, because {why}\n"
            );
            None
        }
    };
    BUILT.get_or_init(build).as_deref()
}
