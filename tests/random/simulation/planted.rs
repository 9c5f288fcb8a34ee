//! Errors that are planted in scripts, at least two for each kind. Each must be found within five seeds from the given one.

use std::time::Duration;

use crate::simulation::filter::Mutation;
use crate::simulation::is_caught;
use crate::simulation::scenario::Scenario;

macro_rules! planted {
    ($($error:ident: $scenario:ident $first:literal, $from:literal => $to:literal, $rules:tt;)*) => {
        $(
            #[test]
            fn $error() {
                // One phase with faults and one calm phase.
                let scenario = |seed| Scenario {
                    busy_for: Duration::from_secs(100),
                    length: Duration::from_secs(130),
                    mutation: Some(Mutation::Line($from, $to)),
                    ..Scenario::$scenario(seed)
                };
                is_caught(stringify!($error), $first, scenario, &$rules);
            }
        )*
    };
}

planted! {
    a_candidate_of_higher_priority_replaces_the_leader: election 1,
        "if ttl ~= -2 and not held then"
        => "if ttl ~= -2 and not held and not (its_priority and ARGV[5] + 0 > its_priority + 0) then",
        ["Exclusion"];
    a_candidate_that_gives_up_deposes_the_leader: election 1,
        "local found = call('HDEL', lead, owner) == 1" => "local found = call('DEL', lead) == 1",
        ["Exclusion"];
    observers_are_not_notified_of_a_new_leader: election 2,
        "if owner ~= ARGV[1] or seq ~= ARGV[2] then return 0 end" => "if seq ~= ARGV[2] then return 0 end",
        ["Blind"];

    a_ticket_can_be_adopted_twice: tickets 1,
        "call('HDEL', KEYS[1], ARGV[1])\n-- This may shorten" => "-- This may shorten",
        ["AdoptedTwice"];
    an_old_ticket_takes_over_the_lock: tickets 1,
        "and call('HEXISTS', KEYS[1], ARGV[1]) == 0" => "and call('EXISTS', KEYS[1]) == 0",
        ["Exclusion"];

    the_last_tick_runs_again: job 1,
        "tick <= ran + 0" => "tick < ran + 0",
        ["TickTwice"];
    two_runs_overlap: job 1,
        "if ttl ~= -2 and not held then\n  local holder" => "if ttl == -1 then\n  local holder",
        ["CriticalSection", "Exclusion"];

    permits_become_free_early: limiter 1,
        "'-inf', now - interval, 'LIMIT'" => "'-inf', now - interval + 300, 'LIMIT'",
        ["Exceeded"];
    a_refund_gives_back_one_permit_more: limiter 1,
        "call('INCRBY', KEYS[2 + i], ARGV[2])" => "call('INCRBY', KEYS[2 + i], ARGV[2] + 1)",
        ["Account"];

    a_bucket_counts_half_a_permit_less: bucket 1,
        "+ wanted * limit[1] end" => "+ (wanted - 0.5) * limit[1] end",
        ["Exceeded"];
    a_bucket_gives_back_four_times_the_permits: bucket 1,
        "full[i] - ARGV[2] * limit[1]" => "full[i] - 4 * ARGV[2] * limit[1]",
        ["Exceeded"];

    a_resent_arrival_arrives_again: barrier 4,
        "if answer and (breaks or not lost) then" => "if answer and false then",
        ["Incomplete", "Arrivals"];
    a_party_that_left_still_counts: barrier 1,
        "  call('ZREM', places, ARGV[1])\n  code = 1" => "  code = 1",
        ["Incomplete"];
    a_lost_place_is_forgotten: barrier 1,
        "call('ZADD', places, string.format('%.0f', -ms), dead)" => "call('ZREM', places, dead)",
        ["Crowded"];

    a_double_round_ends_before_the_last_party_leaves: double 1,
        "if call('ZCOUNT', places, 0, '+inf') == 0 then over() end"
        => "if call('ZCOUNT', places, 0, '+inf') <= 1 then over() end",
        ["LeftEarly"];
    the_next_parties_enter_before_the_last_one_leaves: double 1,
        "if inside() and live > 0 then" => "if inside() and live > 1 then",
        ["Overlap"];

    a_resent_count_down_counts_again: latch 3,
        "if answered then return answered + 0 end" => "",
        ["OpenedEarly", "Miscounted"];
    a_waiter_does_not_keep_its_latch: latch 3,
        "used(KEYS[1], KEYS[3], ARGV[2] + 0)" => "used(KEYS[1], KEYS[3], 0)",
        ["EndedInUse"];
}
