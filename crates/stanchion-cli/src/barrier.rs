//! `stanchion barrier`: waits for the other parties, and becomes a command.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;
use stanchion::barrier::{InvalidBarrier, OnLeave, Passed, WaitOptions};
use stanchion::{BarrierError, Client, CyclicBarrier};

use crate::connect::{SHUTDOWN, ServerArgs};
use crate::exit::{self, Failure, Library};
use crate::limit::become_command;
use crate::messages;
use crate::output;
use crate::run::acquire::{Wait, parse_wait};
use crate::run::signals::Signals;
use crate::wording::in_json;

/// Run a command when all parties have arrived.
///
/// Waits until N have come, on whatever machines, and then becomes COMMAND, or ends without one. The next N that come are the next round. A
/// party that is killed counts for up to 15 s.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0     all are here; with a command its own code
  2     the command line is wrong
  69    the server cannot be reached
  73    the round broke: a party left, timed out or died (--on-leave break)
  75    not all have come within --wait
  78    the server or the rules refuse (rights, another number of parties, …)
  126   the command cannot be executed
  127   the command was not found

Examples:
  stanchion barrier step2 --parties 4 -- ./step2.sh            all four machines begin it together
  stanchion barrier step2 --parties 4 --wait 10m || exit       not for longer than ten minutes
  stanchion barrier commit --parties 3 --on-leave break        all three, or none of them
  stanchion status step2                                       how many are here")]
pub(crate) struct BarrierArgs {
    /// The barrier's name.
    name: String,
    /// The number of parties, the same for all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    parties: u32,
    /// The time to wait: a duration, `forever`, or 0 to ask once.
    #[arg(long, short, visible_alias = "timeout", value_name = "DURATION", default_value = "forever", value_parser = parse_wait)]
    wait: Wait,
    /// The effect on the others when a waiting party leaves. The first to arrive in a round decides.
    #[arg(long, value_enum, default_value = "free")]
    on_leave: Rule,
    /// Print one line of JSON, before the command begins.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
    /// The command and its arguments; see `stanchion run`. It finds the round in STANCHION_GENERATION, and its own number in the round, 1 to N, in
    /// STANCHION_ARRIVAL.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// The effect on the others when a waiting party leaves.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Rule {
    /// They wait on, for another party.
    Free,
    /// The round breaks for all.
    Break,
}

/// The JSON of a round.
#[derive(Debug, Serialize)]
struct Line<'a> {
    name: &'a str,
    generation: u64,
    arrival: u32,
    last: bool,
}

pub(crate) async fn barrier(args: BarrierArgs) -> Result<u8, Failure> {
    let client = args.server.connect().await?;
    let name = in_json(&client.name(&args.name).map_err(Library)?);
    let mut signals = Signals::listen()?;
    let waited = tokio::select! {
        waited = wait(&client, &args) => Ok(waited),
        signal = signals.next() => Err(signal),
    };
    // Shut down before the command starts, because the command may run for a long time. The shutdown also removes this party's place.
    client.shutdown(SHUTDOWN).await;
    let passed = match waited {
        Ok(passed) => passed?,
        Err(signal) => return Ok(exit::of_signal(signal.as_raw())),
    };
    if args.json {
        output::json_line(&Line {
            name: &name,
            generation: passed.generation(),
            arrival: passed.arrival(),
            last: passed.is_last(),
        })?;
    }
    let Some((command, words)) = args.command.split_first() else {
        return Ok(exit::SUCCESS);
    };
    let round = [
        ("STANCHION_GENERATION", passed.generation().to_string()),
        ("STANCHION_ARRIVAL", passed.arrival().to_string()),
    ];
    Err(become_command(command, words, round))
}

async fn wait(client: &Client, args: &BarrierArgs) -> Result<Passed, Failure> {
    let barrier = CyclicBarrier::new(client, &args.name, args.parties).map_err(invalid)?;
    let mut options = WaitOptions::new().on_leave(match args.on_leave {
        Rule::Free => OnLeave::Free,
        Rule::Break => OnLeave::Break,
    });
    match args.wait {
        Wait::Forever => {}
        Wait::AtMost(most) => options = options.timeout(most),
        Wait::No => options = options.timeout(Duration::ZERO),
    }
    barrier
        .wait_with(options)
        .await
        .map_err(|error| failure(error, args))
}

/// A name or a number of parties that the library rejects.
pub(crate) fn invalid(error: InvalidBarrier) -> Failure {
    match error {
        InvalidBarrier::Name(error) => Library(error).into(),
        error => Failure::new(exit::USAGE, error),
    }
}

fn failure(error: BarrierError, args: &BarrierArgs) -> Failure {
    match error {
        BarrierError::TimedOut { waited, .. } => {
            let missing = messages::parties_missing(&args.name, args.parties);
            let text = match args.wait {
                Wait::No => missing,
                _ => messages::gave_up(&missing, waited),
            };
            Failure::new(exit::NOT_ACQUIRED, text)
        }
        BarrierError::Acquire(error) => Library(error).into(),
        BarrierError::Release(error) => Library(error).into(),
        BarrierError::Broken { .. } | BarrierError::Lost { .. } => Failure::new(exit::LOST, error),
        error => Failure::new(exit::CONFIG, error),
    }
}
