//! The claim of an owner, and the life of its hold: one event after the other. Times are milliseconds.
//!
//! Each line has events, and after `|` what is true after them. Empty lines separate cases, whose first line is the title.
#![expect(clippy::unwrap_used, reason = "a wrong transcript may panic")]

use std::fmt::Write as _;

use stanchion_client::claim::Claim;
use stanchion_client::life::{Life, Start};
use stanchion_client::primitive::Tenure;
use stanchion_client::{Ended, Lease, LostReason, Moment};

use crate::parts::{at, ms};

fn lease(text: &str) -> Lease {
    Lease::new(ms(text.parse().unwrap())).unwrap()
}

fn moment(text: &str) -> Moment {
    at(text.parse().unwrap())
}

fn text_of(at: Moment) -> String {
    match at {
        Moment::FAR => "never".to_owned(),
        at => at.since_origin().as_millis().to_string(),
    }
}

/// Runs all cases of a transcript. `begin` makes the state of a case, and `event` changes it and returns what it causes; `shown`: what is true then.
#[track_caller]
fn check<S>(
    text: &str,
    begin: impl Fn() -> S,
    event: impl Fn(&mut S, &str) -> String,
    shown: impl Fn(&S) -> String,
) {
    let mut actual = String::new();
    for case in text.trim().split("\n\n") {
        let mut state = begin();
        for (n, line) in case.trim().lines().map(str::trim).enumerate() {
            let events = line.split(" | ").next().unwrap_or_default();
            if n == 0 {
                writeln!(actual, "{line}").unwrap();
                continue;
            }
            let caused: Vec<_> = events
                .split("; ")
                .map(|it| event(&mut state, it))
                .filter(|it| !it.is_empty())
                .collect();
            let caused = caused.into_iter().chain([shown(&state)]);
            writeln!(
                actual,
                "{events} | {}",
                caused.collect::<Vec<_>>().join(", ")
            )
            .unwrap();
        }
        actual.push('\n');
    }
    let expected: Vec<_> = text.trim().lines().map(str::trim).collect();
    assert!(
        actual.trim() == expected.join("\n"),
        "the actual effects:\n{actual}\n"
    );
}

fn claimed(claim: &mut Claim, event: &str) -> String {
    let (word, number) = event.split_once(' ').unwrap_or((event, ""));
    match word {
        "sends" => claim.sends(moment(number)),
        "answered" => claim.answered(),
        "unanswered" => claim.unanswered(moment(number)),
        "queued" => claim.queued(),
        "placed" => claim.placed(number.parse().unwrap()),
        "granted" => claim.granted(),
        "ends" => claim.ends(),
        "released" => claim.released(moment(number)),
        "requests" => claim.requests(lease(number)),
        "passes" => *claim = claim.take().with_lease(lease(number)),
        "sweep" => {
            return match claim.take_leftover() {
                Some(left) => format!("left ({})", shown(&left)),
                None => "nothing left".to_owned(),
            };
        }
        _ => panic!("unknown: {event}"),
    }
    String::new()
}

fn shown(claim: &Claim) -> String {
    let mut text = format!("may run until {}", text_of(claim.until()));
    for (what, is_so) in [
        ("in flight", claim.is_in_flight()),
        ("unanswered", claim.is_unanswered()),
        ("queued", claim.is_queued()),
    ] {
        if is_so {
            text += &format!(" {what}");
        }
    }
    if claim.arrived() > 0 {
        text += &format!(" at {}", claim.arrived());
    }
    if claim.lease() != Lease::MIN {
        text += &format!(" for {}", claim.lease().millis());
    }
    text
}

#[test]
fn a_claim_is_what_its_owner_may_have_on_the_server() {
    check(
        "
        a refusal without a place leaves nothing
        sends 2000 | may run until 2000 in flight
        answered; sweep | nothing left, may run until 0

        a place is left, and is given up once
        sends 2000; answered; placed 7; sweep | left (may run until 0 queued at 7), may run until 0
        sweep | nothing left, may run until 0

        a sign that it waits is left, too
        queued; sweep | left (may run until 0 queued), may run until 0

        so is a request without an answer, until it cannot run any more
        sends 2000; answered; unanswered 2000 | may run until 2000 unanswered
        unanswered 1000; sends 3000 | may run until 3000 in flight unanswered
        answered; sweep | left (may run until 2000 unanswered), may run until 0

        and one in flight
        sends 2000; sweep | left (may run until 2000 in flight), may run until 0

        while it holds, the end of the hold cleans up; the grant has ended the place
        placed 7; granted; sweep | nothing left, may run until 0
        placed 7; queued; sweep | nothing left, may run until 0

        a release after all requests is final
        unanswered 2000; granted; ends; released 1999; sweep | left (may run until 2000 unanswered), may run until 0
        unanswered 2000; granted; ends; released 2000; sweep | nothing left, may run until 0

        a release that is in flight cleans up, and a place that is reported meanwhile may be newer
        sends 2000; granted; ends; answered; placed 7; sweep | nothing left, may run until 0 queued at 7
        released 3000; sweep | left (may run until 0 queued at 7), may run until 0

        also after the release
        sends 2000; granted; ends; released 1000; answered; placed 7; sweep | left (may run until 0 queued at 7), may run until 0

        the longest lease counts, and stays
        requests 500; requests 300; unanswered 9 | may run until 9 unanswered for 500
        sweep | left (may run until 9 unanswered for 500), may run until 0 for 500
        granted; ends; released 10 | may run until 0 for 500

        an acquire that gets the entry of another brings its own lease
        requests 500; placed 7; passes 100 | may run until 0 queued at 7 for 100
        ",
        || Claim::new(Lease::MIN),
        claimed,
        shown,
    );
}

/// A life, once it has begun, and the present moment.
struct Lived {
    life: Option<Life>,
    now: u64,
}

fn begin(words: &str, now: Moment) -> Life {
    let mut start = Start {
        now,
        sent: now,
        tenure: Tenure::Leased,
        leases: [Lease::default(); 2],
        short: None,
        is_watched: true,
        ends: Moment::FAR,
        is_given: false,
        keeps: false,
    };
    for word in words.split(' ') {
        let (word, number) = word.split_once('=').unwrap_or((word, ""));
        match word {
            "" => {}
            "unleased" => start.tenure = Tenure::Unleased,
            "nothing" => start.tenure = Tenure::Nothing,
            "sent" => start.sent = moment(number),
            "first" => start.leases[1] = lease(number),
            "short" => start.short = Some(ms(number.parse().unwrap())),
            "manual" => start.is_watched = false,
            "ends" => start.ends = moment(number),
            "given" => start.is_given = true,
            "keeps" => start.keeps = true,
            _ => panic!("unknown: {word}"),
        }
    }
    Life::begin(start)
}

fn lived(it: &mut Lived, event: &str) -> String {
    let (word, rest) = event.split_once(' ').unwrap_or((event, ""));
    if word == "pass" {
        it.now += rest.parse::<u64>().unwrap();
        return String::new();
    }
    let now = at(it.now);
    if word == "begin" {
        it.life = Some(begin(rest, now));
        return String::new();
    }
    let life = it.life.as_mut().unwrap();
    match word {
        "give" => life.give(),
        "take" => life.take(now),
        "renewed" => life.renewed(Lease::default(), moment(rest)),
        "plan" => life.renew_at(moment(rest)),
        "release" | "lose" => {
            let end = match word {
                "release" => Ended::Released,
                _ => Ended::Lost(LostReason::Gone),
            };
            return life
                .end(end)
                .map_or_else(|it| format!("was {it:?}"), |()| String::new());
        }
        "due" => {
            let guards = rest.parse().ok();
            let due = life.due(now, ms(100), guards);
            let said = [
                (due.is_left, "left"),
                (due.lasts, "lasts"),
                (due.renews, "renews"),
            ];
            let said = said
                .into_iter()
                .filter(|(is_so, _)| *is_so)
                .map(|(_, what)| what);
            return said.collect::<Vec<_>>().join(" ");
        }
        "taken" => return format!("taken {}", life.is_taken(rest.parse().ok())),
        _ => panic!("unknown: {event}"),
    }
    String::new()
}

fn life_shown(it: &Lived) -> String {
    let life = it.life.as_ref().unwrap();
    let mut text = match life.end_at(at(it.now)) {
        None => format!("until {}", text_of(life.valid_until())),
        Some(end) if life.ended().is_some() => format!("{end:?}"),
        Some(end) => format!("{end:?} by the clock"),
    };
    if life.held_until() != life.valid_until() {
        text += " over";
    }
    if life.is_provisional() {
        text += " provisional";
    }
    if life.is_untaken() {
        text += " untaken";
    }
    if let Some(next) = life.next() {
        text += &format!(" next {}", text_of(next));
    }
    text
}

#[test]
fn a_life_is_renewed_and_ends() {
    check(
        "
        a third of the lease passes before each renewal
        begin | until 29700 next 10000
        pass 9899; due 1 | until 29700 next 10000
        pass 1; due 1 | lasts renews, until 29700 next 29700
        renewed 9900; plan 19900 | until 39600 next 19900
        due 1 | until 39600 next 19900

        an answer that is late shortens nothing
        begin; renewed 5000; renewed 1000 | until 34700 next 10000

        without an answer it is lost, by the clock and then for good; the first end stays
        begin; pass 10000; due 1; plan 10200 | lasts renews, until 29700 next 10200
        pass 19699 | until 29700 next 10200
        pass 1 | Lost(Expired) by the clock next 10200
        lose; release | was Lost(Gone), Lost(Gone) over

        a release ends it
        begin; release; lose | was Released, Released over

        it lasts until `max_hold`, and is not renewed for nothing
        begin ends=40000; pass 10000; due 1; renewed 10000; plan 20000 | lasts renews, until 39700 next 20000
        pass 10000; due 1; renewed 20000; plan 30000 | lasts renews, until 40000 next 30000
        pass 10000; due 1 | lasts, until 40000 next 40000
        pass 10000 | Lost(MaxHold) by the clock next 40000

        only its caller renews it
        begin manual; pass 10000; due 1 | lasts, until 29700 next 29700
        renewed 10000; due 1 | until 39700 next 39700

        a longer first lease does not change the renewals
        begin first=60000 | until 59400 next 10000

        a lease that the reply has outlived
        begin sent=0 short=1 | Lost(Expired) by the clock provisional next 0

        a hold without a lease, and none
        begin unleased; pass 90000; due 1 | until never next never
        begin nothing given | until never
        ",
        || Lived { life: None, now: 0 },
        lived,
        life_shown,
    );
}

#[test]
fn a_life_begins_with_a_short_lease_and_is_taken() {
    check(
        "
        a grant by message is renewed once in any case
        begin short=1500 given | until 1485 provisional untaken next 500
        pass 500; due 1 | lasts renews, until 1485 provisional untaken next 1000
        renewed 500; plan 10500 | until 30200 untaken next 1000
        pass 500; due 1 | left, until 30200 untaken next 2000
        pass 1000; due 1 | left, until 30200 untaken next 3000
        pass 7500; due 1 | left, until 30200 untaken next 10500

        P10: it is not renewed again before it is taken; then at once
        begin given; pass 10000; due 1 | left lasts, until 29700 untaken next 11000
        pass 100; take | until 29700 next 10100
        due 1 | lasts renews, until 29700 next 29700

        one that is taken in time is renewed in time
        begin given; pass 999; due 1; take | until 29700 next 10000
        take | until 29700 next 10000

        a renewal in flight is not sent again when it is taken
        begin short=1500 given; pass 500; due 1; take | lasts renews, until 1485 provisional next 1485

        one whose waiter may take it at any time
        begin given keeps; pass 5000; due 1 | until 29700 untaken next 10000

        a permit lasts from the moment at which it is taken
        begin unleased short=500 given | until 500 untaken next 500
        take | until never next never

        not from a later one
        begin unleased short=500 given; pass 500; take | Lost(Expired) by the clock next 500

        another guard has it, or an operation is in flight
        begin; give | until 29700 untaken next 10000
        taken 1; taken 2; taken busy | taken false, taken true, taken true, until 29700 untaken next 10000
        pass 10000; due 2 | lasts renews, until 29700 untaken next 29700
        ",
        || Lived { life: None, now: 0 },
        lived,
        life_shown,
    );
}
