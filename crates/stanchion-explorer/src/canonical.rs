//! The identity of a state: a hash in which times count only by their distance from now and their order.

use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher as _;

use crate::Micros;

/// The digits of a time: see [`Micros`].
const DIGITS: usize = 16;

/// Returns the places and values of the times in `text`, in order.
pub(crate) fn times(text: &[u8]) -> Vec<(usize, Micros)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let digits = text[at..].iter().take_while(|b| b.is_ascii_digit());
        let length = digits.count();
        if length == DIGITS {
            let value = |sum, digit| sum * 10 + Micros::from(digit - b'0');
            let digits = text[at..at + DIGITS].iter().copied();
            found.push((at, digits.fold(0, value)));
        }
        at += length + 1;
    }
    found
}

/// Returns a hash of `text` in which each time is replaced by its distance from `now` in whole milliseconds, and by its rank among all
/// times of the text.
///
/// Within a millisecond only the order of times matters: the world's clock moves by a microsecond for each script, so that arrivals
/// differ, and all limits of the protocol are whole milliseconds. So paths of different lengths lead to equal states.
pub(crate) fn hash(text: &[u8], now: Micros) -> u128 {
    let times = times(text);
    let mut ranks: Vec<Micros> = times.iter().map(|(_, time)| *time).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let (mut low, mut high) = (DefaultHasher::new(), DefaultHasher::new());
    high.write_u8(1);
    let mut feed = |bytes: &[u8]| {
        low.write(bytes);
        high.write(bytes);
    };
    let mut at = 0;
    for (place, time) in times {
        feed(&text[at..place]);
        let rank = ranks.partition_point(|other| *other < time);
        feed(&(time / 1000).wrapping_sub(now / 1000).to_le_bytes());
        feed(&rank.to_le_bytes());
        at = place + DIGITS;
    }
    feed(&text[at..]);
    u128::from(low.finish()) << 64 | u128::from(high.finish())
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
    }
}
