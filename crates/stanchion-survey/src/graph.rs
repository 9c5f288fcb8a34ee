//! Reduction of a graph of waits to the actors that wait for each other.
//!
//! An actor is stuck if none of its waits can end. A wait can end when enough of its blockers leave, and each actor that is not stuck
//! leaves some day. The reduction removes actors that are not stuck, one after the other. The remaining actors wait for each other.
//! A cycle alone is not a deadlock: with permits, an actor outside of the cycle may give back enough of them.

/// A wait of an actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// Number of the actor that waits.
    pub(crate) actor: usize,
    /// The actors that block the wait, each with the amount that it gives back when it leaves.
    pub(crate) blockers: Vec<(usize, u64)>,
    /// The amount that the blockers must give back.
    pub(crate) wanted: u64,
}

/// Returns which of `actors` actors are stuck. O(edges).
pub(crate) fn stuck(actors: usize, needs: &[Need]) -> Vec<bool> {
    let mut stuck = vec![false; actors];
    // For each blocker, the needs that it blocks.
    let mut blocked: Vec<Vec<(usize, u64)>> = vec![Vec::new(); actors];
    let mut given = vec![0_u64; needs.len()];
    for (at, need) in needs.iter().enumerate() {
        stuck[need.actor] = true;
        for (blocker, part) in &need.blockers {
            blocked[*blocker].push((at, *part));
        }
    }
    // Actors that leave, and have not given back their amounts yet.
    let mut leaving: Vec<usize> = (0..actors).filter(|actor| !stuck[*actor]).collect();
    for need in needs {
        if need.wanted == 0 && std::mem::take(&mut stuck[need.actor]) {
            leaving.push(need.actor);
        }
    }
    while let Some(actor) = leaving.pop() {
        for (at, part) in &blocked[actor] {
            given[*at] = given[*at].saturating_add(*part);
            let need = &needs[*at];
            if given[*at] >= need.wanted && std::mem::take(&mut stuck[need.actor]) {
                leaving.push(need.actor);
            }
        }
    }
    stuck
}

/// Returns the groups of stuck actors that wait for each other: for each actor the number of its group. Actors that only wait behind a
/// group are in no group.
pub(crate) fn knots(stuck: &[bool], needs: &[Need]) -> Vec<Option<usize>> {
    let actors = stuck.len();
    let mut inside = stuck.to_vec();
    let edges: Vec<(usize, usize)> = needs
        .iter()
        .flat_map(|need| {
            need.blockers
                .iter()
                .map(|(blocker, _)| (need.actor, *blocker))
        })
        .filter(|(from, to)| stuck[*from] && stuck[*to])
        .collect();
    // No stuck actor waits for these actors, so they are in no cycle.
    let mut waited_for = vec![0_usize; actors];
    let mut from: Vec<Vec<usize>> = vec![Vec::new(); actors];
    for (waiter, blocker) in &edges {
        waited_for[*blocker] += 1;
        from[*waiter].push(*blocker);
    }
    let mut outside: Vec<usize> = (0..actors)
        .filter(|actor| stuck[*actor] && waited_for[*actor] == 0)
        .collect();
    while let Some(actor) = outside.pop() {
        inside[actor] = false;
        for blocker in &from[actor] {
            waited_for[*blocker] -= 1;
            if waited_for[*blocker] == 0 {
                outside.push(*blocker);
            }
        }
    }
    // Connected actors form one group.
    let mut group: Vec<usize> = (0..actors).collect();
    let find = |group: &mut Vec<usize>, mut actor: usize| {
        while group[actor] != actor {
            group[actor] = group[group[actor]];
            actor = group[actor];
        }
        actor
    };
    for (waiter, blocker) in edges {
        if inside[waiter] && inside[blocker] {
            let (a, b) = (find(&mut group, waiter), find(&mut group, blocker));
            group[a.max(b)] = a.min(b);
        }
    }
    (0..actors)
        .map(|actor| inside[actor].then(|| find(&mut group, actor)))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// The need of an actor that waits until all `blockers` have left.
    fn all(actor: usize, blockers: &[usize]) -> Need {
        Need {
            actor,
            blockers: blockers.iter().map(|blocker| (*blocker, 1)).collect(),
            wanted: blockers.len() as u64,
        }
    }

    fn stuck_ones(actors: usize, needs: &[Need]) -> Vec<usize> {
        let stuck = stuck(actors, needs);
        (0..actors).filter(|actor| stuck[*actor]).collect()
    }

    #[test]
    fn two_actors_that_wait_for_each_other_and_the_waiter_behind_them_are_stuck() {
        let needs = [all(0, &[1]), all(1, &[0]), all(2, &[0]), all(3, &[4])];
        assert_eq!(stuck_ones(5, &needs), [0, 1, 2]);
        let knots = knots(&stuck(5, &needs), &needs);
        assert_eq!(knots, [Some(0), Some(0), None, None, None]);
    }

    #[test]
    fn three_in_a_circle_and_one_that_waits_for_itself() {
        let needs = [all(0, &[1]), all(1, &[2]), all(2, &[0]), all(3, &[3])];
        assert_eq!(stuck_ones(4, &needs), [0, 1, 2, 3]);
        let knots = knots(&stuck(4, &needs), &needs);
        assert_eq!(knots, [Some(0), Some(0), Some(0), Some(3)]);
    }

    #[test]
    fn a_chain_is_no_knot() {
        assert_eq!(
            stuck_ones(4, &[all(0, &[1]), all(1, &[2]), all(2, &[3])]),
            [0; 0]
        );
    }

    #[test]
    fn a_writer_waits_for_every_reader() {
        // One of the two readers waits for the writer's other lock, so the other reader's release is not enough.
        let needs = [all(0, &[1, 2]), all(1, &[0])];
        assert_eq!(stuck_ones(3, &needs), [0, 1]);
        assert_eq!(knots(&stuck(3, &needs), &needs), [Some(0), Some(0), None]);
    }

    #[test]
    fn one_permit_of_three_is_enough() {
        let need = |wanted| Need {
            actor: 0,
            blockers: vec![(1, 1), (2, 1), (3, 1)],
            wanted,
        };
        let both = [all(1, &[0]), all(2, &[0])];
        let with = |wanted| [vec![need(wanted)], both.to_vec()].concat();
        assert_eq!(stuck_ones(4, &with(1)), [0; 0]);
        assert_eq!(stuck_ones(4, &with(2)), [0, 1, 2]);
    }

    #[test]
    fn a_waiter_for_one_of_two_names_continues_with_either() {
        let needs = [all(0, &[1]), all(0, &[2]), all(1, &[0])];
        assert_eq!(stuck_ones(3, &needs), [0; 0]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// The stuck actors are the largest set in which no actor can continue with the amounts that actors outside of the set give back.
        #[test]
        fn what_is_stuck_is_the_largest_set_that_waits_for_itself(
            parts in vec((0_usize..6, vec((0_usize..6, 1_u64..3), 0..4), 0_u64..5), 0..9),
        ) {
            let needs: Vec<Need> = parts
                .into_iter()
                .map(|(actor, blockers, wanted)| {
                    // A need never wants more than its blockers have.
                    let all = blockers.iter().map(|(_, part)| part).sum();
                    Need { actor, blockers, wanted: wanted.min(all) }
                })
                .collect();
            let holds_itself = |set: u32| (0..6).filter(|actor| set >> actor & 1 == 1).all(|actor| {
                let mut own = needs.iter().filter(|need| need.actor == actor).peekable();
                own.peek().is_some() && own.all(|need| {
                    let outside = need.blockers.iter().filter(|(blocker, _)| set >> blocker & 1 == 0);
                    outside.map(|(_, part)| part).sum::<u64>() < need.wanted
                })
            });
            // Such sets are closed under union.
            let largest = (0..64_u32).filter(|set| holds_itself(*set)).fold(0, |all, set| all | set);
            let found = stuck(6, &needs);
            let found = (0..6).filter(|actor| found[*actor]).fold(0, |all, actor| all | 1 << actor);
            prop_assert_eq!(found, largest);
            // Each actor in a knot waits for an actor of this knot, and an actor of this knot waits for the first one.
            let knots = knots(&stuck(6, &needs), &needs);
            for (actor, knot) in knots.iter().enumerate().filter(|(_, knot)| knot.is_some()) {
                let within = |need: &&Need| need.blockers.iter().any(|(blocker, _)| knots[*blocker] == *knot);
                prop_assert!(needs.iter().filter(|need| need.actor == actor).any(|need| within(&need)));
                let waits = |need: &Need| need.blockers.iter().any(|(blocker, _)| *blocker == actor);
                prop_assert!(needs.iter().any(|need| knots[need.actor] == *knot && waits(need)));
            }
        }
    }
}
