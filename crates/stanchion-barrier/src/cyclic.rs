//! One wait at a cyclic barrier.

use std::sync::Arc;

use stanchion_client::primitive::{Guarded as _, Hold, Synchronizer};
use stanchion_client::{AcquireError, LostReason, Rejection};

use crate::arrival::Arrived;
use crate::barrier::Passed;
use crate::error::{BarrierError, BrokenBy};
use crate::fact::End;
use crate::meeting::{Meeting, Settled, is_deleted};
use crate::round::Round;

impl Meeting<'_> {
    /// Waits for a round. If the place is lost, the wait takes a second one.
    pub(crate) async fn pass(&self) -> Result<Passed, BarrierError> {
        match self.pass_once().await? {
            Ok(passed) => Ok(passed),
            Err(_) => {
                let again = self.pass_once().await?;
                again.map_err(|arrived| self.lost(arrived.place.round))
            }
        }
    }

    /// `Ok(Err(…))`: the place was lost, and does not count.
    async fn pass_once(&self) -> Result<Result<Passed, Arrived>, BarrierError> {
        let round = Arc::new(Round::new(&self.site.keys));
        let sync = Arc::clone(&round) as Arc<dyn Synchronizer>;
        // P4, P11: subscribe before the arrival, so that this process receives the message that ends the round, and needs no poll.
        let standby = self.site.handle.stand_by(&sync)?;
        let (place, arrived) = self.arrive().await?;
        if arrived.last {
            return Ok(Ok(Passed::of(arrived, place)));
        }
        if round.is(arrived.place) {
            return self.ended(round.end(), place, arrived);
        }
        if let Some(look) = arrived.look {
            standby.ask_within(look);
        }
        let ended = tokio::select! {
            biased;
            ended = standby.wait(self.left(), false) => Ok(ended),
            lost = place.lost() => Err(lost),
        };
        // P5: a lost place does not count in a round that is complete later. If the place is lost by now, only the server knows the order.
        match round.end() {
            Some(End::Complete) if !place.is_held() => {}
            Some(end) => return self.ended(Some(end), place, arrived),
            None => {}
        }
        let why = match ended {
            Ok(Ok(())) if round.end().is_some() => BrokenBy::Died,
            Ok(Err(AcquireError::TimedOut { .. })) => BrokenBy::TimedOut,
            Ok(Err(error)) if is_deleted(&error) => return self.ended(None, place, arrived),
            // P3: the drop gives the place back.
            Ok(Err(error)) => return Err(error.into()),
            Ok(Ok(())) => return self.ended(None, place, arrived),
            Err(LostReason::Shutdown) => return Err(self.shut_down()),
            Err(_) => BrokenBy::Died,
        };
        match self.settle(&round, &place, arrived, why).await? {
            Settled::Ended(end) => self.ended(Some(end), place, arrived),
            // The lease of this place had ended, so giving it back broke the round.
            Settled::GivenBack if arrived.breaks && why == BrokenBy::Died => {
                self.ended(Some(End::Broken(why)), place, arrived)
            }
            Settled::GivenBack | Settled::Kept | Settled::Gone => {
                // P6: no place is left on the server. A late request finds the stored answer, and takes no place.
                drop(place.spend());
                if why == BrokenBy::TimedOut {
                    return Err(self.timed_out(None));
                }
                if arrived.breaks {
                    return Err(self.lost(arrived.place.round));
                }
                Ok(Err(arrived))
            }
        }
    }

    /// Returns the outcome of a round that is over; `None`: the barrier does not exist any more.
    fn ended(
        &self,
        end: Option<End>,
        place: Hold,
        arrived: Arrived,
    ) -> Result<Result<Passed, Arrived>, BarrierError> {
        match end {
            Some(End::Complete) => Ok(Ok(Passed::of(arrived, place))),
            Some(End::Broken(by)) => {
                drop(place.spend());
                Err(BarrierError::Broken {
                    name: self.site.keys.name.clone(),
                    generation: arrived.place.round,
                    by,
                })
            }
            Some(End::Forgotten) | None if arrived.breaks => Err(self.rejected(Rejection::Deleted)),
            Some(End::Forgotten) | None => Ok(Err(arrived)),
        }
    }
}
