//! The pace of a scan: the size of its steps, and the pause after each.

use std::collections::VecDeque;
use std::time::Duration;

/// A step should cost the server half of the millisecond that none may exceed.
const AIM: Duration = Duration::from_micros(500);
const MOST: u32 = 400;
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
    /// The length of the pause, in multiples of the time that the work took.
    rests: u32,
    round_trip: Duration,
    /// The time for each key in the last steps.
    costs: VecDeque<Duration>,
}

impl Pace {
    /// A pace that takes `duty` percent of the server's time. `round_trip`: the time that a call takes without any work.
    pub(super) fn new(duty: u32, round_trip: Duration) -> Self {
        Self {
            count: FIRST,
            rests: (100 / duty.clamp(1, 100)) - 1,
            round_trip,
            costs: VecDeque::with_capacity(STEPS),
        }
    }

    /// The number of keys for the next step.
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// Adjusts the pace to a step that took `time`, and returns the pause after it.
    pub(super) fn took(&mut self, time: Duration) -> Duration {
        self.round_trip = self.round_trip.min(time);
        if self.costs.len() == STEPS {
            self.costs.pop_front();
        }
        self.costs.push_back((time - self.round_trip) / self.count);
        let cost = self.cost();
        let work = cost * self.count;
        let fits = AIM.as_nanos() / cost.as_nanos().max(1);
        // The step grows by an eighth at a time, and shrinks at once: the next step must not take as long.
        let grown = self.count + self.count / 8 + 1;
        let fits = u32::try_from(fits).unwrap_or(MOST).min(grown);
        self.count = fits.clamp(LEAST, MOST);
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

    /// Runs a scan of `keys` on a server that takes `nanos` for a key. Every `noisy` steps the client gets no processor for 10 ms.
    fn run(mut keys: u32, nanos: u32, trip: Duration, noisy: Option<u32>) -> Run {
        let mut pace = Pace::new(5, trip);
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
            run.rest += pace.took(trip + time + noise);
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
    fn the_duty_is_kept_and_no_step_is_long_however_slow_the_server_and_far_the_client() {
        for nanos in [500, 2000, 10_000] {
            for trip in [50, 20_000].map(Duration::from_micros) {
                let run = run(1_000_000, nanos, trip, None);
                let (duty, longest) = (duty(&run), run.longest);
                assert!(
                    (0.04..0.051).contains(&duty),
                    "{nanos} ns a key, {trip:?}: {duty}"
                );
                assert!(
                    longest < Duration::from_millis(1),
                    "{nanos} ns a key: {longest:?}"
                );
            }
        }
    }

    #[test]
    fn a_far_server_is_not_rested_for_the_way() {
        let near = run(100_000, 2000, Duration::from_micros(50), None);
        let far = run(100_000, 2000, Duration::from_millis(20), None);
        assert_eq!(near.rest, far.rest);
    }

    #[test]
    fn a_busy_client_does_not_make_the_server_rest() {
        let run = run(100_000, 2000, Duration::from_micros(50), Some(3));
        assert!(duty(&run) > 0.04, "{}", duty(&run));
    }
}
