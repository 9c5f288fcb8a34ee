//! `stanchion exporter`: metrics of every lock on a server, for Prometheus.

mod page;
mod web;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use stanchion::Client;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use self::page::{Page, Survey};
use crate::connect::ServerArgs;
use crate::duration;
use crate::entry::Entry;
use crate::exit::{self, Failure, Library};
use crate::glob;
use crate::ls::{self, Names, ScanArgs};
use crate::messages;
use crate::output;
use crate::people::People;
use crate::scan::{self, Progress};

/// A shorter pause would keep the server and this program busy without a pause.
const LEAST_PAUSE: Duration = Duration::from_millis(100);

/// Serve metrics of every lock on a server, for Prometheus.
///
/// Finds the names of all programs that use stanchion or Redisson, without a change to the programs: holders, the age of their holds,
/// waiters, holders whose process has ended, locks without a TTL, deadlocks. Surveys the server in the background as `ls --scan` does, so a
/// scrape costs the server nothing. Prints the address that it listens on. Ends at SIGTERM and at Ctrl-C.
#[derive(Debug, Args)]
#[command(after_help = "\
Pages:
  /metrics   the last survey, in the OpenMetrics text format
  /healthz   200 while the exporter runs; it does not depend on the server

Exit codes:
  0     ended by a signal
  2     the command line is wrong
  74    the address cannot be listened on
  78    the server or the rules refuse (a right is missing, …)

  While the server cannot be reached, stanchion_server_up is 0, and the names
  have no metrics. While one server of a cluster cannot be reached, its
  stanchion_server_node_up is 0, and its names have no metrics.

Examples:
  stanchion exporter --url redis://cache:6379
  stanchion exporter --listen 0.0.0.0:9642 --names 'billing:*'")]
pub(crate) struct ExporterArgs {
    /// The address to listen on. Port 0 lets the system choose.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9642")]
    listen: SocketAddr,
    /// The pause between two surveys, at least 100ms.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = duration::at_least(LEAST_PAUSE))]
    pause: Duration,
    /// Names with metrics of their own, besides the sums of each kind: * for anything, ? for one character, [a-z]. With --prefix, what
    /// follows the prefix.
    #[arg(long, value_name = "PATTERN")]
    names: Option<String>,
    /// The most names with metrics of their own. Names that most calls wait for come first.
    #[arg(long, value_name = "N", default_value_t = 100, requires = "names")]
    most_names: usize,
    #[command(flatten)]
    limits: ScanArgs,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn exporter(args: ExporterArgs) -> Result<u8, Failure> {
    // A wrong URL ends the command before it listens.
    args.server.config()?;
    let listener = TcpListener::bind(args.listen).await.map_err(|error| {
        let address = args.listen;
        Failure::new(exit::IO, messages::cannot_listen(address, &error))
    })?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    eprintln!("{}", messages::serves_metrics(listener.local_addr()?));
    let page = Arc::new(Mutex::new(Page::default()));
    tokio::select! {
        failed = survey_for_ever(&args, &page) => {
            let Err(failure) = failed;
            Err(failure)
        }
        () = web::serve(listener, Arc::clone(&page)) => Ok(exit::SUCCESS),
        _ = terminate.recv() => Ok(exit::SUCCESS),
        _ = interrupt.recv() => Ok(exit::SUCCESS),
    }
}

/// Surveys the server again and again. Ends if the server refuses before the first survey has succeeded.
async fn survey_for_ever(args: &ExporterArgs, page: &Mutex<Page>) -> Result<Infallible, Failure> {
    let (mut client, mut first_seen) = (None, FirstSeen::default());
    let mut has_surveyed = false;
    // The message of the last survey, if it failed.
    let mut failed: Option<String> = None;
    loop {
        match survey(args, &mut client, &mut first_seen).await {
            Ok(survey) => {
                lock(page).surveyed(survey);
                has_surveyed = true;
                if failed.take().is_some() {
                    eprintln!("{}", messages::surveys_again());
                }
            }
            Err(failure) if !has_surveyed && failure.code() == exit::CONFIG => return Err(failure),
            Err(failure) => {
                lock(page).failed();
                // Connects again with the URL of the file, whose password may have changed.
                client.take_if(|client| !client.is_connected());
                let message = messages::survey_failed(&failure);
                if failed.as_ref() != Some(&message) {
                    eprintln!("{message}");
                }
                failed = Some(message);
            }
        }
        tokio::time::sleep(args.pause).await;
    }
}

fn lock(page: &Mutex<Page>) -> std::sync::MutexGuard<'_, Page> {
    // OK: a page is replaced as a whole.
    page.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn survey(
    args: &ExporterArgs,
    connected: &mut Option<Client>,
    first_seen: &mut FirstSeen,
) -> Result<Survey, Failure> {
    let client = match connected {
        Some(client) => client,
        None => connected.insert(args.server.connect().await?),
    };
    let began = Instant::now();
    let prefix = args.server.prefix();
    let people = People::ask(client).await.map_err(Library)?;
    let pattern = glob::literal(prefix) + "*";
    let found = scan::scan(
        client,
        args.limits.limits(),
        &mut Progress::hidden(),
        |_| true,
    )
    .await?;
    let Names { mut entries, gaps } =
        ls::entries_of(client, &found, &pattern, prefix, &people).await?;
    entries.retain(|entry| !entry.is_idle());
    first_seen.date(&mut entries, began);
    if let Some(survey) = &people.survey {
        let waits = ls::heard_of(survey, &pattern);
        for entry in &mut entries {
            let longest = waits.get(&entry.key).and_then(|heard| heard.longest);
            entry.longest_wait_ms = longest.map(output::whole_millis);
        }
    }
    let nodes = client.consoles().into_iter().map(|console| {
        let node = console.server().to_owned();
        let is_up = !gaps.has(&node);
        (node, is_up)
    });
    let nodes = nodes.collect();
    let deadlocks = match &people.survey {
        Some(_) => Some(client.deadlocks().await.map_err(Library)?.len()),
        None => None,
    };
    let own = args
        .names
        .as_ref()
        .map(|names| glob::literal(prefix) + names);
    let own = own.map(|pattern| most_wanted(&entries, &pattern, args.most_names));
    Ok(Survey {
        entries,
        own: own.unwrap_or_default(),
        keys: found.keys,
        complete: found.complete,
        nodes,
        endless: found.endless.get("").map_or(0, |keys| keys.count),
        deadlocks,
        took: began.elapsed(),
        at: Instant::now(),
    })
}

/// Selects the names that match: their places in `entries`, and the number of those that are left out.
fn most_wanted(entries: &[Entry], pattern: &str, most: usize) -> (Vec<usize>, usize) {
    let matching =
        (0..entries.len()).filter(|at| glob::matches(pattern.as_bytes(), &entries[*at].key));
    let mut matching: Vec<usize> = matching.collect();
    matching.sort_by_key(|at| std::cmp::Reverse((entries[*at].waiting, entries[*at].held_ms)));
    let left_out = matching.len().saturating_sub(most);
    matching.truncate(most);
    (matching, left_out)
}

/// The moments at which a survey first saw each hold, by name and owner: Redisson does not publish the beginning of a hold.
#[derive(Debug, Default)]
struct FirstSeen(BTreeMap<(Vec<u8>, String), Instant>);

impl FirstSeen {
    /// Dates the holds whose age is not known: at least the time since a survey first saw them.
    fn date(&mut self, entries: &mut [Entry], now: Instant) {
        let mut seen = BTreeMap::new();
        for entry in entries {
            let (Some(holder), None) = (&entry.holder, entry.held_ms) else {
                continue;
            };
            let key = (entry.key.clone(), holder.owner.clone());
            let since = self.0.remove(&key).unwrap_or(now);
            entry.held_ms = Some(output::whole_millis(now.duration_since(since)));
            seen.insert(key, since);
        }
        self.0 = seen;
    }
}
