//! Metrics over HTTP. A service has a route for this in the HTTP server that it has anyway.

use std::io;

use metrics_exporter_prometheus::PrometheusHandle;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// Answers for ever.
pub(crate) async fn serve(listener: TcpListener, metrics: PrometheusHandle) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(answer(stream, metrics.clone()));
    }
}

/// Answers any request with the metrics.
async fn answer(mut stream: tokio::net::TcpStream, metrics: PrometheusHandle) {
    let mut request = [0; 1024];
    if stream.read(&mut request).await.is_err() {
        return;
    }
    metrics.run_upkeep();
    let body = metrics.render();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    // A scraper that has gone asks again.
    drop(stream.write_all((head + &body).as_bytes()).await);
}
