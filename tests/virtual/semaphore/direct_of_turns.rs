//! Runs the semaphores' scripts where a request for several permits has its turn, and where permits are kept for the queue.

use super::direct::check;

/// The notes say once for each turn when it ends. Polls find the end of the turn, too; other entries poll at random.
#[test]
fn a_turn_begins_and_the_head_and_four_entries_watch_its_end() {
    check(
        "six entries
        + free = 1; held = {A 1}; line = [B=2 C=1 D=1 E=1 F=1 H=1] /150000; heard B C D E F H
        > tend '' -> -1; C: N C 3025; D: N D 3050; E: N E 3075; F: N F 3100; B: N B 3000;
            wake = {waits B=2, ends now+3000ms} /60000
        > tend '' -> -1
        > acquire C 1 look 2 0 -> [-3029 now 2 1 0 0]
        > acquire F 1 look 5 0 -> [-3104 now 5 1 0 0]
        > acquire H 1 look 6 0 -> [-45004 now 6 1 1 0]
        > acquire B 2 look 1 0 -> [-3004 now 1 1 0 0]

        the reply to the request that begins a turn has its end, so its process gets no message
        + free = 1; held = {A 1}; line = [B=2 C=1 D=1] /150000; heard B C D
        > acquire C 1 look 2 0 -> [-3029 now 2 1 0 0]; D: N D 3050; B: N B 3000;
            wake = {waits B=2, ends now+3000ms} /60000

        the head itself
        + free = 1; held = {A 1}; line = [B=2 C=1] /150000; heard B C
        > acquire B 2 look 1 0 -> [-3004 now 1 1 0 0]; C: N C 3025; wake = {waits B=2, ends now+3000ms} /60000

        a request for one permit has no turn
        + free = 0; held = {A 1}; line = [B=1 C=1] /150000; heard B C
        > tend '' -> -1",
    );
}

/// L6. During a turn the free permits are kept for the head.
#[test]
fn a_turn_keeps_the_free_permits() {
    check(
        "a request that does not wait
        + free = 1; held = {A 1}; line = [B=2] /150000; heard B; wake = {waits B=2, ends now+2s} /60000
        > acquire D 1 try -> -3

        a new request
        + free = 1; held = {A 1}; line = [B=2] /150000; heard B; wake = {waits B=2, ends now+2s} /60000
        > acquire D 1 new -> [-2029 now now 1 0 0]; line = [B=2 D=1@now] /150000

        a poll
        + free = 1; held = {A 1}; line = [B=2] /150000; heard B; wake = {waits B=2, ends now+2s} /60000
        > acquire D 1 look 9 -> [-2029 now 9 1 0 0]; base:all:stanchion: 0; line = [B=2 D=1@9] /150000;
            wake = {waits B=2, ends now+2000ms, called now} /60000

        a retry
        + free = 1; held = {A 1}; line = [B=2] /150000; heard B; wake = {waits B=2, ends now+2s} /60000
        > acquire D 1 ask 9 -> [-2029 now 9 1 0 0]; line = [B=2 D=1@9] /150000

        the request of the head takes them when they suffice
        + free = 1; held = {A 1}; line = [B=2 C=1] /150000; heard B C; wake = {waits B=2, ends now+2s} /60000
        > release A -> 1; B: P B 0; C: N C 500; free = 0; granted = [B@ms+500ms]; held = {B 2}; line = [C=1@2] /150000;
            wake = {waits B=2, ends now+2000ms, granted B} /60000

        its own request takes them, too
        + free = 2; held = {A 1}; line = [B=2 C=1] /150000; heard B C; wake = {waits B=2, ends now+2s} /60000
        > acquire B 2 ask 1 -> 0; free = 0; held = {A 1, B 2}; line = [C=1@2] /150000",
    );
}

/// A dead process has no turn. The turn of a client that polls, or whose subscription ends, goes on while its own request is served.
#[test]
fn only_a_process_that_lives_has_a_turn() {
    check(
        "its own request begins the turn
        + free = 1; held = {A 1}; line = [B=2 C=1] /150000; heard C
        > acquire B 2 look 1 -> [-3004 now 1 1 0 0]; C: N C 3025; wake = {waits B=2, ends now+3000ms} /60000
        > tend '' -> -1; C: P C 0; free = 0; granted = [C@ms+500ms]; held = {A 1, C 1}; line is gone; wake is gone

        its own request during the turn
        + free = 1; held = {A 1}; line = [B=2 C=1] /150000; heard C; wake = {waits B=2, ends now+2s} /60000
        > acquire B 2 look 1 -> [-2004 now 1 1 0 0]
        > tend '' -> -1; C: P C 0; free = 0; granted = [C@ms+500ms]; held = {A 1, C 1}; line is gone; wake is gone

        dead before its turn
        + free = 1; held = {A 1}; line = [B=2 C=1] /150000; heard C
        > tend '' -> -1; C: N C 3025; B: N B 3000; C: P C 0; free = 0; granted = [C@ms+500ms]; held = {A 1, C 1};
            line is gone",
    );
}

#[test]
fn after_its_turn_a_request_rests_ten_times_as_long() {
    check(
        "the entry moves to the end, and the next one is served
        + free = 1; held = {A 1}; line = [B=2 C=1 D=1] /150000; heard B C D; wake = {waits B=2, ends now} /60000
        > tend '' -> -1; C: P C 0; D: N D 500; B: N B 550; free = 0; granted = [C@ms+500ms]; held = {A 1, C 1};
            line = [D=1@3 B=2@now] /150000;
            wake = {waits , ends now, turns 6000, rests now+30000ms, granted C, watched now, watcher B} /180000

        the second turn
        + free = 1; held = {A 1}; line = [B=2 C=1 D=1] /150000; heard B C D
        + wake = {waits B=2, ends now, turns 4000} /60000
        > tend '' -> -1; C: P C 0; D: N D 500; B: N B 550; free = 0; granted = [C@ms+500ms]; held = {A 1, C 1};
            line = [D=1@3 B=2@now] /150000;
            wake = {waits , ends now, turns 8000, rests now+40000ms, granted C, watched now, watcher B} /190000

        the longest turn
        + free = 1; held = {A 1}; line = [B=2 C=1 D=1] /150000; heard B C D
        + wake = {waits B=2, ends now, turns 200000} /60000
        > tend '' -> -1; C: P C 0; D: N D 500; B: N B 550; free = 0; granted = [C@ms+500ms]; held = {A 1, C 1};
            line = [D=1@3 B=2@now] /150000;
            wake = {waits , ends now, turns 300000, rests now+2000000ms, granted C, watched now, watcher B} /2150000",
    );
}

#[test]
fn a_request_that_rests_holds_no_other_up() {
    for word in ["try", "new"] {
        let text = "every request in the queue rests
            + free = 1; held = {A 1}; line = [B=2 C=3] /150000; heard B; wake = {waits , turns 6000, rests now+5s} /60000
            > acquire D 1 @word -> 0; free = 0; held = {A 1, D 1}";
        check(&text.replace("@word", word));
    }
    check(
        "a request with enough permits is in front of a new one
        + free = 1; held = {A 1}; line = [B=2 C=1] /150000; heard B C
        + wake = {waits , turns 6000, rests now+5s} /60000
        > acquire D 1 try -> -3; C: P C 0; B: N B 500; free = 0; granted = [C@ms+500ms]; held = {A 1, C 1};
            line = [B=2] /150000; wake = {waits , turns 6000, rests now+5000ms, granted C} /60000

        the new one waits
        + free = 1; held = {A 1}; line = [B=2 C=1] /150000; heard B C
        + wake = {waits , turns 6000, rests now+5s} /60000
        > acquire D 1 new -> [-22504 now now 1 1 0]; C: P C 0; B: N B 500; D: N D 550; free = 0; granted = [C@ms+500ms];
            held = {A 1, C 1}; line = [B=2 D=1@now] /150000;
            wake = {waits , turns 6000, rests now+5000ms, granted C, watched now, watcher D} /60000

        the next turn is longer
        + free = 1; held = {A 1}; line = [B=2] /150000; heard B; wake = {waits , turns 6000, rests now} /60000
        > tend '' -> -1; B: N B 6000; wake = {waits B=2, turns 6000, rests now, ends now+6000ms} /60000",
    );
}

/// L6: `new` and `try` do not pass a head for which there are enough permits. A process that was notified does.
#[test]
fn a_new_request_does_not_overtake() {
    check(
        "a retry
        + free = 1; held = {A 1}; line = [B=1] /150000; heard B
        > acquire D 1 ask 9 -> 0; free = 0; held = {A 1, D 1}

        a poll
        + free = 1; held = {A 1}; line = [B=1] /150000; heard B
        > acquire D 1 look 9 -> 0; base:all:stanchion: 0; free = 0; held = {A 1, D 1}; wake = {called now} /60000

        a new request
        + free = 1; held = {A 1}; line = [B=1] /150000; heard B
        > acquire D 1 new -> [-15004 now now 1 1 0]; B: P B 0; D: N D 500; free = 0; granted = [B@ms+500ms];
            held = {A 1, B 1}; line = [D=1@now] /150000; wake = {granted B} /60000

        a request that does not wait
        + free = 1; held = {A 1}; line = [B=1] /150000; heard B
        > acquire D 1 try -> -3; B: P B 0; free = 0; granted = [B@ms+500ms]; held = {A 1, B 1}; line is gone

        a client that polls
        + free = 1; held = {A 1}; line = [B=1] /150000; heard B
        > acquire D 1 ask 9 0? -> [-3 now 9 0 0 1]; B: P B 0; free = 0; granted = [B@ms+500ms]; held = {A 1, B 1};
            line = [D=1?@9] /150000; wake = {D now, granted B} /60000

        the permits that the queue leaves are free for all
        + free = 2; held = {A 1}; line = [B=1] /150000; heard B
        > acquire D 1 new -> 0; B: P B 0; free = 0; granted = [B@ms+500ms]; held = {A 1, B 1, D 1}; line is gone

        also for a request that does not wait
        + free = 2; held = {A 1}; line = [B=1] /150000; heard B
        > acquire D 1 try -> 0; B: P B 0; free = 0; granted = [B@ms+500ms]; held = {A 1, B 1, D 1}; line is gone

        behind a process that has died
        + free = 1; held = {A 1}; line = [B=1] /150000
        > acquire D 1 new -> 0; free = 0; held = {A 1, D 1}; line is gone",
    );
}

/// R8: a server at maxmemory refuses an entry, so the process polls.
#[test]
fn a_request_serves_the_queue_and_leaves_the_notes() {
    check(
        "a request that takes a permit out of order leaves the rest of them to the queue
        + free = 2; held = {A 1}; line = [B=1 C=1] /150000; heard B C
        > acquire C 1 ask 2 -> 0; B: P B 0; free = 0; granted = [B@ms+500ms]; held = {A 1, C 1, B 1}; line is gone

        the count of releases until the turn of Redisson's clients goes on
        + free = 1; held = {A 1}; wake = {turn 0} /60000
        > acquire C 1 new -> 0; free = 0; held = {A 1, C 1}

        at maxmemory
        + free = 0; held = {A 1}; full
        > acquire C 1 new -> -3",
    );
}
