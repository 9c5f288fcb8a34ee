//! The identity of a state: a hash in which times count only by their distance from now and their order.

use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher as _;

use crate::runner::{Runner, text};
use crate::world::{Life, World};
use crate::{Micros, Process};

/// The digits of a time in microseconds and in milliseconds: see [`Micros`].
const DIGITS: [usize; 2] = [16, 13];

/// Returns the places, lengths and values of the times in `text`, in order.
pub(crate) fn times(text: &[u8]) -> Vec<(usize, usize, Micros)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let digits = text[at..].iter().take_while(|b| b.is_ascii_digit());
        let length = digits.count();
        if DIGITS.contains(&length) {
            let value = |sum, digit| sum * 10 + Micros::from(digit - b'0');
            let digits = text[at..at + length].iter().copied();
            let scale = if length == DIGITS[0] { 1 } else { 1000 };
            found.push((at, length, digits.fold(0, value) * scale));
        }
        at += length + 1;
    }
    found
}

/// Returns a hash of `text` in which each time is replaced by its distance from `now` in whole milliseconds, and by its rank among all
/// times of the text.
///
/// Within a millisecond only the order of times matters: the world's clock moves by a microsecond for each script, so that arrivals
/// differ, and all limits of the protocol are whole milliseconds. Thus paths of different lengths lead to equal states.
pub(crate) fn hash(text: &[u8], now: Micros) -> u128 {
    let times = times(text);
    let mut ranks: Vec<Micros> = times.iter().map(|(_, _, time)| *time).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let (mut low, mut high) = (DefaultHasher::new(), DefaultHasher::new());
    high.write_u8(1);
    let mut feed = |bytes: &[u8]| {
        low.write(bytes);
        high.write(bytes);
    };
    let mut at = 0;
    for (place, length, time) in times {
        feed(&text[at..place]);
        let rank = ranks.partition_point(|other| *other < time);
        feed(&(time / 1000).wrapping_sub(now / 1000).to_le_bytes());
        feed(&rank.to_le_bytes());
        at = place + length;
    }
    feed(&text[at..]);
    u128::from(low.finish()) << 64 | u128::from(high.finish())
}

impl<P: Process> World<P> {
    /// Returns the identity of this state.
    ///
    /// Interchangeable processes are sorted by their texts, and their ids are replaced by their ranks. States that remain apart
    /// although an exchange of processes makes them equal cost time, and nothing else.
    pub(crate) fn identity(&mut self, runner: &Runner) -> u128 {
        for (i, known) in self.texts.iter_mut().enumerate() {
            let own = |text: String| match runner.ids.get(i) {
                Some(id) => text.replace(id, "me"),
                None => text,
            };
            let node = &self.nodes[i];
            known.get_or_insert_with(|| match node.life {
                Life::Running => own(format!("|{node:?}")).into(),
                // The knowledge of a process that has ended makes no difference.
                life => format!("|{life:?}").into(),
            });
        }
        let mut order: Vec<_> = (0..self.nodes.len()).collect();
        if !runner.ids.is_empty() {
            order.sort_by_key(|i| &self.texts[*i]);
        }
        let rank = |process: usize| order.iter().position(|i| *i == process);
        let renamed = |mut text: String| {
            for (i, id) in runner.ids.iter().enumerate() {
                if text.contains(id) {
                    text = text.replace(id, &format!("#{}", rank(i).unwrap_or_default()));
                }
            }
            text
        };
        let connection = |number: u64| rank(usize::try_from(number).unwrap_or_default());
        let mut server = Vec::new();
        let label = |number| connection(number).unwrap_or_default() as u64;
        self.server.canonical(&label, &mut server);
        let server = renamed(String::from_utf8_lossy(&server).into_owned());
        let mut parts: Vec<_> = server.split('\n').map(str::to_owned).collect();
        parts.sort_unstable();
        let (now, token, faults) = (self.now, self.last_token, self.faults);
        parts.push(format!("{now}|{token}|{faults:?}{}", self.deadlines));
        let nodes = order.iter().filter_map(|i| self.texts[*i].as_deref());
        parts.extend(nodes.map(str::to_owned));
        let mut requests: Vec<_> = self.requests.iter().collect();
        // Stable: subscriptions of one process stay in order.
        requests.sort_by_key(|r| (rank(r.process), r.request, r.orphan));
        parts.extend(requests.iter().map(|r| {
            let (process, orphan) = (rank(r.process), r.orphan);
            format!("{process:?}{}{orphan}{:?}", r.request, r.action)
        }));
        let mut answers: Vec<_> = self.answers.iter().collect();
        answers.sort_by_key(|a| (rank(a.process), a.request));
        parts.extend(answers.iter().map(|a| {
            let reply = a.reply.as_ref().map(text);
            format!("{:?}{}{reply:?}", rank(a.process), a.request)
        }));
        // Other processes may know an id, too.
        hash(renamed(parts.join("\n")).as_bytes(), self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::hash;

    const NOW: u64 = 1_800_000_000_000_000;

    fn of(shift: u64, times: [u64; 2]) -> u128 {
        let [a, b] = times.map(|time| NOW + shift + time);
        hash(format!("a {a}, b {b};").as_bytes(), NOW + shift)
    }

    #[test]
    fn times_count_by_milliseconds_from_now_and_by_order() {
        assert_eq!(of(0, [1, 2]), of(0, [3, 7]), "order");
        assert_ne!(of(0, [1, 2]), of(0, [2, 1]), "another order");
        assert_ne!(of(0, [1, 2]), of(0, [1, 1]), "equal times");
        assert_eq!(of(0, [1, 5000]), of(2_000_000, [1, 5001]), "shifted");
        assert_ne!(of(0, [1, 5000]), of(0, [1, 6000]), "another millisecond");
        let millis = |shift: u64| hash(format!("{};", (NOW + shift) / 1000).as_bytes(), NOW);
        assert_ne!(millis(0), millis(1000), "milliseconds since the epoch");
    }
}
