//! A URL in a file: read, warned about, never shown.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use stanchion_testkit::RedisServer;

use crate::support::{stanchion, text};

#[test]
fn the_url_may_be_in_a_file() {
    let server = RedisServer::builder().password("hunter2").start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("url");
    let path = file.to_str().unwrap();
    fs::write(&file, format!("\n  {}  \n\n", server.url())).unwrap();
    let mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o600);
    let by_option = stanchion(&["status", "job", "--url-file", path])
        .output()
        .unwrap();
    let by_environment = stanchion(&["run", "job", "--", "true"])
        .env("STANCHION_URL_FILE", path)
        .output()
        .unwrap();
    for done in [by_option, by_environment] {
        assert_eq!(
            (done.status.code(), text(&done.stderr)),
            (Some(0), String::new())
        );
    }

    mode(0o644);
    let warned = stanchion(&["status", "job", "--url-file", path])
        .output()
        .unwrap();
    assert_eq!(warned.status.code(), Some(0));
    let told = text(&warned.stderr);
    assert!(
        told.contains("every user") && told.contains("chmod 600"),
        "{told}"
    );
    assert!(!told.contains("hunter2"), "{told}");
}

#[test]
fn what_is_in_the_file_is_never_shown() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("url");
    let path = file.to_str().unwrap();
    for content in [
        "hunter2",
        "redis://:hunter2 @h/",
        "redis://:hunter2@127.0.0.1:99999/",
        "http://:hunter2@h/",
        "redis://:hunter2@127.0.0.1:1/",
        "redis://user:hun/ter2@127.0.0.1:1/",
        "",
    ] {
        fs::write(&file, content).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let mut command = stanchion(&["status", "job", "--url-file", path]);
        let refused = command.env("STANCHION_LOG", "trace").output().unwrap();
        let told = text(&refused.stderr);
        assert!(
            matches!(refused.status.code(), Some(69 | 78)),
            "{content}: {told}"
        );
        assert!(
            !told.contains("hunter2") && !told.contains("ter2"),
            "{told}"
        );
    }
    let missing = dir.path().join("missing");
    let refused = stanchion(&["status", "job", "--url-file", missing.to_str().unwrap()]).output();
    assert_eq!(refused.unwrap().status.code(), Some(78));
}

#[test]
fn one_of_them_is_enough() {
    let both = stanchion(&["status", "job", "--url", "redis://h/", "--url-file", "f"]).output();
    assert_eq!(both.unwrap().status.code(), Some(2));
    let both = stanchion(&["status", "job"])
        .env("STANCHION_URL", "redis://h/")
        .env("STANCHION_URL_FILE", "f")
        .output();
    assert_eq!(both.unwrap().status.code(), Some(78));
}
