//! `stanchion clients`: the processes that use stanchion on this server.

use clap::Args;
use stanchion::client::Process;

use crate::connect::ServerArgs;
use crate::exit::{self, Failure, Library};
use crate::gaps::Gaps;
use crate::messages;
use crate::output;
use crate::table::{self, Cell, Column, Row, Table};
use crate::wording::{age, printable};

/// List the processes that use stanchion on this server.
///
/// APP is the name that a program gives its client; of `run` and `lead` it is --label, or else the command's name. CLIENT is the first
/// part of each owner that the process makes. Redisson's processes are not listed: their connections do not say whose they are.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0     listed
  2     the command line is wrong
  69    the server cannot be reached
  75    partial: a server of the cluster does not answer, the processes of the others are listed
  78    the user may not list connections (+client|list)

Examples:
  stanchion clients
  stanchion clients --json | jq 'select(.app == \"billing\") .pid'")]
pub(crate) struct ClientsArgs {
    /// Print a line of JSON for each process.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn clients(args: ClientsArgs) -> Result<u8, Failure> {
    let client = args.server.connect().await?;
    let found = client.processes().await.map_err(Library)?;
    let mut gaps = Gaps::default();
    gaps.add_all(&found.unreached);
    let Some(mut processes) = found.list else {
        let rule = "this user may not list connections: it needs +client|list";
        return Err(Failure::new(exit::CONFIG, rule));
    };
    // The client of this command ends before a user reads about it.
    processes.retain(|process| process.client != client.id());
    processes.sort_by(|a, b| (&a.app, &a.address).cmp(&(&b.app, &b.address)));
    if args.json {
        for process in &processes {
            output::json_line(process)?;
        }
    } else if processes.is_empty() {
        eprintln!("{}", messages::no_clients());
    } else {
        let colour = output::may_colour(&std::io::stdout());
        let lines = table(&processes).lines(table::width_of_output(), colour);
        output::line(&lines.join("\n"))?;
    }
    Ok(gaps.tell())
}

fn table(processes: &[Process]) -> Table {
    let column = |title, least| Column { title, least };
    let row = |process: &Process| Row {
        cells: vec![
            printable(process.app.as_bytes()).into(),
            process.host.as_deref().unwrap_or("?").into(),
            process
                .pid
                .map_or_else(|| "?".into(), |pid| pid.to_string().into()),
            process.address.clone().into(),
            process.user.as_deref().unwrap_or("?").into(),
            age(process.connected).into(),
            process.connections.to_string().into(),
            process.client.to_string().into(),
        ],
        note: Cell::default(),
    };
    Table {
        columns: vec![
            column("APP", 8),
            column("HOST", 8),
            column("PID", 0),
            column("ADDRESS", 12),
            column("USER", 6),
            column("SINCE", 0),
            column("LINKS", 0),
            column("CLIENT", 10),
        ],
        rows: processes.iter().map(row).collect(),
    }
}
