//! The metrics, as a scraper sees them.
#![cfg(feature = "embedded")]

use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use stanchion::jobs::Outcome;
use stanchion::{AcquireOptions, Client, Election, Job, Lease, Lock, RateLimiter, Tick};

/// The value of the series that begins with `series`.
fn value(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(series))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// The metrics, when they are as `wanted`.
async fn eventually(metrics: &PrometheusHandle, wanted: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    stanchion_testkit::eventually("the metrics are as wanted", || {
        text = metrics.render();
        wanted(&text)
    })
    .await;
    text
}

/// An event of each kind that limiters, jobs and elections have.
async fn newer_kinds(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
    let api = RateLimiter::new(client, "api", "1/200ms".parse()?)?;
    api.acquire().await?;
    assert!(api.try_acquire().await?.granted().is_none());
    assert!(api.acquire_timeout(Duration::ZERO).await.is_err());
    api.acquire().await?;
    let job = Job::new(client, "job")?;
    let tick = Tick::every(Duration::from_secs(86_400))?;
    let run = job.run_tick(tick, |_| async { job.begin().await.map(drop) });
    assert!(matches!(run.await?, Outcome::Done(Ok(()))));
    let again = job.run_tick(tick, |_| async {}).await?;
    assert!(matches!(again, Outcome::Already { .. }));
    let election = Election::new(client, "election")?;
    let end = election.lead("v", |_, _| async { Err("failed".into()) });
    assert_eq!(end.once().await?.failed, 1);
    Ok(())
}

// One test for one process: it has one recorder.
#[tokio::test]
async fn every_metric_is_described_and_the_gauges_are_those_of_all_clients() {
    let handle = PrometheusBuilder::new().install_recorder().unwrap();
    let (a, b) = (
        Client::connect("memory://metrics").await.unwrap(),
        Client::connect("memory://metrics").await.unwrap(),
    );
    let (ours, theirs) = (Lock::new(&a, "a").unwrap(), Lock::new(&b, "b").unwrap());
    let held = (
        ours.acquire().await.unwrap(),
        theirs.acquire().await.unwrap(),
    );
    assert!(theirs.try_acquire().await.unwrap().is_none());
    let brief = Lease::new(Duration::from_millis(300)).unwrap();
    let renewed = Lock::new(&a, "d").unwrap().lease(brief).acquire().await;
    let waiting = tokio::spawn(ours.acquire());
    let brief = AcquireOptions::new().max_hold(Duration::from_millis(50));
    let third = Lock::new(&a, "c").unwrap();
    third.acquire_with(brief).await.unwrap().lost().await;
    let both_held = |text: &str| value(text, "stanchion_held{kind=\"lock\"}") == Some(3.0);
    let text = eventually(&handle, |text| {
        both_held(text)
            && value(text, "stanchion_waiting{kind=\"lock\"}") == Some(1.0)
            && value(text, "stanchion_renewal_seconds_count").is_some()
    })
    .await;
    // Two clients, each with a connection of its own.
    assert_eq!(
        value(&text, "stanchion_connected{link=\"background\"}"),
        Some(2.0)
    );
    assert_eq!(value(&text, "stanchion_reconnects_total"), Some(0.0));
    let lost = "stanchion_lost_total{kind=\"lock\",reason=\"max_hold\"}";
    assert_eq!(value(&text, lost), Some(1.0));
    let never = "stanchion_lost_total{kind=\"lock\",reason=\"gone\"}";
    assert_eq!(
        value(&text, never),
        Some(0.0),
        "an alert needs the zero:\n{text}"
    );
    newer_kinds(&a).await.unwrap();
    renewed.unwrap().release().await.unwrap();
    held.0.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
    held.1.release().await.unwrap();
    b.shutdown(Duration::from_secs(1)).await;
    drop((b, theirs));
    let text = eventually(&handle, |text| {
        value(text, "stanchion_connected{link=\"background\"}") == Some(1.0)
            && value(text, "stanchion_held{kind=\"lock\"}") == Some(0.0)
    })
    .await;
    assert_eq!(
        value(
            &text,
            "stanchion_wakes_total{kind=\"lock\",useful=\"true\"}"
        ),
        Some(1.0)
    );
    let page = include_str!("../../../docs/running/monitoring.md");
    // Those of `stanchion exporter` are metrics of a server, not of a client.
    let (page, of_a_server) = page.split_once("## Every lock of a server").unwrap();
    assert!(of_a_server.contains("| `stanchion_server_up` | gauge"));
    let rows = page.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("| `stanchion_")?.split_once("` | ")?;
        Some((format!("stanchion_{name}"), rest.split(' ').next()?))
    });
    let rows: Vec<_> = rows
        .filter(|(_, kind)| ["counter", "gauge", "histogram"].contains(kind))
        .collect();
    assert_eq!(rows.len(), 17);
    for (series, times) in [
        ("stanchion_limited_total{kind=\"rate_limiter\"}", 2.0),
        ("stanchion_booked_seconds_count{kind=\"rate_limiter\"}", 1.0),
        ("stanchion_job_runs_total{outcome=\"done\"}", 1.0),
        ("stanchion_job_runs_total{outcome=\"skipped\"}", 1.0),
        ("stanchion_job_runs_total{outcome=\"already\"}", 1.0),
        ("stanchion_job_runs_total{outcome=\"lost\"}", 0.0),
        ("stanchion_terms_total{end=\"failed\"}", 1.0),
        ("stanchion_terms_total{end=\"ended\"}", 0.0),
    ] {
        assert_eq!(value(&text, series), Some(times), "{series}:\n{text}");
    }
    for (name, kind) in rows {
        // Without buckets this exporter shows a histogram as a summary.
        let kind = if kind == "histogram" { "summary" } else { kind };
        let shown = text.contains(&format!("# TYPE {name} {kind}\n"))
            && text.contains(&format!("# HELP {name} "));
        assert!(shown, "{name} is no {kind}:\n{text}");
    }
}
