//! `doctor` and a clock that differs. Its other cases are in `tours/doctor.txt` and `tours/operator.txt`.

use stanchion_testkit::RedisServer;

use super::lines;
use crate::support::output;

#[test]
fn a_different_clock_is_reported() {
    let server = RedisServer::builder().steppable_clock().start();
    server.step_clock(5000);
    let findings = lines(&output(&server, &["doctor", "--json"]));
    let clock = findings.iter().find(|finding| finding["check"] == "clock");
    assert_eq!(clock.unwrap()["level"], "warn", "{findings:#?}");
}
