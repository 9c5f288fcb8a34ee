//! `stanchion leader`: shows the leader of an election, once or at each change.

use std::io::IsTerminal as _;

use clap::Args;
use serde::Serialize;
use stanchion::Election;
use stanchion::election::{Candidate, Leader, Observed};

use crate::connect::ServerArgs;
use crate::exit::{self, Failure, Library};
use crate::messages;
use crate::output;
use crate::wording::{in_json, printable};

/// Show who leads an election.
///
/// Prints the value that the leader campaigned with, or proclaimed. Without --json that is all of standard output, for scripts:
/// `curl http://$(stanchion leader indexer)/`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0     a candidate leads
  1     nobody leads
  2     the command line is wrong
  69    the server cannot be reached
  78    the server or the rules refuse (rights, a name that belongs to something else, …)

Examples:
  stanchion leader indexer
  stanchion leader indexer --json      with the candidates
  stanchion leader indexer --watch     a line for each change, until it is interrupted")]
pub(crate) struct LeaderArgs {
    /// The election's name.
    name: String,
    /// Print a line for each change, the present state first.
    #[arg(long, short)]
    watch: bool,
    /// Print JSON, one line for each state.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Serialize)]
struct Line<'a> {
    name: &'a str,
    leader: Option<&'a Leader>,
    #[serde(skip_serializing_if = "Option::is_none")]
    candidates: Option<&'a [Candidate]>,
    /// The reason why the server could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<String>,
}

pub(crate) async fn leader(args: LeaderArgs) -> Result<u8, Failure> {
    let client = args.server.connect().await?;
    let election = Election::new(&client, &args.name).map_err(Library)?;
    let name = in_json(election.name());
    if args.watch {
        return watch(&args, &election, &name).await;
    }
    let leader = election.leader().await.map_err(Library)?;
    if args.json {
        let candidates = election.candidates().await.map_err(Library)?;
        output::json_line(&Line {
            name: &name,
            leader: leader.as_ref(),
            candidates: Some(&candidates),
            unknown: None,
        })?;
    } else if let Some(leader) = &leader {
        output::line(&value(leader))?;
    } else if std::io::stderr().is_terminal() {
        eprintln!("stanchion: {}", messages::led_by_none(&name));
    }
    Ok(if leader.is_some() {
        exit::SUCCESS
    } else {
        exit::NO
    })
}

async fn watch(args: &LeaderArgs, election: &Election, name: &str) -> Result<u8, Failure> {
    let mut leaders = election.observe();
    let mut leads = false;
    while let Some(observed) = leaders.next().await {
        let mut line = Line {
            name,
            leader: None,
            candidates: None,
            unknown: None,
        };
        let text = match &observed {
            Observed::Leader(leader) => {
                line.leader = Some(leader);
                format!("{} leads", value(leader))
            }
            Observed::Vacant => "nobody leads".into(),
            Observed::Unknown(error) => {
                line.unknown = Some(error.to_string());
                format!("unknown: {error}")
            }
            _ => continue,
        };
        leads = line.leader.is_some();
        if args.json {
            output::json_line(&line)?;
        } else {
            output::line(&text)?;
        }
        if let Observed::Unknown(error @ stanchion::QueryError::Rejected { .. }) = observed {
            return Err(Library(error).into());
        }
    }
    Ok(if leads { exit::SUCCESS } else { exit::NO })
}

/// The value in one line, because any client may have written it; the owner for a holder of the plain lock, which has no value.
pub(crate) fn value(leader: &Leader) -> String {
    printable(leader.value.as_deref().unwrap_or(leader.id.as_bytes()))
}
