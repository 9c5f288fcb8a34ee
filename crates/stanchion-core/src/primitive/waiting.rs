//! The number of processes that wait for a name.

use std::pin::pin;

use super::{Call, Handle, Line, Reply, Resend, Script};
use crate::error::QueryError;
use crate::reading::natural;
use stanchion_transport::{Path, slot_of, timeout};

static WAITING_PROCESSES: Script<1, 2> = Script::new(
    "core/waiting_processes",
    include_str!("../../lua/waiting_processes.lua"),
);

impl Handle {
    /// Runs the status script of a name, and counts the waiting processes: those in its `line`, and Redisson's subscribers.
    ///
    /// The status succeeds even if the count fails. The count is `None` if the user lacks the right to count, or if no reply arrived.
    ///
    /// # Errors
    /// [`QueryError`], of the status.
    pub async fn status(
        &self,
        status: &Call,
        line: &Line,
    ) -> Result<(Reply, Option<u64>), QueryError> {
        let (status, waiting) = tokio::join!(
            self.query(status, Resend::UntilAnswered),
            self.waiting_processes(line)
        );
        Ok((status?, waiting))
    }

    async fn waiting_processes(&self, line: &Line) -> Option<u64> {
        let call = WAITING_PROCESSES.call(
            [&line.line],
            [line.base.as_slice().into(), line.publish.into()],
        );
        self.soon(self.core().call(Path::Direct, &call)).await
    }

    /// Counts the processes that are subscribed to `channel`, which belongs to the slot of its hash tag. `None` as for a status.
    pub async fn listening_processes(&self, channel: &[u8]) -> Option<u64> {
        let count: &[u8] = match self.publish_command() {
            "SPUBLISH" => b"SHARDNUMSUB",
            _ => b"NUMSUB",
        };
        let console = self.core().servers.console(slot_of(channel))?;
        let command = [b"PUBSUB".as_slice(), count, channel];
        let asking = async {
            let reply = console.command(Path::Direct, &command).await?;
            let number = reply.as_array().and_then(|pair| pair.get(1)).cloned();
            Ok(number.unwrap_or(Reply::Nil))
        };
        self.soon(asking).await
    }

    /// Sends one request, within the operation timeout (P9).
    async fn soon(
        &self,
        asking: impl Future<Output = Result<Reply, stanchion_transport::Failure>>,
    ) -> Option<u64> {
        match timeout(self.core().config.operation_timeout, pin!(asking)).await {
            Some(Ok(reply)) => natural(&reply),
            Some(Err(failure)) => {
                tracing::debug!(?failure, "the processes that wait were not counted");
                None
            }
            None => None,
        }
    }
}
