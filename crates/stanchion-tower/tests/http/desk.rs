//! Conversations with layers, as transcripts.
//!
//! ```text
//! first = here POST /pay key=k
//! there POST /pay key=k -> 409 InProgress
//! open 1
//! first -> 200 #1 claim
//! here POST /pay key=k -> 200 #1 claim replayed
//! ```
//!
//! A request names its service, method, path and headers. After the arrow is the response: the status, the [`Refusal`], `retry=` and `rate=`
//! (the limit, the rest and the seconds) from its headers, the body, and `ran` if the handler was called. The handler responds with the number of its call, and
//! with the kind of hold that the layer gave it.
//!
//! * `#` begins a comment. `first = …` sends a request in a task, and waits until the handler runs. `first` is its end, and `abort first` drops it.
//! * `second ~ …` sends one that waits for a hold.
//! * `until …` repeats a request that is refused.
//! * `open 2` lets the handler respond twice. `wait 100` passes milliseconds.
//!
//! On a difference the test prints the text with the actual responses.

use std::collections::HashMap;
use std::pin::Pin;
use std::time::Duration;

use http::HeaderMap;
use stanchion_tower::Refusal;
use tower::util::BoxCloneService;

use super::*;

/// The handler behind a layer.
pub(crate) type Inner = BoxCloneService<Request<Body>, Response<Body>, Infallible>;

pub(crate) type Sent = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A response that was read.
pub(crate) struct Answer {
    status: u16,
    refusal: Option<Refusal>,
    headers: HeaderMap,
    body: String,
}

impl Answer {
    pub(crate) fn shown(&self) -> String {
        let header = |name: &str| Some(self.headers.get(name)?.to_str().unwrap());
        let mut shown = self.status.to_string();
        if let Some(refusal) = &self.refusal {
            let problem = Some("application/problem+json");
            assert_eq!(header("content-type"), problem, "{refusal:?}");
            let name = format!("{refusal:?}");
            shown += &format!(" {}", name.split(' ').next().unwrap());
        } else {
            match self.body.len() {
                length @ 20.. => shown += &format!(" {length} bytes"),
                _ => {
                    assert_eq!(header("x-made"), Some("yes"), "a header of the handler");
                    shown += &format!(" {}", self.body);
                }
            }
        }
        if let Some(seconds) = header("retry-after") {
            shown += &format!(" retry={seconds}");
        }
        if let Some(limit) = header("ratelimit-limit") {
            let [rest, reset] = ["remaining", "reset"].map(|it| header(&format!("ratelimit-{it}")));
            shown += &format!(" rate={limit}/{}/{}", rest.unwrap(), reset.unwrap());
        }
        if header("idempotency-replayed") == Some("true") {
            shown += " replayed";
        }
        shown
    }
}

/// Sends a request through one stack of layers.
type Sending = Box<dyn Fn(Request<Body>) -> Sent>;

/// Services that share a handler, of two clients.
pub(crate) struct Desk {
    pub(crate) engine: Engine,
    pub(crate) here: Client,
    pub(crate) there: Client,
    pub(crate) handler: Handler,
    services: HashMap<&'static str, Sending>,
    running: HashMap<String, JoinHandle<Answer>>,
}

impl Desk {
    pub(crate) async fn new(handler: Handler) -> Self {
        let (engine, here) = world().await;
        let there = another(&engine).await;
        Self {
            engine,
            here,
            there,
            handler,
            services: HashMap::new(),
            running: HashMap::new(),
        }
    }

    /// Adds a service with `layer` in front of the handler.
    pub(crate) fn serve<L, S, B>(&mut self, name: &'static str, layer: L)
    where
        L: tower_layer::Layer<Inner, Service = S>,
        S: Service<Request<Body>, Response = Response<B>, Error = Infallible, Future: Send>,
        S: Clone + Send + 'static,
        B: http_body::Body<Data = Bytes, Error: std::fmt::Debug> + Send + 'static,
    {
        let service = layer.layer(BoxCloneService::new(self.handler.service()));
        let sends = move |request| -> Sent {
            let sent = service.clone().oneshot(request);
            Box::pin(async {
                let response = sent.await.unwrap();
                Answer {
                    status: response.status().as_u16(),
                    refusal: response.extensions().get().copied(),
                    headers: response.headers().clone(),
                    body: text(response).await,
                }
            })
        };
        self.services.insert(name, Box::new(sends));
    }

    pub(crate) fn send(&self, words: &[&str]) -> Sent {
        let [service, method, path, headers @ ..] = words else {
            panic!("no request: {words:?}");
        };
        let mut sent = request(method, path, "");
        for header in headers {
            let (name, value) = header.split_once('=').unwrap();
            let value = value.replace('~', " ");
            sent = match name {
                "body" => sent.map(|_| Body::from(value)),
                "key" => with(sent, "idempotency-key", &value),
                "user" => with(sent, "x-user", &value),
                "status" => with(sent, "x-status", &value),
                "length" => with(sent, "x-length", &value),
                _ => panic!("unknown: {header}"),
            };
        }
        (self.services[service])(sent)
    }

    /// Returns what the lines of a transcript cause, which is `text`.
    pub(crate) async fn check(&mut self, text: &str) {
        let (mut expected, mut actual) = (Vec::new(), Vec::new());
        for line in text.trim().lines().map(str::trim) {
            if line.starts_with('#') {
                expected.push(line);
                actual.push(line.to_owned());
                continue;
            }
            let (event, _) = line.split_once(" -> ").unwrap_or((line, ""));
            let words: Vec<_> = event.split(' ').collect();
            let shown = self.event(&words).await;
            expected.push(line);
            actual.push(shown.map_or_else(|| event.to_owned(), |it| format!("{event} -> {it}")));
        }
        let actual = actual.join("\n");
        assert!(
            actual == expected.join("\n"),
            "the actual responses:\n{actual}"
        );
    }

    async fn event(&mut self, words: &[&str]) -> Option<String> {
        let calls = self.handler.calls();
        let answer = match words {
            ["open", times] => {
                self.handler.gate.add_permits(times.parse().unwrap());
                return None;
            }
            ["wait", ms] => {
                tokio::time::sleep(Duration::from_millis(ms.parse().unwrap())).await;
                return None;
            }
            ["abort", name] => {
                let running = self.running.remove(*name).unwrap();
                running.abort();
                assert!(running.await.err().unwrap().is_cancelled());
                return None;
            }
            [name, how @ ("=" | "~"), request @ ..] => {
                let running = tokio::spawn(self.send(request));
                self.running.insert((*name).to_owned(), running);
                if *how == "=" {
                    self.handler.called(calls + 1).await;
                }
                return None;
            }
            [name] => {
                let running = self.running.remove(*name).unwrap();
                let ended = tokio::time::timeout(Duration::from_secs(600), running);
                ended.await.unwrap().unwrap()
            }
            ["until", request @ ..] => loop {
                let answer = self.send(request).await;
                if answer.refusal.is_none() {
                    break answer;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            },
            request => self.send(request).await,
        };
        let ran = if self.handler.calls() > calls {
            " ran"
        } else {
            ""
        };
        Some(answer.shown() + ran)
    }
}
