//! `stanchion status`: who holds a lock, and for how long.

use clap::Args;
use serde::Serialize;
use stanchion::{FencingToken, Holder, Lock, LockStatus};

use crate::connect::ServerArgs;
use crate::exit::{self, Failure, Library};
use crate::output;

/// Show whether a lock is held, by whom, and for how long.
///
/// It is what the server saw when asked; by the time you read it, it may have changed.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0     held or free; with --check: free
  1     with --check: held
  69    the server cannot be reached
  78    the server or the rules refuse (rights, a name that belongs to something else, …)

Examples:
  stanchion status nightly-report
  stanchion status nightly-report --json | jq .holder.remaining_ms
  stanchion status nightly-report --check >/dev/null && echo free")]
pub(crate) struct StatusArgs {
    /// The lock's name.
    name: String,
    /// Exit with 1 when it is held.
    #[arg(long)]
    check: bool,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn status(args: StatusArgs) -> Result<u8, Failure> {
    let client = args.server.connect().await?;
    let lock = Lock::new(&client, &args.name).map_err(Library)?;
    let status = lock.status().await.map_err(Library)?;
    let name = lock.name().to_string();
    if args.json {
        output::json_line(&StatusLine::new(&name, &status))?;
    } else {
        output::line(&describe(&name, &status))?;
    }
    Ok(if args.check && status.is_held() {
        exit::NO
    } else {
        exit::SUCCESS
    })
}

/// The JSON of a status.
#[derive(Debug, Serialize)]
struct StatusLine<'a> {
    name: &'a str,
    held: bool,
    holder: Option<HolderLine<'a>>,
    last_token: Option<FencingToken>,
}

/// The JSON of a holder.
#[derive(Debug, Serialize)]
pub(crate) struct HolderLine<'a> {
    owner: &'a str,
    hold_count: u32,
    remaining_ms: Option<u64>,
}

impl<'a> StatusLine<'a> {
    fn new(name: &'a str, status: &'a LockStatus) -> Self {
        Self {
            name,
            held: status.is_held(),
            holder: status.holder.as_ref().map(HolderLine::new),
            last_token: status.last_token,
        }
    }
}

impl<'a> HolderLine<'a> {
    pub(crate) fn new(holder: &'a Holder) -> Self {
        Self {
            owner: &holder.owner,
            hold_count: holder.hold_count,
            remaining_ms: holder.remaining.map(output::whole_millis),
        }
    }
}

fn describe(name: &str, status: &LockStatus) -> String {
    let mut lines = match &status.holder {
        None => vec![format!("{name}: free")],
        Some(holder) => vec![
            format!("{name}: held"),
            format!("  owner       {}", holder.owner),
            format!("  hold count  {}", holder.hold_count),
            format!("  lease       {}", lease_left(holder)),
        ],
    };
    if let Some(token) = status.last_token {
        lines.push(format!("  last token  {token}"));
    }
    lines.join("\n")
}

/// What is left of a holder's lease.
pub(crate) fn lease_left(holder: &Holder) -> String {
    match holder.remaining {
        Some(left) => format!("{} left", output::rough(left)),
        None => "has no end".into(),
    }
}
