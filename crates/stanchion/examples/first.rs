//! The smallest useful program: `cargo run --example first [URL]`.

use std::time::Duration;

use stanchion::{Client, Lock};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "memory://".into());
    let client = Client::connect(url).await?;
    let orders = Lock::new(&client, "orders")?;
    let guard = orders.acquire_timeout(Duration::from_secs(5)).await?;
    let token = guard.fencing_token();
    guard
        .run(async move { settle_orders(token.map(|t| t.get())) })
        .await?;
    guard.release().await?;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example talks to its reader")]
fn settle_orders(token: Option<u64>) {
    println!("settling under the lock, fencing token {token:?}");
}
