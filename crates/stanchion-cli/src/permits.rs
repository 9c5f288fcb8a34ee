//! `stanchion permits`: sets the number of permits, and reclaims one.

use clap::{Args, Subcommand};
use serde::Serialize;
use stanchion::LeasedSemaphore;
use stanchion::semaphore::PermitId;

use crate::connect::ServerArgs;
use crate::exit::{self, Failure, Library};
use crate::look::not_permits;
use crate::output;
use crate::wording::{in_json, printable};

/// Change how many permits a name has, or take one back.
///
/// For the permits that `run --permits` takes. `stanchion status NAME` lists them.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0     done
  1     reclaim: nobody holds that permit
  2     the command line is wrong
  69    the server cannot be reached; if the answer was lost, it may have been done
  78    the server or the rules refuse (rights, a name that belongs to something else, …)

Examples:
  stanchion permits thumbs set 5
  stanchion permits thumbs reclaim 2f1d…e0    an id that `stanchion status thumbs` shows")]
pub(crate) struct PermitsArgs {
    /// The name.
    name: String,
    #[command(subcommand)]
    change: Change,
    /// Print one line of JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum Change {
    /// Set how many permits there are. Nobody loses one: if more are held, the next ones to be released disappear.
    Set {
        /// The number of permits.
        #[arg(value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
        permits: u32,
    },
    /// Take a permit back from its holder.
    ///
    /// A holder that is alive is told; if the message does not reach it, it learns of it at its next renewal, up to a third of
    /// its lease later. Until then it continues to work, next to the new holder of the permit.
    Reclaim {
        /// The permit's id.
        id: String,
    },
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Done<'a> {
    Set { before: i64, permits: u32 },
    Reclaimed { id: &'a str, was_held: bool },
}

#[derive(Debug, Serialize)]
struct Line<'a> {
    name: &'a str,
    #[serde(flatten)]
    done: Done<'a>,
}

pub(crate) async fn permits(args: PermitsArgs) -> Result<u8, Failure> {
    let client = args.server.connect().await?;
    let semaphore = LeasedSemaphore::new(&client, &args.name).map_err(Library)?;
    let name = in_json(semaphore.name());
    let shown = printable(&name);
    let (done, text) = match &args.change {
        Change::Set { permits } => {
            let before = match semaphore.set_total(*permits).await {
                Ok(before) => before,
                Err(error) => return Err(not_permits(&client, &args.name, error).await),
            };
            let text = format!("{shown}: {permits} permits; there were {before}");
            (
                Done::Set {
                    before,
                    permits: *permits,
                },
                text,
            )
        }
        Change::Reclaim { id } => {
            let parsed: PermitId = id.parse().map_err(|error| {
                Failure::new(exit::USAGE, format_args!("{id:?} is no permit: {error}"))
            })?;
            let was_held = semaphore.danger().reclaim(&parsed).await.map_err(Library)?;
            let text = if was_held {
                format!("{shown}: took {id} back")
            } else {
                format!("{shown}: nobody holds {id}")
            };
            (Done::Reclaimed { id, was_held }, text)
        }
    };
    let code = match done {
        Done::Reclaimed {
            was_held: false, ..
        } => exit::NO,
        _ => exit::SUCCESS,
    };
    if args.json {
        output::json_line(&Line { name: &name, done })?;
    } else {
        output::line(&text)?;
    }
    Ok(code)
}
