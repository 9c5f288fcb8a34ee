//! Eight names at once.

use anyhow::Result;
use stanchion::{Client, Lock, Lockable, MultiLock};
use stanchion_testkit::RedisServer;

use crate::contender::{Contender, rate};
use crate::handoffs::sent;
use crate::measure::{Flavor, Plan, Spread, compare};
use crate::report::{Report, Target, per_second};

impl Contender for MultiLock {
    async fn cycle(&mut self) -> Result<()> {
        let guard = self.acquire().await?;
        guard.release().await?;
        Ok(())
    }
}

pub(crate) fn measure(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    const CYCLES: u32 = 1000;
    Flavor::MultiThread.runtime()?.block_on(async {
        let client = Client::connect(server.url()).await?;
        let mut locks = Vec::new();
        for n in 0..8 {
            locks.push(Lock::new(&client, format!("{{bench}}:{n}"))?);
        }
        let mut multi = MultiLock::new(locks.iter().map(|lock| lock as &dyn Lockable))?;
        multi.cycle().await?;
        server.reset_stats();
        for _ in 0..CYCLES {
            multi.cycle().await?;
        }
        report.row(
            "multilock",
            "8 names: commands sent for a cycle",
            Spread::one(sent(server) as f64 / f64::from(CYCLES)),
            Target::Exactly(2.0),
            format!("{CYCLES} cycles"),
        );
        let (multi, single) = ([multi], [Lock::new(&client, "bench:single")?]);
        let compared = compare(
            plan,
            async |block| rate(&multi, block).await,
            async |block| rate(&single, block).await,
        )
        .await?;
        let note = format!(
            "{} / {} cycles",
            per_second(compared.subject),
            per_second(compared.reference)
        );
        report.row(
            "multilock",
            "8 names: cycle / cycle of one lock",
            compared.cost(),
            Target::None,
            note,
        );
        anyhow::Ok(())
    })
}
