//! The loop of `top`: keys, polls, and the replies that keys have requested.

use std::time::Duration;

use crossterm::event::{self, Event};
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::Looker;
use super::state::{Action, Mode, Question, State};
use super::view::View;
use crate::exit::Failure;
use crate::force_release::{Forced, release_from};
use crate::inspect::{self, Inspected};
use crate::look::Kind;
use crate::ls::Names;
use crate::screen::Screen;
use crate::wording::printable;
use crate::{exit, output};

/// The time between two checks of the keyboard.
const FRAME: Duration = Duration::from_millis(50);
/// The display is redrawn after this time even if nothing has happened, because ages grow.
const REDRAW: Duration = Duration::from_secs(1);
/// The time for a release that is under way when the user ends the program.
const LAST: Duration = Duration::from_secs(2);

/// Results that arrive from tasks.
enum News {
    Looked(Result<Names, Failure>),
    Inspected(Vec<u8>, Result<Box<Inspected>, Failure>),
    Released(String),
}

/// Shows the display until a key ends it. Cancel safe: the terminal is restored when this future is dropped; a release that is under
/// way then may or may not be done, as if its reply was lost.
pub(super) async fn show(looker: &Looker, every: Duration, first: Names) -> Result<(), Failure> {
    let consoles = looker.client.consoles();
    let servers: Vec<&str> = consoles
        .iter()
        .map(stanchion::console::Console::server)
        .collect();
    let server = printable(servers.join(" ").as_bytes());
    let screen = Screen::whole(output::may_colour(&std::io::stdout()))?;
    let mut state = State::new(first.entries);
    state.outage = first.gaps.line();
    let mut looked = Instant::now();
    let (sender, mut news) = mpsc::unbounded_channel();
    // The tasks of the display end with it, except for releases.
    let mut tasks = JoinSet::new();
    let mut releases = JoinSet::new();
    tasks.spawn(looks(looker.clone(), every, sender.clone()));
    let mut frames = interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut drawn: Option<Instant> = None;
    loop {
        let mut changed = false;
        while event::poll(Duration::ZERO)? {
            changed = true;
            let Event::Key(key) = event::read()? else {
                continue;
            };
            match state.key(&key) {
                None => {}
                Some(Action::Quit) => {
                    drop(screen);
                    return last_words(releases, news).await;
                }
                Some(Action::Inspect(key, kind)) => {
                    tasks.spawn(inspect(looker.clone(), key, kind, sender.clone()));
                }
                Some(Action::Release(question)) => {
                    releases.spawn(release(looker.clone(), question, sender.clone()));
                }
            }
        }
        while let Ok(news) = news.try_recv() {
            changed = true;
            match news {
                News::Looked(found) => {
                    if found.is_ok() {
                        looked = Instant::now();
                    }
                    let partial = found.as_ref().ok().and_then(|names| names.gaps.line());
                    state.looked(found.map(|names| names.entries).map_err(told));
                    // Shown as an outage is, above the names of the other servers.
                    state.outage = state.outage.take().or(partial);
                    if let Mode::Pane { key, kind, .. } = &state.mode {
                        let again = inspect(looker.clone(), key.clone(), *kind, sender.clone());
                        tasks.spawn(again);
                    }
                }
                News::Inspected(key, found) => state.inspected(&key, found.map_err(told)),
                News::Released(outcome) => state.message = Some(outcome),
            }
        }
        // Detected before the poll that is in flight fails.
        if state.outage.is_none() && !looker.client.is_connected() {
            state.outage = Some("the server does not answer".into());
            changed = true;
        }
        if changed || drawn.is_none_or(|drawn| drawn.elapsed() >= REDRAW) {
            let view = View {
                server: &server,
                every,
                looked: looked.elapsed(),
            };
            screen.draw(|width, height| view.lines(&mut state, width, height))?;
            drawn = Some(Instant::now());
        }
        while tasks.try_join_next().is_some() || releases.try_join_next().is_some() {}
        frames.tick().await;
    }
}

fn told(failure: Failure) -> String {
    match failure.code() {
        exit::UNAVAILABLE => format!("the server does not answer: {failure}"),
        _ => failure.to_string(),
    }
}

/// Waits for releases that are under way, and prints their outcome.
async fn last_words(
    mut releases: JoinSet<()>,
    mut news: mpsc::UnboundedReceiver<News>,
) -> Result<(), Failure> {
    let all = async { while releases.join_next().await.is_some() {} };
    let in_time = timeout(LAST, all).await.is_ok();
    while let Ok(news) = news.try_recv() {
        if let News::Released(outcome) = news {
            output::line(&outcome)?;
        }
    }
    if !in_time {
        let rule = "a force-release was not answered: it may or may not have been done";
        return Err(Failure::new(exit::UNAVAILABLE, rule));
    }
    Ok(())
}

/// Polls without an end. The pause is between polls, so that a slow server does not get more of them.
async fn looks(looker: Looker, every: Duration, news: UnboundedSender<News>) {
    loop {
        tokio::time::sleep(every).await;
        if news.send(News::Looked(looker.look().await)).is_err() {
            return;
        }
    }
}

async fn inspect(looker: Looker, key: Vec<u8>, kind: Option<Kind>, news: UnboundedSender<News>) {
    let found = inspect::ask(&looker.client, looker.given(&key), kind).await;
    // OK: the display has ended.
    let _ = news.send(News::Inspected(key, found.map(Box::new)));
}

async fn release(looker: Looker, question: Question, news: UnboundedSender<News>) {
    let Question {
        key,
        kind,
        owners,
        holder,
    } = question;
    let name = printable(&key);
    let forced = release_from(&looker.client, looker.given(&key), kind, &owners).await;
    let outcome = match forced {
        Ok(Forced::Released) => format!("{name}: released from {holder}"),
        Ok(Forced::Free) => format!("{name}: was free"),
        Ok(Forced::Changed) => {
            format!("{name}: the holder has changed meanwhile. Nothing was done")
        }
        Err(failure) => format!("{name}: {}", told(failure)),
    };
    // OK: the display has ended.
    let _ = news.send(News::Released(outcome));
}
