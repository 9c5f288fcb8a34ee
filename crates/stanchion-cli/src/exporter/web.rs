//! The pages of the exporter, over HTTP.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

use super::lock;
use super::page::Page;

const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Serves until it is dropped.
pub(super) async fn serve(listener: TcpListener, page: Arc<Mutex<Page>>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Too many open files, for example.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let page = Arc::clone(&page);
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let answer = answer(&request, &page);
                async { Ok::<_, Infallible>(answer) }
            });
            // The timer ends a connection that sends no request.
            let mut connection = http1::Builder::new();
            connection.timer(TokioTimer::new());
            // OK: a broken connection has no reader for an error.
            let _ = connection
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

fn answer(request: &Request<Incoming>, page: &Mutex<Page>) -> Response<String> {
    let (status, kind, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            (StatusCode::OK, OPEN_METRICS, lock(page).text())
        }
        (&Method::GET | &Method::HEAD, "/healthz") => (StatusCode::OK, PLAIN, "ok\n".to_owned()),
        (&Method::GET | &Method::HEAD, _) => (
            StatusCode::NOT_FOUND,
            PLAIN,
            "the pages are /metrics and /healthz\n".to_owned(),
        ),
        _ => (
            StatusCode::METHOD_NOT_ALLOWED,
            PLAIN,
            "the pages are read with GET\n".to_owned(),
        ),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind);
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}
