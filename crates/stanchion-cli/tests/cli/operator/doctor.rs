//! `doctor`.

use serde_json::Value;
use stanchion_testkit::RedisServer;

use super::{at, done, lines};
use crate::home::Home;
use crate::support::output;

/// Makes the user of the page on rights.
fn make_user_of_the_book(server: &RedisServer) {
    let page = include_str!("../../../../../docs/running/rights.md");
    let from = page.find("ACL SETUSER app on >password").unwrap();
    let block = page[from..].split("```").next().unwrap();
    done(server, &block.split_whitespace().collect::<Vec<_>>());
}

fn doctor(server: &RedisServer, args: &[&str]) -> Vec<Value> {
    lines(&output(server, &[&["doctor", "--json"], args].concat()))
}

fn level<'a>(findings: &'a [Value], check: &str) -> &'a str {
    let of_check = findings.iter().find(|finding| finding["check"] == check);
    of_check.map_or("none", |finding| finding["level"].as_str().unwrap())
}

fn advice<'a>(findings: &'a [Value], check: &str) -> &'a str {
    let finding = findings
        .iter()
        .find(|finding| finding["check"] == check)
        .unwrap();
    finding["advice"].as_str().unwrap_or_default()
}

#[test]
fn a_full_server_is_named_and_the_other_checks_go_on() {
    let server = RedisServer::builder().arg("maxclients", "5").start();
    let hog = std::net::TcpStream::connect(server.addr()).unwrap();
    let findings = doctor(&server, &[]);
    assert!(["warn", "fail"].contains(&level(&findings, "clients")));
    assert!(advice(&findings, "clients").contains("maxclients"));
    // A second client cannot connect.
    assert_eq!(level(&findings, "messages"), "fail");
    let of_messages = findings.iter().find(|it| it["check"] == "messages");
    let text = of_messages.unwrap().to_string();
    assert!(text.contains("max number of clients reached"), "{text}");
    assert_ne!(level(&findings, "deadlock"), "none");
    drop(hog);
}

#[test]
fn the_user_of_the_book_has_every_right_and_each_missing_one_is_named() {
    let server = RedisServer::start();
    make_user_of_the_book(&server);
    let as_app = ["--user", "app", "--names", "app:*"];
    let findings = doctor(&server, &as_app);
    assert_eq!(level(&findings, "rights"), "ok", "{findings:#?}");
    for (take, give) in [
        ("-evalsha", "+evalsha"),
        ("-publish", "+publish"),
        ("-zscore", "+zscore"),
        ("-pubsub", "+pubsub"),
    ] {
        done(&server, &["ACL", "SETUSER", "app", take]);
        let findings = doctor(&server, &as_app);
        assert_eq!(level(&findings, "rights"), "fail", "{take}");
        assert_eq!(
            advice(&findings, "rights"),
            format!("ACL SETUSER app {give}")
        );
        done(&server, &["ACL", "SETUSER", "app", give]);
    }
    done(&server, &["ACL", "SETUSER", "app", "resetchannels"]);
    assert_eq!(
        advice(&doctor(&server, &as_app), "rights"),
        "ACL SETUSER app &*{app:*"
    );
    let elsewhere = doctor(&server, &["--user", "app", "--names", "web:*"]);
    assert!(
        advice(&elsewhere, "rights").contains("~web:*"),
        "{elsewhere:#?}"
    );
    let nobody = doctor(&server, &["--user", "nobody"]);
    assert_eq!(level(&nobody, "rights"), "fail");
}

#[test]
fn skipped_checks_are_listed_for_a_user_with_few_rights() {
    let server = RedisServer::start();
    make_user_of_the_book(&server);
    let url = server.url().replace("redis://", "redis://app:password@");
    let findings = lines(&at(&url, &["doctor", "--json", "--names", "app:*"]));
    assert_eq!(
        (level(&findings, "rights"), level(&findings, "timeout")),
        ("skip", "skip")
    );
    assert_eq!(level(&findings, "messages"), "ok", "{findings:#?}");
    // A name that it may not use is no fault of the server's.
    let findings = lines(&at(&url, &["doctor", "--json"]));
    assert_eq!(level(&findings, "messages"), "skip", "{findings:#?}");
}

#[test]
fn a_different_clock_is_reported() {
    let server = RedisServer::builder().steppable_clock().start();
    server.step_clock(5000);
    let findings = doctor(&server, &[]);
    assert_eq!(level(&findings, "clock"), "warn", "{findings:#?}");
}

#[test]
fn the_engine_is_named_with_advice_that_applies_to_it() {
    let home = Home::new();
    let _server = home.serve(&[]);
    let findings = lines(&home.output(&["doctor", "--json", "--scan"]));
    let said = |check: &str| {
        let finding = findings.iter().find(|finding| finding["check"] == check);
        finding.unwrap_or_else(|| panic!("{check}: {findings:#?}"))
    };
    assert!(
        said("version")["what"]
            .as_str()
            .unwrap()
            .contains("stanchion serve")
    );
    assert_eq!(said("persistence")["level"], "warn");
    assert_eq!(said("rights")["level"], "ok");
    for finding in &findings {
        let advice = finding["advice"].as_str().unwrap_or_default();
        for vain in ["appendonly", "CONFIG", "ACL"] {
            assert!(!advice.contains(vain), "{finding}");
        }
    }
}
