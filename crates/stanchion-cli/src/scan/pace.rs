//! The pace of a scan: the size of its steps, and the pause after each.

use std::collections::VecDeque;
use std::time::Duration;

/// A step should cost the server half of the millisecond that none may exceed.
const AIM: Duration = Duration::from_micros(500);
/// The most keys of a step: of a listing, and of a read.
const MOST: [u32; 2] = [2000, 400];
const LEAST: u32 = 20;
const FIRST: u32 = 50;
/// A server that answers late has other work, so the scan pauses for longer, but not longer than this.
const LONGEST: Duration = Duration::from_millis(500);
/// The median of this number of steps is the cost of a key. A single step may have waited for a processor, so its time is not reliable.
const STEPS: usize = 15;

/// The pace of one server's scan.
#[derive(Debug)]
pub(super) struct Pace {
    count: u32,
    most: u32,
    /// The length of the pause, in multiples of the time that the work took.
    rests: u32,
    /// The time for each key in the last steps.
    costs: VecDeque<Duration>,
}

impl Pace {
    /// The pace of requests that list keys, which takes `duty` percent of the server's time.
    pub(super) fn of_lists(duty: u32) -> Self {
        Self::new(MOST[0], duty)
    }

    /// The pace of requests that read keys.
    pub(super) fn of_reads(duty: u32) -> Self {
        Self::new(MOST[1], duty)
    }

    fn new(most: u32, duty: u32) -> Self {
        Self {
            count: FIRST,
            most,
            rests: (100 / duty.clamp(1, 100)) - 1,
            costs: VecDeque::with_capacity(STEPS),
        }
    }

    /// The number of keys for the next step.
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// Adjusts the pace to a step of `keys` that took the server `time`, and returns the pause after it.
    pub(super) fn took(&mut self, time: Duration, keys: u32) -> Duration {
        let keys = keys.max(1);
        if self.costs.len() == STEPS {
            self.costs.pop_front();
        }
        self.costs.push_back(time / keys);
        let cost = self.cost();
        let work = cost * keys;
        let fits = AIM.as_nanos() / cost.as_nanos().max(1);
        // The step grows by an eighth at a time, and shrinks at once: the next step must not take as long.
        let grown = self.count + self.count / 8 + 1;
        let fits = u32::try_from(fits).unwrap_or(self.most).min(grown);
        self.count = fits.clamp(LEAST, self.most);
        (work * self.rests).min(LONGEST)
    }

    fn cost(&self) -> Duration {
        let mut sorted: Vec<Duration> = self.costs.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Run {
        work: Duration,
        rest: Duration,
        longest: Duration,
    }

    /// Runs a scan of `keys` on a server that takes `nanos` for a key. Every `noisy` steps the server gets no processor for 10 ms.
    fn run(mut keys: u32, nanos: u32, noisy: Option<u32>) -> Run {
        let mut pace = Pace::of_lists(5);
        let [work, rest, longest] = [Duration::ZERO; 3];
        let mut run = Run {
            work,
            rest,
            longest,
        };
        for number in 1.. {
            let step = pace.count().min(keys);
            keys -= step;
            let time = Duration::from_nanos(u64::from(step) * u64::from(nanos));
            run.work += time;
            run.longest = run.longest.max(time);
            let late = noisy.is_some_and(|noisy| number % noisy == 0);
            let noise = if late {
                Duration::from_millis(10)
            } else {
                Duration::ZERO
            };
            run.rest += pace.took(time + noise, step);
            if keys == 0 {
                break;
            }
        }
        run
    }

    fn duty(run: &Run) -> f64 {
        run.work.as_secs_f64() / (run.work + run.rest).as_secs_f64()
    }

    #[test]
    fn the_duty_is_kept_and_no_step_is_long_however_slow_the_server() {
        for nanos in [500, 2000, 10_000] {
            let run = run(1_000_000, nanos, None);
            let (duty, longest) = (duty(&run), run.longest);
            assert!((0.04..0.051).contains(&duty), "{nanos} ns a key: {duty}");
            assert!(
                longest < Duration::from_millis(1),
                "{nanos} ns a key: {longest:?}"
            );
        }
    }

    #[test]
    fn a_step_grows_until_it_takes_half_a_millisecond() {
        // 2000 keys at most: 333 steps of them, and those of the beginning.
        let run = run(1_000_000, 250, None);
        assert!(run.longest == AIM, "{:?}", run.longest);
    }

    #[test]
    fn a_server_without_a_processor_for_a_moment_is_not_rested_for_that() {
        let run = run(100_000, 2000, Some(3));
        assert!(duty(&run) > 0.04, "{}", duty(&run));
    }
}
