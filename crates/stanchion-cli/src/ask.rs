//! `stanchion ask`: sends the holder of a lock a request to release it.

use clap::Args;
use serde::Serialize;
use stanchion::hold::Asked;
use stanchion::{FairLock, Lock, RwLock};

use crate::connect::ServerArgs;
use crate::exit::{self, Failure, Library};
use crate::look::{Kind, Seen, look};
use crate::output;
use crate::wording::{in_json, printable};

/// Ask the holder of a lock or read-write lock to give it back.
///
/// Takes nothing: the holder decides. `stanchion run` says on standard error that it was asked, and stops its command with
/// --on-request term.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0     a holder has heard it
  1     nobody holds it, or no holder has heard it
  2     the command line is wrong
  69    the server cannot be reached
  78    the server or the rules refuse (rights, a name that belongs to something else, …)

Examples:
  stanchion ask nightly-report
  stanchion ask deploy --reason 'a fix must go out'")]
pub(crate) struct AskArgs {
    /// The lock's name.
    name: String,
    /// Reason that the holder is told: at most 200 bytes.
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
    /// The lock's kind; detected if not given.
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Serialize)]
struct AskLine<'a> {
    name: &'a str,
    #[serde(flatten)]
    asked: Asked,
}

pub(crate) async fn ask(args: AskArgs) -> Result<u8, Failure> {
    let client = args.server.connect().await?;
    let reason = &args.reason;
    let asked = match look(&client, args.name.as_bytes(), args.kind).await? {
        Seen::Lock(_) => {
            let lock = Lock::new(&client, &args.name).map_err(Library)?;
            lock.request_release(reason).await
        }
        Seen::Fair(_) => {
            let lock = FairLock::new(&client, &args.name).map_err(Library)?;
            lock.request_release(reason).await
        }
        Seen::Rwlock(_) => {
            let rwlock = RwLock::new(&client, &args.name).map_err(Library)?;
            rwlock.request_release(reason).await
        }
        Seen::Told(facts) if !facts.kind.is_shared_out() => {
            let lock = Lock::new(&client, &args.name).map_err(Library)?;
            lock.request_release(reason).await
        }
        Seen::Told(_) => {
            let message = "nobody holds a limiter, so nobody can be asked";
            return Err(Failure::new(exit::CONFIG, message));
        }
        Seen::Semaphore(_) | Seen::Leased(_) | Seen::Latch(_) | Seen::Number(_) => {
            let message = "the holders of a semaphore or a latch cannot be asked";
            return Err(Failure::new(exit::CONFIG, message));
        }
    };
    let asked = asked.map_err(Library)?;
    let name = in_json(&client.name(&args.name).map_err(Library)?);
    if args.json {
        output::json_line(&AskLine { name: &name, asked })?;
    } else {
        output::line(&format!("{}: {}", printable(&name), outcome(&asked)))?;
    }
    Ok(if asked.heard > 0 {
        exit::SUCCESS
    } else {
        exit::NO
    })
}

fn outcome(asked: &Asked) -> String {
    match (asked.holders, asked.heard) {
        (0, _) => "is free".into(),
        (_, 0) => "held, but no holder has heard it: it has held for less than a second, is Redisson's or an older version's, has no \
                   right to the channel, or has died"
            .into(),
        (1, _) => "the holder was asked".into(),
        (holders, heard) => format!("{holders} holders in {heard} processes were asked"),
    }
}
