//! A gRPC service with layers, called in the same process: `cargo run -p stanchion-tower --features embedded --example tonic`.
//!
//! With tonic's own server: `Server::builder().layer(layer).add_service(service)`. The layers see requests of HTTP, and answer them with a status of
//! gRPC. [`Orders`] is what tonic's generator writes for a service with one method; here its messages are texts, so that the example
//! needs no compiler for protocol buffers.
#![expect(clippy::print_stdout, reason = "an example for the terminal")]

use std::convert::Infallible;
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use bytes::{Buf as _, BufMut as _};
use http::uri::PathAndQuery;
use stanchion_tower::{Client, Limit, Locked, OneAtATimeLayer, RateLimitLayer};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tower_service::Service;

/// The method. The key of its lock, the account, is in the metadata: a layer does not read messages.
async fn settle(request: Request<String>) -> Result<Response<String>, Status> {
    // A real service sends the token with each write.
    let lock = request.extensions().get::<Locked>();
    let token = lock.and_then(Locked::fencing_token);
    let token = token.ok_or_else(|| Status::internal("no token"))?;
    let millis = request.get_ref().parse();
    let millis = millis.map_err(|_| Status::invalid_argument("milliseconds"))?;
    tokio::time::sleep(Duration::from_millis(millis)).await;
    Ok(Response::new(format!("settled under {token}")))
}

/// The routes, with their layers.
pub(crate) fn app(client: &Client) -> Result<Router, Box<dyn Error>> {
    let account = |parts: &http::request::Parts| {
        let account = parts.headers.get("account");
        Some(account.map_or(Vec::new(), |account| account.as_bytes().to_vec()))
    };
    let one_at_a_time = OneAtATimeLayer::new(client, "accounts", account)?;
    let limit = Limit::new("60/h".parse()?, 3)?;
    let rate = RateLimitLayer::new(client, "calls", limit, account)?;
    Ok(Routes::new(Orders)
        .into_axum_router()
        .layer(one_at_a_time)
        .layer(rate)) // the last layer is the outermost one
}

/// Calls the method as a client does.
pub(crate) async fn call(
    app: &Router,
    account: &'static str,
    millis: u64,
) -> Result<String, Status> {
    let mut request = Request::new(millis.to_string());
    let account = tonic::metadata::MetadataValue::from_static(account);
    request.metadata_mut().insert("account", account);
    let path = PathAndQuery::from_static("/shop.Orders/Settle");
    let mut client = tonic::client::Grpc::new(app.clone());
    let response = client.unary(request, path, Text).await?;
    Ok(response.into_inner())
}

#[tokio::main]
#[cfg_attr(test, expect(dead_code, reason = "tests call the functions"))]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::connect("memory://tonic").await?; // redis://…
    let app = app(&client)?;
    let (first, second, other) = tokio::join!(
        call(&app, "7", 200),
        call(&app, "7", 200),
        call(&app, "8", 200)
    );
    for answer in [first, second, other] {
        match answer {
            Ok(text) => println!("{text}"),
            Err(status) => println!("{:?}: {}", status.code(), status.message()),
        }
    }
    client.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

/// The service, as tonic's generator writes it.
#[derive(Clone, Debug)]
struct Orders;

impl NamedService for Orders {
    const NAME: &'static str = "shop.Orders";
}

impl Service<http::Request<tonic::body::Body>> for Orders {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(Text);
            Ok(grpc.unary(tower::service_fn(settle), request).await)
        })
    }
}

/// Messages that are texts.
#[derive(Clone, Copy, Debug)]
struct Text;

impl Codec for Text {
    type Encode = String;
    type Decode = String;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Text {
    type Item = String;
    type Error = Status;

    fn encode(&mut self, text: String, target: &mut EncodeBuf<'_>) -> Result<(), Status> {
        target.put_slice(text.as_bytes());
        Ok(())
    }
}

impl Decoder for Text {
    type Item = String;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<String>, Status> {
        let bytes = source.copy_to_bytes(source.remaining()).to_vec();
        let text = String::from_utf8(bytes);
        text.map(Some)
            .map_err(|_| Status::invalid_argument("the message is no text"))
    }
}
