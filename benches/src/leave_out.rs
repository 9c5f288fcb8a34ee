//! The cost of each part of a cycle's scripts on the server: the cycle again with that part left out, against the whole.

use anyhow::{Result, ensure};
use stanchion_testkit::RedisServer;

use crate::bare::{ACQUIRE, Pair, RELEASE, connect};
use crate::measure::{Flavor, Plan, Spread};
use crate::report::{Report, Target};
use crate::server_time::block;

const NAME: &str = "bench:server";

/// A part of the scripts: its texts in the acquire and in the release, each with its replacement.
struct Part {
    what: &'static str,
    acquire: &'static [(&'static str, &'static str)],
    release: &'static [(&'static str, &'static str)],
}

const PARTS: [Part; 6] = [
    Part {
        what: "the fencing token",
        acquire: &[("fence ~= KEYS[1]", "false")],
        release: &[],
    },
    Part {
        what: "the fencing token and the check of lateness",
        acquire: &[
            ("fence ~= KEYS[1]", "false"),
            ("local time = call('TIME')", ""),
            ("local now = time[1] * 1000000 + time[2]", ""),
            ("if now > ARGV[3] + 0 then return -1 end", ""),
        ],
        release: &[],
    },
    Part {
        what: "the checks of the queue",
        acquire: &[("'EXISTS', KEYS[1], KEYS[3]", "'EXISTS', KEYS[1]")],
        release: &[("call('EXISTS', KEYS[3], KEYS[4]) == 0", "true")],
    },
    Part {
        what: "the lease",
        acquire: &[("redis.pcall('PEXPIRE', KEYS[1], ARGV[2])", "1")],
        release: &[],
    },
    Part {
        what: "the message",
        acquire: &[],
        release: &[("redis.pcall(ARGV[2], ARGV[1], '0')", "0")],
    },
    Part {
        what: "the hash: a string instead, with one holder and no count",
        acquire: &[("'HSET', KEYS[1], ARGV[1], '1'", "'SET', KEYS[1], ARGV[1]")],
        release: &[(
            "call('HDEL', KEYS[1], ARGV[3]) == 1",
            "call('GET', KEYS[1]) == ARGV[3] and call('DEL', KEYS[1]) == 1",
        )],
    },
];

/// `text` with the first place of each part changed: that of the common case, which is what a cycle runs.
fn changed(text: &str, changes: &[(&str, &str)]) -> Result<String> {
    let mut text = text.to_owned();
    for (part, instead) in changes {
        ensure!(
            text.contains(part),
            "the scripts look different now: no {part:?}"
        );
        text = text.replacen(part, instead, 1);
    }
    Ok(text)
}

fn pairs() -> Result<Vec<Pair>> {
    let whole = Pair::ours(NAME);
    let mut pairs = vec![whole.clone()];
    for part in PARTS {
        pairs.push(Pair {
            acquire: whole.acquire.with(changed(ACQUIRE, part.acquire)?),
            release: whole.release.with(changed(RELEASE, part.release)?),
        });
    }
    pairs.push(Pair {
        acquire: whole.acquire.with("return 1".into()),
        release: whole.release.with("return 0".into()),
    });
    Ok(pairs)
}

pub(crate) fn measure(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    let pairs = pairs()?;
    let mut micros = vec![Vec::new(); pairs.len()];
    Flavor::CurrentThread.runtime()?.block_on(async {
        let mut connection = connect(&server.url()).await?;
        for pair in &pairs {
            pair.load(&mut connection).await?;
            block(server, &mut connection, pair).await?;
        }
        for round in 0..plan.pairs {
            // Every variant comes first, second, … equally often.
            for turn in 0..pairs.len() {
                let which = (round + turn) % pairs.len();
                let spent = block(server, &mut connection, &pairs[which]).await?;
                micros[which].push(spent);
            }
        }
        anyhow::Ok(())
    })?;
    let titles = PARTS.iter().map(|part| format!("without {}", part.what));
    let titles = titles.chain(["two scripts that do nothing".to_owned()]);
    let (whole, variants) = micros.split_at(1);
    for (title, spent) in titles.zip(variants) {
        let ratios = spent
            .iter()
            .zip(&whole[0])
            .map(|(part, whole)| part / whole);
        report.row(
            "leave-one-out",
            format!("server time of a cycle {title} / of the whole"),
            Spread::of(ratios.collect()),
            Target::None,
            format!(
                "{:.2} us / {:.2} us",
                Spread::of(spent.clone()).median,
                Spread::of(whole[0].clone()).median
            ),
        );
    }
    Ok(())
}

#[test]
fn every_part_is_in_the_scripts() {
    assert_eq!(pairs().unwrap().len(), PARTS.len() + 2);
}
