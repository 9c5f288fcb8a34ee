//! The multi-lock: eight names at once.

use anyhow::Result;
use stanchion::{Client, Lock, Lockable, MultiLock};
use stanchion_testkit::RedisServer;

use crate::contender::{Contender, rate};
use crate::handoffs::sent;
use crate::measure::{Flavor, Plan, Spread, compare};
use crate::report::{Report, Target};

const NAMES: usize = 8;
const CYCLES: u32 = 1000;

impl Contender for MultiLock {
    async fn cycle(&mut self) -> Result<()> {
        self.acquire().await?.release().await?;
        Ok(())
    }
}

pub(crate) fn cycle(server: &RedisServer, plan: Plan, report: &mut Report) -> Result<()> {
    Flavor::MultiThread.runtime()?.block_on(async {
        let client = Client::connect(server.url()).await?;
        let locks = (0..NAMES)
            .map(|i| Lock::new(&client, format!("bench:multi:{i}")))
            .collect::<Result<Vec<_>, _>>()?;
        let members = locks.iter().map(|lock| lock as &dyn Lockable);
        let mut multi = MultiLock::new(members)?;
        multi.cycle().await?;
        server.reset_stats();
        for _ in 0..CYCLES {
            multi.cycle().await?;
        }
        report.row(
            "multilock",
            format!("{NAMES} names: commands of a cycle"),
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
        let micros = |rate: Spread| 1e6 / rate.median;
        report.row(
            "multilock",
            format!("{NAMES} names: cycle / cycle of one lock"),
            compared.cost(),
            Target::None,
            format!(
                "{:.1} us / {:.1} us",
                micros(compared.subject),
                micros(compared.reference)
            ),
        );
        anyhow::Ok(())
    })
}
