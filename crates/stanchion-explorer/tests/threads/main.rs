//! Thread models: the table of local queues, and their mutexes, under many orders of threads.
//!
//! `waiting/shared.rs` of the core is compiled here with the mutex of `shuttle`, which lets the tasks of a model run in a random order, one step at a
//! time. A model has tasks that join one queue, take their turns, leave, hand their hold over, release it, or come without a place. Time does
//! not pass, so no poll repairs a lost wake-up: if all tasks sleep, shuttle reports a deadlock.
//!
//! Judged: one holder at a time (P1), no task that sleeps while the name is free (P4), nothing left at the end (P3), and no hold that is
//! dropped under a queue's mutex (invariant 4 of `lock_entry.rs`), which would lock the mutex twice.

#[path = "../../../stanchion-core/src/waiting/shared.rs"]
#[expect(dead_code, reason = "the core also keeps its timer under the mutex")]
mod shared;

/// The queue of the core.
mod queue {
    pub(crate) use stanchion_client::local_queue::*;
}

/// The mutex of the models, for `shared.rs`.
mod sync {
    pub(crate) use shuttle::sync::{Mutex, MutexGuard};
    pub(crate) use std::sync::PoisonError;
}

mod model;
#[path = "../shared/wish.rs"]
mod wish;

use std::sync::Arc;
use std::task::Poll;

use queue::{News, Outcome};
use shared::{Host as _, State};
use shuttle::rand::{Rng as _, thread_rng};
use shuttle::thread;

use model::{Entry, Hold, READ, WRITE, World};
use wish::Wish;

/// Acquires, and returns the hold. `None`: the task gave up.
fn acquire(world: &Arc<World>, name: Wish, gives_up: bool) -> Option<Hold> {
    let (entry, place, ask) = world.join(name);
    if let Some(ask) = ask {
        world.ask(&entry, ask);
    }
    loop {
        if gives_up && thread_rng().gen_bool(0.3) {
            let left = |state: &mut State<Entry>| state.queue.leave(world, place);
            drop(world.table.event(&entry, left));
            return None;
        }
        let waker = thread::current();
        let news = world
            .table
            .event(&entry, |state| state.queue.poll(world, place, waker));
        match news {
            Poll::Pending => thread::park(),
            Poll::Ready(News::Waits) => {}
            Poll::Ready(News::Over(Outcome::Granted(hold))) => return Some(hold),
            // Its hold was taken from it.
            Poll::Ready(News::Over(_)) => return acquire(world, name, gives_up),
        }
    }
}

/// Acquires without a place, as a call that does not wait.
fn try_acquire(world: &Arc<World>) -> Option<Hold> {
    let entry = world.visit();
    let own = world.owner(WRITE);
    let hold = world.server.acquire(&own).then(|| world.begin(&entry, own));
    if let Some(hold) = &hold {
        world.table.event(&entry, |state| {
            state.queue.acquired_without_place(world, hold);
        });
    }
    world.leave(&entry);
    hold
}

/// A task of the model: it acquires twice, and holds for a few steps.
fn task(world: &Arc<World>, name: Wish, gives_up: bool) {
    for _ in 0..2 {
        if let Some(hold) = acquire(world, name, gives_up) {
            world.server.is_held_by(&hold);
            thread::yield_now();
            world.server.is_held_by(&hold);
            drop(hold);
        }
    }
}

type Task = fn(&Arc<World>);

const ACQUIRES: Task = |world| task(world, WRITE, false);
const GIVES_UP: Task = |world| task(world, WRITE, true);
const READS: Task = |world| task(world, READ, false);
const TRIES: Task = |world| drop((try_acquire(world), try_acquire(world)));
const SHUTS_DOWN: Task = |world| {
    let entries: Vec<Arc<Entry>> = world
        .table
        .entries
        .iter()
        .map(|it| Arc::clone(&it))
        .collect();
    for entry in entries {
        let holds = entry.state().queue.take_untaken();
        drop(holds);
    }
};

fn explore(tasks: [Task; 3]) {
    shuttle::check_random(move || run(tasks), 20_000);
    shuttle::check_pct(move || run(tasks), 5_000, 3);
}

fn run(tasks: [Task; 3]) {
    let world = World::new();
    let running = tasks.map(|task| {
        let world = Arc::clone(&world);
        thread::spawn(move || task(&world))
    });
    for task in running {
        task.join().unwrap_or_default();
    }
    world.settles();
    world.is_at_rest();
}

#[test]
fn tasks_that_take_turns() {
    explore([ACQUIRES; 3]);
}

#[test]
fn tasks_that_give_up() {
    explore([ACQUIRES, GIVES_UP, GIVES_UP]);
}

/// A reader does not keep its queue in the table.
#[test]
fn readers_and_a_writer() {
    explore([ACQUIRES, READS, READS]);
}

#[test]
fn calls_that_do_not_wait() {
    explore([ACQUIRES, GIVES_UP, TRIES]);
}

#[test]
fn a_shutdown_takes_the_holds_that_no_task_has_taken() {
    explore([ACQUIRES, GIVES_UP, SHUTS_DOWN]);
}
