//! Runs the semaphores' scripts with commands that the server refuses in the middle: missing rights, a moving slot, `maxmemory`. No permit is
//! created and none is lost.

use super::direct::check;

/// P1, R15: whichever command is refused, and whatever ends or releases a hold, no permit is created and none is lost.
#[test]
fn a_refused_command_creates_and_loses_no_permit() {
    let rights = [
        "DECRBY", "INCRBY", "HSET", "HDEL", "ZADD", "ZREM", "PEXPIRE", "PUBLISH",
    ];
    for right in rights {
        for (calls, queue, granted, ends) in [
            (
                ["release A", "return A %0"],
                "line = [B=1 C=1] /150000; ",
                "heard B C",
                "ms+5000ms",
            ),
            (
                ["acquire D 1 look", "take D %2 look"],
                "line = [B=1 C=1] /150000; ",
                "heard B C; granted = [A@ms]",
                "ms",
            ),
            (
                ["acquire D 1 try", "take D %2 try"],
                "",
                "granted = [A@ms]",
                "ms",
            ),
            (
                ["tend ''", "tend_leased ''"],
                "line = [B=1 C=1] /150000; ",
                "heard B C; granted = [A@ms]",
                "ms",
            ),
        ] {
            let text = "plain; a request with more rights returns the permit, or it is still held
                + @queuefree = 0; held = {A 1}; @granted; refuse @right
                > @plain -> …
                > permits -> 1
                + refuse
                > acquire D 1 try -> …
                > permits -> 1

                leased
                + @queuefree = 0; held = [%0@@ends %1@@ends]; heard B C; refuse @right
                > @leased -> …
                > permits -> 2
                + refuse
                > take D %2 try -> …
                > permits -> 2";
            let text = text.replace("@queue", queue).replace("@granted", granted);
            let text = text
                .replace("@plain", calls[0])
                .replace("@leased", calls[1]);
            check(&text.replace("@ends", ends).replace("@right", right));
        }
    }
}

/// The same in a moving slot, which refuses to access keys that the script has removed. A script starts only if all its keys exist.
#[test]
fn a_moving_slot_creates_and_loses_no_permit() {
    check(
        "a release
        + free = 0; held = {A 1}; line = [B=1 C=1] /150000; heard B C; granted = [D@9999999999999]
        + wake = {turn 1} /60000; idle = x; moves
        > release A -> -1; base: 1; B: P B 0; free = 1; held is gone
        > permits -> error ERR Script attempted to access a non local key in a cluster node

        an ended grant
        + free = 0; held = {A 1}; line = [B=1 C=1] /150000; heard B C; granted = [A@ms]
        + wake = {turn 1} /60000; idle = x; moves
        > tend '' -> error ERR ERR Script attempted to access a non local key in a cluster node; A: P A 0; free = 1;
            granted is gone; held is gone
        > permits -> error ERR Script attempted to access a non local key in a cluster node

        leased permits
        + free = 0; held = [%0@ms+5000ms %1@ms+5000ms]; line = [B=1 C=1] /150000; heard B C
        + wake = {turn 1} /60000; idle = x; moves
        > return A %0%1 -> -1; base: 2; B: P B 0; free = 2; held is gone
        > permits -> error ERR Script attempted to access a non local key in a cluster node",
    );
}
