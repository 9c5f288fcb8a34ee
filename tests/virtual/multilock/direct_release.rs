//! Runs the multi-lock's release, and the script that continues it, directly.

use super::direct::check;

/// P6, R12, R16.
#[test]
fn a_release_frees_what_the_owner_holds_and_publishes_for_redisson() {
    check(
        "both locks; the second run finds nothing
        + a = {A 1} /50000; b = {A 1} /50000
        > release A -> 0; base.a: 0; base.b: 0; a is gone; b is gone
        > release A -> -2

        the number of subscribers
        + a = {A 1} /900; b = {A 1} /900; heard base.a=2 base.b=3
        > release A quits=1 -> 5; base.a: 0; base.b: 0; wake.a = {turn 0, until now+2ms} /3000;
            wake.b = {turn 0, until now+2ms} /3000; a is gone; b is gone

        no right to publish
        + a = {A 1} /50000; b = {A 1} /50000; refuse PUBLISH
        > release A -> -1; a is gone; b is gone

        another process holds one
        + a = {A 1} /900; b = {B 1} /900
        > release A -> -2; base.a: 0; a is gone

        another process holds one, and a third one waits
        + a = {A 1} /900; b = {B 1} /900; line.b = [C] /150000
        > release A -> -2; base.a: 0; a is gone

        a key of another program
        + a = x; b = {A 1} /900
        > release A -> -2; base.b: 0; b is gone",
    );
}

#[test]
fn a_release_serves_the_queue_of_each_lock() {
    check(
        "a lock, and a process that waits for several
        + a = {A 1} /50000; b = {A 1} /50000; heard base.a:@B base.a:@C base.b:@C base.b:@D
        + line.a = [B C] /150000; line.b = [C+ D] /150000
        > release A -> 2; base.a:B: G B now now 1500 fence; base.a:C: N C 1500; base.b:C: P C 0; base.b:D: P D 25;
            a = {B 1} /1500; fence = now; line.a = [C@2] /150000; line.b = [D@2] /150000; wake.a = {granted B} /60000;
            b is gone

        the process behind one that waits for several is dead: the next one is notified
        + a = {A 1} /50000; b = {A 1} /50000; heard base.b:@B base.b:@D; line.b = [B+ C D] /150000
        > release A -> 1; base.a: 0; base.b:B: P B 0; base.b:C: P C 25; base.b:D: P D 25; line.b = [D@3] /150000;
            a is gone; b is gone

        16 dead processes behind it: the queue is tended after 25 ms, in case it does not try
        + a = {A 1} /50000; b = {A 1} /50000; heard base.b:@B; line.b = [B+ x1..17] /150000
        > release A -> [tend 25 1]; base.a: 0; base.b:B: P B 0; base.b:x1..16: P; line.b = [x17@18] /150000;
            a is gone; b is gone

        locks without counters are granted without a token
        + a = {A 1} /50000; b = {A 1} /50000; heard base.a:@B; line.a = [B] /150000
        > release_plain A -> 1; base.a:B: G B 0 now 1500 -; base.b: 0; a = {B 1} /1500; b is gone; line.a is gone

        one message could not be sent
        + a = {A 1} /50000; b = {A 1} /50000; line.a = [B] /150000; refuse PUBLISH
        > release A -> -1; fence = now; a is gone; b is gone; line.a is gone",
    );
}

/// P3, L4.
#[test]
fn giving_up_removes_the_entries_and_passes_the_watch_on() {
    for suffix in ["+", "+?"] {
        let text = "the head
            + a = {B 1} /900; heard base.a:@C; line.a = [A@suffix C] /150000
            > release A quits=1 -> -2; base.a:C: N C 900; line.a = [C@2] /150000

            the process behind the head is dead: the next one polls
            + a = {B 1} /900; heard base.a:@D; line.a = [A@suffix C D] /150000
            > release A quits=1 -> -2; base.a:C: N C 900; base.a:D: N D 900; line.a = [C@2 D@3] /150000

            P11: more dead processes than one run looks at
            + a = {B 1} /900; heard base.a:@D; line.a = [A@suffix x1..16 D] /150000
            > release A quits=1 -> -2; base.a:x1..16: N;
                line.a = [x1@2 x2@3 x3@4 x4@5 x5@6 x6@7 x7@8 x8@9 x9@10 x10@11 x11@12 x12@13 x13@14 x14@15 x15@16 x16@17 D@18] /150000

            behind another entry
            + a = {B 1} /900; heard base.a:@C; line.a = [C A@suffix] /150000
            > release A quits=1 -> -2; line.a = [C] /150000

            only if the request says so
            + a = {B 1} /900; heard base.a:@C; line.a = [A@suffix C] /150000
            > release A -> -2

            the lock is free: the queue is served
            + heard base.b:@C; line.b = [A@suffix C] /150000
            > release A quits=1 -> -2; base.b:C: G C now now 1500 fence; b = {C 1} /1500; fence = now; line.b is gone";
        check(&text.replace("@suffix", suffix));
    }
    check(
        "an owner without an entry serves nothing
        + line.a = [C] /150000
        > release A quits=1 -> -2

        the last entry takes the notes with it
        + a = {B 1} /900; line.a = [A+] /150000; wake.a = {turn 1} /60000
        > release A quits=1 -> -2; line.a is gone; wake.a is gone

        another entry is left
        + a = {B 1} /900; line.a = [A+ C] /150000; wake.a = {turn 1} /60000
        > release A quits=1 -> -2; base.a:C: N C 900; line.a = [C@2] /150000

        R16: a foreign key in the place of the notes
        + a = {B 1} /900; line.a = [A+] /150000; wake.a = x
        > release A quits=1 -> -2; line.a is gone

        of a holder
        + a = {A 1} /50000; b = {A 1} /50000; wake.a = x
        > release A quits=1 -> 0; base.a: 0; base.b: 0; a is gone; b is gone",
    );
}

/// P11, R16.
#[test]
fn tend_serves_the_queues_of_free_locks() {
    check(
        "a release finds more dead processes in the first queue
        + a = {A 1} /50000; b = {A 1} /50000; heard base.b:@B; line.a = [x1..17] /150000; line.b = [B] /150000
        > release A -> [tend 0 1]; base.a:x1..16: G;
            base.b:B: G B now+16us now 1500 fence; b = {B 1} /1500; fence = now+16us; line.a = [x17@17] /150000;
            a is gone; line.b is gone
        > tend -> -1; base.a:x17: G x17 now+17us now 1500 fence; fence = now+17us; line.a is gone

        in the second queue
        + a = {A 1} /50000; b = {A 1} /50000; heard base.a:@B; line.b = [x1..17] /150000; line.a = [B] /150000
        > release A -> [tend 0 1]; base.a:B: G B now now 1500 fence; base.b:x1..16: G; a = {B 1} /1500; fence = now+16us; line.b = [x17@17] /150000;
            b is gone; line.a is gone
        > tend -> -1; base.b:x17: G x17 now+17us now 1500 fence; fence = now+17us; line.b is gone

        free locks
        + heard base.b:@B; line.a = [x1..17] /150000; line.b = [B] /150000
        > tend -> [tend 0 -1]; base.a:x1..16: G;
            base.b:B: G B now+16us now 1500 fence; b = {B 1} /1500; fence = now+16us; line.a = [x17@17] /150000;
            line.b is gone
        > tend -> -1; base.a:x17: G x17 now+17us now 1500 fence; fence = now+17us; line.a is gone

        free locks, with the dead processes in the second queue
        + heard base.a:@B; line.b = [x1..17] /150000; line.a = [B] /150000
        > tend -> [tend 0 -1]; base.a:B: G B now now 1500 fence; base.b:x1..16: G; a = {B 1} /1500; fence = now+16us; line.b = [x17@17] /150000;
            line.a is gone
        > tend -> -1; base.b:x17: G x17 now+17us now 1500 fence; fence = now+17us; line.b is gone

        both are granted
        + heard base.a:@B base.b:@C; line.a = [B] /150000; line.b = [C] /150000
        > tend -> -1; base.a:B: G B now now 1500 fence; base.b:C: G C now+1us now 1500 fence; a = {B 1} /1500;
            b = {C 1} /1500; fence = now+1us; line.a is gone; line.b is gone

        a lock that is held stays as it is, and so does one without a queue
        + a = {D 1} /900; heard base.a:@B; line.a = [B] /150000; wake.b = {turn 1} /60000
        > tend -> -1

        R8: at maxmemory
        + heard base.b:@B; line.b = [B] /150000; full
        > tend -> -1; base.b:B: G B now now 1500 fence; b = {B 1} /1500; fence = now; line.b is gone

        L5: in a turn of Redisson's clients
        + heard base.b:@B; line.b = [B] /150000; wake.b = {turn 0, until now+2ms} /60000
        > tend -> -1

        a foreign key in the place of a queue does not stop the others
        + line.a = x; heard base.b:@C; line.b = [C] /150000
        > tend -> -1; base.b:C: G C now now 1500 fence; b = {C 1} /1500; fence = now; line.b is gone",
    );
}
