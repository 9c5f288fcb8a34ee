//! The search: breadth first, so that the first violation has a shortest trace; or walks at random.

use std::collections::{HashSet, VecDeque};
use std::fmt;

use fastrand::Rng;

use crate::runner::{Runner, name};
use crate::world::World;
use crate::{Configuration, Process};

/// The number of lines of a trace that are printed.
const LONGEST_TRACE: usize = 150;

/// The result of an exploration.
#[derive(Clone, Debug)]
pub struct Report {
    /// The number of different states; of walks, that of all states passed.
    pub states: usize,
    /// The number of steps that were tried.
    pub steps: usize,
    /// The number of quiet states.
    pub quiet: usize,
    /// The number of steps to the farthest state.
    pub depth: usize,
    /// True if all reachable states were visited.
    pub is_complete: bool,
    /// The violation and the trace that leads to it.
    pub violation: Option<Violation>,
}

/// A broken rule.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The rule.
    pub rule: String,
    /// The events, one in a line.
    pub trace: Vec<String>,
}

/// A state in the order of discovery: its predecessor, and the number of the step that led from there.
struct Found {
    from: u32,
    step: u32,
    depth: u32,
}

/// Visits the states of a configuration until one breaks a rule, all are visited, or the bound is reached.
pub fn explore<P: Process>(configuration: &Configuration<P>) -> Report {
    let mut runner = Runner::new(configuration);
    let mut first = runner.begin(configuration);
    let mut visited = HashSet::from([first.identity(&runner)]);
    let mut found = vec![Found {
        from: 0,
        step: 0,
        depth: 0,
    }];
    let mut report = Report {
        states: 1,
        steps: 0,
        quiet: 0,
        depth: 0,
        is_complete: true,
        violation: None,
    };
    let mut open = VecDeque::from([(0, first)]);
    'search: while let Some((from, world)) = open.pop_front() {
        for (step, what) in (0..).zip(world.steps()) {
            report.steps += 1;
            let mut next = world.clone();
            next.apply(&mut runner, &what);
            next.judge(&configuration.change, &world);
            let is_new = visited.insert(next.identity(&runner));
            if !is_new && next.violation.is_none() {
                continue;
            }
            let depth = found[from as usize].depth + 1;
            let id = u32::try_from(found.len()).unwrap_or(u32::MAX);
            found.push(Found { from, step, depth });
            report.depth = depth as usize;
            report.quiet += usize::from(next.is_quiet());
            if let Err(rule) = check(configuration, &mut runner, &next) {
                let trace = trace_of(configuration, &mut runner, &path(&found, id));
                report.violation = Some(Violation { rule, trace });
                break 'search;
            }
            if found.len() >= configuration.most_states {
                report.is_complete = false;
                break 'search;
            }
            open.push_back((id, next));
        }
    }
    report.states = found.len();
    report
}

/// Walks at random through a configuration that is too large to be visited whole: `walks` times from the first state until no step is left, or a
/// state breaks a rule.
pub fn walk<P: Process>(configuration: &Configuration<P>, walks: u64, seed: u64) -> Report {
    let mut random = Rng::with_seed(seed);
    let mut runner = Runner::new(configuration);
    let first = runner.begin(configuration);
    let mut report = Report {
        states: 1,
        steps: 0,
        quiet: 0,
        depth: 0,
        is_complete: false,
        violation: None,
    };
    for _ in 0..walks {
        let (mut world, mut path) = (first.clone(), Vec::new());
        loop {
            let steps = world.steps();
            // The clock does not reach the next poll by itself, so a walk ends.
            let Some(step) = random.choice(0..steps.len()) else {
                break;
            };
            path.push(step);
            let before = world.clone();
            world.apply(&mut runner, &steps[step]);
            world.judge(&configuration.change, &before);
            report.steps += 1;
            report.quiet += usize::from(world.is_quiet());
            if let Err(rule) = check(configuration, &mut runner, &world) {
                let trace = trace_of(configuration, &mut runner, &path);
                report.violation = Some(Violation { rule, trace });
                return report;
            }
        }
        report.states += path.len();
        report.depth = report.depth.max(path.len());
    }
    report
}

/// Checks the rules in one state.
fn check<P: Process>(
    configuration: &Configuration<P>,
    runner: &mut Runner,
    world: &World<P>,
) -> Result<(), String> {
    if let Some(violation) = &world.violation {
        return Err(violation.clone());
    }
    (configuration.always)(world)?;
    if !world.is_quiet() {
        return Ok(());
    }
    let mut late = None;
    let mut later = |millis| {
        let mut world = world.clone();
        runner.log(|| format!("-- without a fault, {millis} ms later:"));
        world.settle(runner, &configuration.change, millis);
        late = late.take().or_else(|| world.violation.clone());
        world
    };
    let verdict = (configuration.quiet)(world, &mut later);
    // A step that broke a rule ended the time before its end, and is the cause.
    late.map_or(verdict, Err)
}

/// Returns the numbers of the steps that lead to a state.
fn path(found: &[Found], to: u32) -> Vec<usize> {
    let mut steps = Vec::new();
    let mut at = to as usize;
    while at != 0 {
        steps.push(found[at].step as usize);
        at = found[at].from as usize;
    }
    steps.reverse();
    steps
}

/// Runs the steps once more, and returns the trace.
fn trace_of<P: Process>(
    configuration: &Configuration<P>,
    runner: &mut Runner,
    path: &[usize],
) -> Vec<String> {
    // A server of its own: `begin` prepares an empty one.
    *runner = Runner::new(configuration);
    let mut world = runner.begin(configuration);
    runner.trace = Some(Vec::new());
    for step in path {
        if let Some(what) = world.steps().get(*step) {
            world.apply(runner, what);
        }
    }
    runner.log(|| "-- the state:".to_owned());
    for key in world.server.keys() {
        let content = world.server.content(key);
        runner.log(|| format!("{} = {content:?}", String::from_utf8_lossy(key)));
    }
    for (i, node) in world.nodes.iter().enumerate() {
        runner.log(|| format!("{}: {node:?}", name(i)));
    }
    // The rule of a quiet state adds what happens later.
    let _ = check(configuration, runner, &world);
    runner.trace.take().unwrap_or_default()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            states,
            steps,
            quiet,
            depth,
            ..
        } = self;
        let end = match (&self.violation, self.is_complete) {
            (Some(_), _) => "a rule is broken",
            (None, true) => "all visited, no violation",
            (None, false) => "cut off, no violation",
        };
        write!(
            f,
            "{states} states ({quiet} quiet), {steps} steps, depth {depth}: {end}"
        )?;
        let Some(violation) = &self.violation else {
            return Ok(());
        };
        write!(f, "\n{}", violation.rule)?;
        let mut number = 0;
        // A network without an end makes a trace without an end.
        for line in violation.trace.iter().take(LONGEST_TRACE) {
            if line.starts_with(['-', ' ']) {
                write!(f, "\n     {line}")?;
            } else {
                number += 1;
                write!(f, "\n{number:3}. {line}")?;
            }
        }
        Ok(())
    }
}
