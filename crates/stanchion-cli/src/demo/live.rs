//! The live display on a terminal. The display is drawn below the prompt and disappears before the closing table is printed.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::board::Board;
use super::names::Names;
use super::view::{self, View};
use super::{DemoArgs, plain};
use crate::entry::Entry;
use crate::screen::{self, Screen};

const FRAME: Duration = Duration::from_millis(100);
/// The number of frames for one bar of the sparkline.
const FRAMES_PER_BAR: usize = 2;

/// The pause between two polls of the names. A poll sends a request or two for each name, which must not slow down the workers' requests.
const REST: Duration = Duration::from_millis(250);

pub(super) async fn show(
    args: &DemoArgs,
    board: &Board,
    names: &Arc<Names>,
    started: Instant,
) -> io::Result<()> {
    let Ok(mut screen) = Screen::inline(|width| view::height(args, width)) else {
        // A terminal that does not answer still shows lines.
        return plain::show(args, board, started).await;
    };
    let end = started + args.duration();
    let mut frames = interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (sender, seen) = watch::channel(Vec::new());
    // Ends with the display.
    let mut looking = JoinSet::new();
    looking.spawn(look(Arc::clone(names), sender));
    let mut rates = Vec::new();
    let mut before = (board.counts().grants, started);
    for frame in 1.. {
        let now = frames.tick().await;
        if now >= end || wants_to_stop()? {
            break;
        }
        if frame % FRAMES_PER_BAR == 0 {
            let grants = board.counts().grants;
            rates.push(per_second(grants - before.0, now - before.1));
            before = (grants, now);
        }
        let view = View {
            args,
            board,
            rates: &rates,
            names: &seen.borrow(),
            left: end - now,
        };
        screen.0.draw(|frame| view.draw(frame))?;
    }
    Ok(())
}

/// Polls the names without an end. Failures are ignored: the display detects an unreachable server without this task.
async fn look(names: Arc<Names>, seen: watch::Sender<Vec<Entry>>) {
    loop {
        // No entries means that no worker waits for a latch at this moment: the previous entries stay.
        if let Ok(entries) = names.look().await
            && !entries.is_empty()
        {
            seen.send_replace(entries);
        }
        tokio::time::sleep(REST).await;
    }
}

fn per_second(grants: u64, during: Duration) -> u64 {
    let millis = u64::try_from(during.as_millis()).unwrap_or(u64::MAX);
    grants * 1000 / millis.max(1)
}

/// Returns whether q, Esc or Ctrl-C was pressed.
fn wants_to_stop() -> io::Result<bool> {
    while event::poll(Duration::ZERO)? {
        if let Event::Key(key) = event::read()?
            && screen::stops(&key)
        {
            return Ok(true);
        }
    }
    Ok(false)
}
