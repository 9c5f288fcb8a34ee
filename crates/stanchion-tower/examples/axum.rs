//! An HTTP service that many processes run: `cargo run -p stanchion-tower --features embedded --example axum -- redis://127.0.0.1/`.
//!
//! Start it twice, with different ports as the second argument, and send requests to both:
//! `curl -i -H 'x-user: ann' -H 'idempotency-key: 1' -d 500 localhost:3000/payments`. The body is the duration of the work in milliseconds.
#![expect(clippy::print_stdout, reason = "an example for the terminal")]

use std::error::Error;
use std::time::Duration;

use axum::extract::{Path, Request};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use stanchion_tower::{
    Claim, Client, ConcurrencyLayer, IdempotencyLayer, LeasedSemaphore, Limit, Locked,
    OneAtATimeLayer, RateLimitLayer, ShutdownReport,
};
use tokio::net::TcpListener;

/// Works for as long as the body says.
async fn work(body: &str) -> Result<(), StatusCode> {
    let millis = body.trim().parse().map_err(|_| StatusCode::BAD_REQUEST)?;
    tokio::time::sleep(Duration::from_millis(millis)).await;
    Ok(())
}

async fn pay(Extension(claim): Extension<Claim>, body: String) -> Result<Response, StatusCode> {
    work(&body).await?;
    // A real service writes `claim.key()` and the token in the transaction of the payment.
    let token = claim.fencing_token().map(|token| token.to_string());
    Ok((StatusCode::CREATED, token.unwrap_or_default()).into_response())
}

async fn settle(
    Path(account): Path<String>,
    Extension(lock): Extension<Locked>,
    body: String,
) -> Result<String, StatusCode> {
    work(&body).await?;
    let token = lock.fencing_token().map(|token| token.to_string());
    Ok(format!("{account} {}", token.unwrap_or_default()))
}

async fn report() -> &'static str {
    "a report"
}

/// Lets a request end although its client disconnects: only the wait for the task is dropped.
async fn to_the_end(request: Request, next: Next) -> Result<Response, StatusCode> {
    let task = tokio::spawn(next.run(request));
    task.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

/// The routes. All processes with the same server share their limits.
async fn app(client: &Client) -> Result<Router, Box<dyn Error>> {
    // A payment is made once for each key and user.
    let once = IdempotencyLayer::new(client, "payments", |parts| {
        // In your program: the caller that the authentication has put into `parts.extensions`.
        Some(parts.headers.get("x-user")?.to_str().ok()?.to_owned())
    })?;

    // An account is settled by one request at a time. The others wait for up to 5 s.
    let one_at_a_time = OneAtATimeLayer::new(client, "accounts", |parts| {
        Some(parts.uri.path().to_owned())
    })?
    .wait(Duration::from_secs(5));

    // All processes together make at most 20 reports at a time, and 100 a minute.
    let reports = LeasedSemaphore::new(client, "reports")?;
    reports.init(20).await?; // later calls change nothing
    let at_most = ConcurrencyLayer::new(reports);
    let limit = Limit::new("100/m".parse()?, 20)?;
    let a_minute = RateLimitLayer::new(client, "reports-a-minute", limit, |_| Some("all"))?;

    let payments = Router::new()
        .route("/payments", post(pay))
        .layer(once.required())
        .layer(middleware::from_fn(to_the_end)); // the last layer is the outermost one
    let accounts = Router::new()
        .route("/accounts/{account}/settle", post(settle))
        .layer(one_at_a_time);
    let reports = Router::new()
        .route("/report", get(report))
        .layer(at_most)
        .layer(a_minute);
    Ok(payments.merge(accounts).merge(reports))
}

/// Serves until `stop` resolves. Then the requests in progress end, and the client sends the releases that are left.
pub(crate) async fn serve(
    listener: TcpListener,
    client: &Client,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<ShutdownReport, Box<dyn Error>> {
    let app = app(client).await?;
    axum::serve(listener, app)
        .with_graceful_shutdown(stop)
        .await?;
    Ok(client.shutdown(Duration::from_secs(5)).await)
}

#[tokio::main]
#[cfg_attr(test, expect(dead_code, reason = "tests call `serve`"))]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or_else(|| "memory://axum".into());
    let port = args.next().map_or(Ok(3000), |port| port.parse())?;
    let client = Client::connect(url.as_str()).await?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("listening on {}", listener.local_addr()?);
    let stop = async {
        // If the signal cannot be received, the service runs until it is killed.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let report = serve(listener, &client, stop).await?;
    println!("left behind: {report:?}");
    Ok(())
}
