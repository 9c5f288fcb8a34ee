//! `stanchion doctor`: checks whether the server is fit for locks, and finds faults of the existing ones.

mod clocks;
mod deadlocks;
mod finding;
mod names;
mod rights;
mod settings;
mod timing;

use clap::Args;
use stanchion::console::Console;
use stanchion::{Client, QueryError};

use self::finding::{Finding, Level};
use self::settings::Settings;
use crate::connect::ServerArgs;
use crate::exit::{self, Failure, Library};
use crate::gaps::Gaps;
use crate::glob;
use crate::ls::ScanArgs;
use crate::people::People;
use crate::probe::Names;
use crate::table;

/// Check that the server is fit for locks.
///
/// Its settings, a user's rights, the clocks, that messages arrive, and that no calls wait for each other.
///
/// With --scan also every name: holds without a TTL or without a living holder, dead queues, names of two kinds, keys without a TTL
/// and why, limiters that a process with a wrong clock uses.
///
/// Changes nothing, except that it takes and releases one lock of its own (stanchion-doctor-…) to see whether messages arrive.
#[derive(Debug, Args)]
#[command(after_help = "\
Results:
  ok    as it should be
  skip  could not be looked at, and why
  warn  works, and will not always; or needs a look
  FAIL  locks do not work, or are lost while everything looks well

Exit codes:
  0     nothing failed
  1     at least one FAIL; with --strict also at least one warn
  2     the command line is wrong
  69    the server cannot be reached
  78    the server or the configuration refuses (a right, a certificate, …)

Examples:
  stanchion doctor
  stanchion doctor --user app --names 'app:*'   as an administrator, for the application's user
  stanchion doctor --scan --strict --json       for monitoring")]
pub(crate) struct DoctorArgs {
    /// Whose rights to check, instead of those of the user of the URL. Needs the right to ACL DRYRUN.
    #[arg(long)]
    user: Option<String>,
    /// The names that this user locks; with --prefix, what follows the prefix.
    #[arg(long, value_name = "PATTERN", default_value = "*")]
    names: String,
    /// Look at every name of the server, too.
    #[arg(long)]
    scan: bool,
    #[command(flatten)]
    limits: ScanArgs,
    /// Exit with 1 for warnings, too.
    #[arg(long)]
    strict: bool,
    /// Print one line of JSON for each result.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Writes results as they come, and keeps the worst.
struct Report {
    json: bool,
    width: Option<usize>,
    worst: Level,
}

impl Report {
    fn add(&mut self, findings: impl IntoIterator<Item = Finding>) -> Result<(), Failure> {
        for finding in findings {
            self.worst = self.worst.max(finding.level);
            finding.show(self.json, self.width)?;
        }
        Ok(())
    }
}

pub(crate) async fn doctor(args: DoctorArgs) -> Result<u8, Failure> {
    let client = args.server.connect().await?;
    let mut report = Report {
        json: args.json,
        width: table::width_of_output(),
        worst: Level::Ok,
    };
    let name = || Names::new(&client, args.server.prefix(), &args.names, "doctor");
    let mut names = name().map_err(Library)?;
    let gaps = servers(&client, &args, &names, &mut report).await?;
    // A name whose server answers, if the pattern allows one.
    for _ in 0..TRIES {
        if gaps.of_key(&client, names.some().as_bytes()).is_none() {
            break;
        }
        names = name().map_err(Library)?;
    }
    report.add([timing::pass_on(&client, &args.server, &names).await])?;
    report.add(deadlocks::check(&client).await)?;
    if args.scan {
        let people = People::ask(&client).await.map_err(Library)?;
        let prefix = args.server.prefix();
        let pattern = glob::literal(prefix) + &args.names;
        report.add(names::check(&client, args.limits, &pattern, prefix, &people).await?)?;
    }
    let bad = if args.strict {
        Level::Warn
    } else {
        Level::Fail
    };
    Ok(if report.worst >= bad {
        exit::NO
    } else {
        exit::SUCCESS
    })
}

/// The number of names that are tried to find one whose server answers. With half of the servers down, this misses once in a billion times.
const TRIES: usize = 30;

/// Checks each server. Returns those that did not answer; fails if none of them answers.
async fn servers(
    client: &Client,
    args: &DoctorArgs,
    names: &Names,
    report: &mut Report,
) -> Result<Gaps, Failure> {
    let consoles = client.consoles();
    let several = consoles.len() > 1;
    let mut gaps = Gaps::default();
    for console in &consoles {
        let at = several.then(|| console.server());
        let findings = match of_server(client, args, names, console).await {
            Ok(findings) => findings,
            Err(error @ (QueryError::Unavailable { .. } | QueryError::Unanswered { .. })) => {
                gaps.add(console.server(), &error);
                if gaps.servers().len() == consoles.len() {
                    return Err(Library(error).into());
                }
                let what = format!("does not answer: {error}");
                let advice = "start it, or promote a replica; names of its slots cannot be locked until then";
                vec![Finding::fail("server", what, advice)]
            }
            Err(error) => return Err(Library(error).into()),
        };
        report.add(findings.into_iter().map(|finding| finding.of_server(at)))?;
    }
    Ok(gaps)
}

async fn of_server(
    client: &Client,
    args: &DoctorArgs,
    names: &Names,
    console: &Console,
) -> Result<Vec<Finding>, QueryError> {
    let Settings {
        mut findings,
        is_engine,
    } = settings::check(console).await?;
    findings.extend(timing::check(console).await?);
    if is_engine {
        findings.push(rights::of_the_engine());
    } else {
        let user = args.user.as_deref();
        findings.extend(rights::check(client, console, user, names).await?);
    }
    Ok(findings)
}
