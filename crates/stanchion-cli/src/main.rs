//! `stanchion`: run a command under a distributed lock, look at names.
//!
//! One file or folder for each command; `exit` has the exit codes, `connect` the options that all of them share.
#![expect(
    clippy::print_stderr,
    reason = "a command line program talks to its user"
)]

#[cfg(not(unix))]
compile_error!("stanchion-cli forwards Unix signals; use the library on other systems");

mod ask;
mod barrier;
mod bench;
mod beside;
mod clients;
mod completions;
mod connect;
mod doctor;
mod duration;
mod entry;
mod exit;
mod exporter;
mod flock;
mod force_release;
mod gaps;
mod glob;
mod holder;
mod inspect;
mod kinds;
mod leader;
mod limit;
mod log;
mod look;
mod ls;
mod man;
mod messages;
mod output;
mod people;
mod permits;
mod ping;
mod probe;
mod run;
mod scan;
mod screen;
mod serve;
mod similar;
mod status;
mod table;
mod ticket;
mod top;
mod trouble;
mod watch;
mod wording;
mod words;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::exit::Failure;

/// Distributed locks, read-write locks and semaphores on Redis and Valkey, for the command line.
#[derive(Debug, Parser)]
#[command(name = "stanchion", version, about, max_term_width = 100, after_help = EXAMPLES, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  stanchion run nightly -- ./report.sh       one machine of the fleet at a time
  stanchion run nightly --wait 0 -- ./r.sh   only if nobody else is at it
  stanchion run thumbs --permits 3 -- ./t.sh at most three at a time
  stanchion lead indexer -- ./index          whenever elected: one of the fleet
  stanchion limit api --rate 10/s -- ./c.sh  ten a second, over all machines
  stanchion barrier step2 --parties 4        go on when four machines are here
  stanchion serve                            a server for this machine
  stanchion status nightly                   who holds it, and for how long
  stanchion ask nightly --reason 'a fix'     ask its holder to give it back
  stanchion force-release nightly            take it from a holder that hangs
  stanchion ls                               every name, who holds it, who waits
  stanchion top                              the same, live, with keys
  stanchion doctor                           is the server fit for locks?
  stanchion exporter                         metrics of every lock, for Prometheus

  The options of the server, --url, --url-file, --prefix and --tls-ca, may come
  before or after the command's name. Each command has its own --help.

Environment:
  STANCHION_URL        the server, instead of --url; without either, one of your
                       own on this machine, see `stanchion serve --help`
  STANCHION_URL_FILE   a file with it, instead of --url-file
  STANCHION_LOG        what to log to standard error, such as debug (default: warn)";

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::RunArgs),
    Hold(ticket::HoldArgs),
    Release(ticket::ReleaseArgs),
    Lead(run::lead::LeadArgs),
    Leader(leader::LeaderArgs),
    Status(status::StatusArgs),
    Ask(ask::AskArgs),
    ForceRelease(force_release::ForceReleaseArgs),
    Permits(permits::PermitsArgs),
    Limit(limit::LimitArgs),
    Barrier(barrier::BarrierArgs),
    Serve(serve::ServeArgs),
    Ls(ls::LsArgs),
    Top(top::TopArgs),
    Inspect(inspect::InspectArgs),
    Doctor(doctor::DoctorArgs),
    Ping(ping::PingArgs),
    Clients(clients::ClientsArgs),
    Watch(watch::WatchArgs),
    Bench(bench::BenchArgs),
    Exporter(exporter::ExporterArgs),
    Completions(completions::CompletionsArgs),
    /// For packages: users read the pages that a package has.
    #[command(hide = true)]
    Man(man::ManArgs),
}

impl Command {
    /// Refuses a command line if options after the command's name may be meant for this program.
    fn check_words(&self, line: &[OsString]) -> Result<(), Failure> {
        let (name, command) = match self {
            Self::Run(args) => ("run", &args.work.command),
            Self::Lead(args) => ("lead", &args.work.command),
            Self::Limit(args) => ("limit", &args.command),
            Self::Barrier(args) => ("barrier", &args.command),
            _ => return Ok(()),
        };
        match Cli::command().find_subcommand(name) {
            Some(subcommand) => words::check(subcommand, line, command),
            None => Ok(()),
        }
    }
}

fn main() -> ExitCode {
    let inner = run::launch::inner(std::env::args_os());
    let done = match inner.or_else(|| serve::start::inner(std::env::args_os())) {
        Some(done) => done,
        None => {
            let line = words::options_after_command(std::env::args_os());
            match Cli::try_parse_from(&line) {
                Ok(Cli { command }) => command
                    .check_words(&line)
                    .and_then(|()| with_runtime(command)),
                Err(error) => match flock::explain(error, &line) {
                    Ok(failure) => Err(failure),
                    Err(error) => error.exit(),
                },
            }
        }
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            if !failure.is_told() {
                eprintln!("stanchion: {failure}");
            }
            ExitCode::from(failure.code())
        }
    }
}

fn with_runtime(command: Command) -> Result<u8, Failure> {
    log::to_stderr(&command)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let done = runtime.block_on(async {
        match command {
            Command::Run(args) => Box::pin(run::run(args)).await,
            Command::Hold(args) => Box::pin(ticket::hold(args)).await,
            Command::Release(args) => Box::pin(ticket::release(args)).await,
            Command::Lead(args) => Box::pin(run::lead::lead(args)).await,
            Command::Leader(args) => Box::pin(leader::leader(args)).await,
            Command::Status(args) => Box::pin(status::status(args)).await,
            Command::Ask(args) => Box::pin(ask::ask(args)).await,
            Command::ForceRelease(args) => Box::pin(force_release::force_release(args)).await,
            Command::Permits(args) => Box::pin(permits::permits(args)).await,
            Command::Limit(args) => Box::pin(limit::limit(args)).await,
            Command::Barrier(args) => Box::pin(barrier::barrier(args)).await,
            Command::Serve(args) => Box::pin(serve::serve(args)).await,
            Command::Ls(args) => Box::pin(ls::ls(args)).await,
            Command::Top(args) => Box::pin(top::top(args)).await,
            Command::Inspect(args) => Box::pin(inspect::inspect(args)).await,
            Command::Doctor(args) => Box::pin(doctor::doctor(args)).await,
            Command::Ping(args) => Box::pin(ping::ping(args)).await,
            Command::Clients(args) => Box::pin(clients::clients(args)).await,
            Command::Watch(args) => Box::pin(watch::watch(args)).await,
            Command::Exporter(args) => Box::pin(exporter::exporter(args)).await,
            Command::Bench(args) => Box::pin(bench::bench(args)).await,
            Command::Completions(args) => completions::completions(&args),
            Command::Man(args) => man::man(&args),
        }
    });
    // Dropping the runtime would wait for every task that runs just now: a script that `serve` executes, a read of the terminal.
    runtime.shutdown_background();
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_help_of_run_names_every_exit_code() {
        let mut command = Cli::command();
        let help = command
            .find_subcommand_mut("run")
            .unwrap()
            .render_long_help()
            .to_string();
        for code in [69, 73, 75, 78, 126, 127] {
            assert!(
                help.contains(&format!("\n  {code:<5}")),
                "{code} in:\n{help}"
            );
        }
    }
}
