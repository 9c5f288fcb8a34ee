//! A wait that begins before the awaited event can happen.

use std::sync::Arc;
use std::time::Duration;

use super::plan::Plan;
use super::wait::{Wishes, wait};
use crate::description::Synchronizer;
use crate::error::AcquireError;
use crate::hold::handle::Hold;
use crate::lease::Lease;
use crate::options::AcquireOptions;
use crate::shared::Core;
use crate::waiting::{LockEntries, Ticket};
use stanchion_transport::Moment;

/// A place in the queue of an event with facts as messages. The place is taken before the caller's action that may cause the event.
#[derive(Debug)]
pub(crate) struct StandingBy {
    core: Arc<Core>,
    sync: Arc<dyn Synchronizer>,
    plan: Plan,
    ticket: Box<Ticket>,
}

impl StandingBy {
    pub(crate) fn begin(
        core: &Arc<Core>,
        sync: &Arc<dyn Synchronizer>,
    ) -> Result<Self, AcquireError> {
        let lease = Lease::default().length();
        let plan = Plan::of_wait(core, &**sync, &AcquireOptions::new(), lease)?;
        let ticket = LockEntries::join(core, sync, plan.stay(), &plan.terms);
        ticket.stand_by();
        Ok(Self {
            core: Arc::clone(core),
            sync: Arc::clone(sync),
            plan,
            ticket: Box::new(ticket),
        })
    }

    /// Plans a poll after `pause`, in case no message ends the wait before.
    pub(crate) fn ask_within(&self, pause: Duration) {
        self.ticket.ask_within(pause);
    }

    /// Waits for the message that the event has happened. With `look`, also sends one request in any case.
    pub(crate) async fn wait(
        self,
        timeout: Option<Duration>,
        look: bool,
    ) -> Result<Hold, AcquireError> {
        let Self {
            core,
            sync,
            mut plan,
            ticket,
        } = self;
        let now = core.clock.now();
        // With no time left, no request is sent: the caller already has a fact that has arrived by now.
        if timeout == Some(Duration::ZERO) {
            return Err(plan.timed_out(&core, &sync, None));
        }
        ticket.attend(look);
        plan.deadline = timeout.map_or(Moment::FAR, |timeout| now + timeout);
        let wishes = Wishes {
            ticket: Some(ticket),
            ..Wishes::default()
        };
        wait(&core, &sync, &plan, None, wishes).await
    }
}
