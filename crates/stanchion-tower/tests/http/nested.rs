//! Routers that are nested in another one: axum removes the prefix of the path before a layer of the inner router sees it.

use ::axum::body::Body;
use ::axum::extract::Path;
use ::axum::{Extension, Router, routing::post};
use stanchion_tower::{Claim, IdempotencyLayer, OneAtATimeLayer};

use super::*;

async fn call(app: &Router, path: &str, body: &'static str) -> (u16, String) {
    let request = Request::post(path)
        .header("x-user", "ann")
        .header("idempotency-key", "k")
        .body(Body::from(body))
        .unwrap();
    let response = app.clone().oneshot(request).await.unwrap();
    (response.status().as_u16(), text(response).await)
}

#[tokio::test(start_paused = true)]
async fn a_refund_does_not_get_the_response_of_a_payment() {
    let (_engine, client) = world().await;
    let once = IdempotencyLayer::new(&client, "shop", |parts| {
        Some(parts.headers.get("x-user")?.to_str().ok()?.to_owned())
    });
    let once = once.unwrap().required();
    let does = |what: &'static str| {
        post(move |Extension(_): Extension<Claim>| async move { what }).layer(once.clone())
    };
    let router = |what| Router::new().route("/", does(what));
    let app = Router::new()
        .nest("/payments", router("paid"))
        .nest("/refunds", router("refunded"));
    assert_eq!(call(&app, "/payments", "5").await, (200, "paid".into()));
    let (status, text) = call(&app, "/refunds", "5").await;
    assert_eq!(status, 422, "{text}");
}

#[tokio::test(start_paused = true)]
async fn equal_paths_of_two_nested_routers_do_not_block_each_other() {
    let (_engine, client) = world().await;
    let handler = Handler::closed();
    let one = OneAtATimeLayer::new(&client, "shop", |parts| Some(parts.uri.path().to_owned()));
    let one = one.unwrap();
    let settle = {
        let handler = handler.clone();
        move |Path(id): Path<String>| async move {
            handler.calls.fetch_add(1, Ordering::Relaxed);
            handler.gate.acquire().await.unwrap().forget();
            id
        }
    };
    let router = || {
        Router::new()
            .route("/{id}", post(settle.clone()))
            .layer(one.clone())
    };
    let app = Router::new()
        .nest("/orders", router())
        .nest("/carts", router());
    let order = tokio::spawn({
        let app = app.clone();
        async move { call(&app, "/orders/7", "").await }
    });
    handler.called(1).await;
    let cart = tokio::spawn({
        let app = app.clone();
        async move { call(&app, "/carts/7", "").await }
    });
    handler.called(2).await;
    // The same order, with another spelling of its number.
    assert_eq!(call(&app, "/orders/%37", "").await.0, 409);
    handler.gate.add_permits(2);
    assert_eq!(order.await.unwrap(), (200, "7".into()));
    assert_eq!(cart.await.unwrap(), (200, "7".into()));
}
