//! Checks that fail because of a known defect.

use std::io::Write as _;

/// Reports that the check of a known defect fails: its row in the list of defects, and `seen`, what happened.
///
/// Panics when the check passes: the defect is repaired, and an ordinary assertion takes the place of this call.
#[track_caller]
pub fn expected_failure(row: &str, passes: bool, seen: &str) {
    assert!(
        !passes,
        "defect {row} is gone ({seen}): assert this without `expected_failure`"
    );
    // The test harness hides the output of `eprintln!` when a test passes.
    writeln!(std::io::stderr(), "known defect {row}: {seen}").ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_fails_is_reported() {
        expected_failure("T0", false, "nothing");
    }

    #[test]
    #[should_panic(expected = "defect T0 is gone")]
    fn a_check_that_passes_is_a_failure() {
        expected_failure("T0", true, "everything");
    }
}
