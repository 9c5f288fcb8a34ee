//! Made-up blocks, in milliseconds.

use super::*;

fn order(line: &str) -> Order {
    line.parse().unwrap()
}

/// Two tasks of one name, a block of 100 ms.
fn two() -> Order {
    order("lock x 1 1 2 0 0 0 100")
}

/// Times in milliseconds: process, task, asked, granted, releasing, released.
fn judged(processes: usize, order: &Order, turns: &[[usize; 6]], vain: &[usize]) -> Figures {
    let mut told = Told::default();
    for [process, task, times @ ..] in turns {
        let [asked, granted, releasing, released] = times.map(|ms| ms * 1_000_000);
        let line = format!("{asked} {granted} {releasing} {released} {task}");
        told.hear(*process, order, &line).unwrap();
    }
    for asked in vain {
        let line = format!("{} - - - 1", asked * 1_000_000);
        told.hear(0, order, &line).unwrap();
    }
    told.judged(processes, order)
}

#[test]
fn a_handoff_is_a_grant_after_that_of_another_task() {
    let turns = [
        [0, 0, 0, 1, 2, 3],
        [0, 0, 3, 4, 5, 6],
        [0, 1, 0, 7, 8, 9],
        [0, 0, 6, 11, 12, 13],
    ];
    let figures = judged(1, &two(), &turns, &[]);
    assert_eq!((figures.grants, figures.handoffs), (4, 2));
    assert!((figures.seconds - 0.1).abs() < 1e-9, "{figures:?}");
}

#[test]
fn a_gap_is_from_the_call_of_a_release_to_the_grant_of_another() {
    // After its own hold the first task waits 2 ms; that is no gap.
    let turns = [
        [0, 0, 0, 1, 2, 3],
        [0, 0, 3, 4, 5, 6],
        [0, 1, 0, 12, 13, 14],
    ];
    assert_eq!(judged(1, &two(), &turns, &[]).gap, Some(7000.0));
    assert_eq!(judged(1, &two(), &turns[..2], &[]).gap, None);
}

#[test]
fn names_are_judged_by_themselves() {
    let turns = [[0, 0, 0, 1, 5, 6], [0, 1, 0, 2, 6, 7], [0, 0, 7, 8, 9, 9]];
    let order = order("lock x 2 1 2 0 0 0 100");
    let figures = judged(1, &order, &turns, &[]);
    assert_eq!((figures.handoffs, figures.overlaps), (0, 0));
    assert_eq!(judged(1, &two(), &turns, &[]).overlaps, 1);
}

#[test]
fn two_holders_at_once_are_counted() {
    let turns = [[0, 0, 0, 1, 5, 6], [0, 1, 0, 4, 6, 7], [0, 0, 6, 7, 8, 9]];
    assert_eq!(judged(1, &two(), &turns, &[]).overlaps, 1);
    // A wall clock that is off by less than its tolerance counts no second holder.
    let mut told = Told::default();
    for line in ["0 1000 50000 60000 0", "0 45000 70000 80000 1"] {
        told.hear(0, &two(), line).unwrap();
    }
    assert_eq!(told.judged(1, &two()).overlaps, 0);
    let read = order("read x 1 1 2 0 0 0 100");
    assert_eq!(judged(1, &read, &turns, &[]).overlaps, 0);
}

#[test]
fn more_holders_than_permits_are_counted() {
    let turns = [
        [0, 0, 0, 1, 9, 9],
        [0, 1, 0, 2, 4, 5],
        [0, 2, 0, 3, 9, 9],
        [0, 1, 0, 5, 9, 9],
    ];
    let permits = |n| order(&format!("leased x 1 1 3 {n} 0 0 100"));
    assert_eq!(judged(1, &permits(3), &turns, &[]).overlaps, 0);
    assert_eq!(judged(1, &permits(2), &turns, &[]).overlaps, 2);
}

#[test]
fn who_got_nothing_starved_and_waited_to_the_end() {
    let figures = judged(1, &two(), &[[0, 0, 0, 1, 2, 3]], &[20]);
    assert_eq!(figures.starved, 1);
    assert_eq!(figures.wait.max, 80_000.0);
    assert_eq!(figures.wait.p50, 1000.0);
}

#[test]
fn processes_are_merged_by_time() {
    // Each process has a task 0: they are two.
    let turns = [
        [0, 0, 0, 1, 2, 3],
        [0, 1, 0, 7, 8, 9],
        [1, 0, 0, 4, 5, 6],
        [1, 1, 0, 10, 11, 12],
    ];
    let figures = judged(2, &two(), &turns, &[]);
    assert_eq!((figures.grants, figures.handoffs), (4, 3));
    assert_eq!(figures.gap, Some(2000.0));
    assert_eq!(figures.starved, 0);
}

#[test]
fn quantiles_are_values_that_occurred() {
    let hundred = quantiles((1..=100).map(|n| n * 1000)).unwrap();
    assert_eq!((hundred.p50, hundred.p99, hundred.max), (50.0, 99.0, 100.0));
    let three = quantiles([3000, 1000, 2000].into_iter()).unwrap();
    assert_eq!((three.p50, three.p99, three.max), (2.0, 3.0, 3.0));
    let one = quantiles([7000].into_iter()).unwrap();
    assert_eq!((one.p50, one.p99, one.max), (7.0, 7.0, 7.0));
    assert_eq!(quantiles([].into_iter()), None);
}

#[test]
fn nonsense_is_refused() {
    for line in ["", "1 2 3 0", "1 2 x 4 0", "4 3 2 1 0", "ready"] {
        assert!(Told::default().hear(0, &two(), line).is_err(), "{line}");
    }
}
