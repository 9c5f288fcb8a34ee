//! What the server keeps of an idempotency key: its names, its scripts, and the stored response.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CONNECTION, DATE, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{Response, StatusCode, response};
use sha2::{Digest as _, Sha256};
use stanchion_client::primitive::{Handle, Reply, Resend, Script, unexpected, whole_millis};
use stanchion_client::{InvalidName, QueryError, WireOwner};
use stanchion_lock::Lock;

use crate::body::ResponseBody;
use crate::idempotency::MAX_RESPONSE_BYTES;
use crate::limit::{LIMIT, REMAINING, RESET};
use crate::refusal::Refusal;

static READ: Script<1, 0> = Script::new("tower/read", include_str!("../lua/read.lua"));
static STORE: Script<2, 6> = Script::new("tower/store", include_str!("../lua/store.lua"));

const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Headers of one connection, the date, which the HTTP server adds, and the state of a rate limit, which a repetition changes.
const NOT_STORED: [HeaderName; 10] = [
    CONNECTION,
    DATE,
    LIMIT,
    PROXY_AUTHENTICATE,
    REMAINING,
    RESET,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// SHA-256 in lower-case hexadecimal. The length of each part is part of the input, so that no two lists of parts have the same input.
fn digest(parts: &[&[u8]]) -> String {
    let mut sha = Sha256::new();
    for part in parts {
        sha.update((part.len() as u64).to_be_bytes());
        sha.update(part);
    }
    let mut hex = String::with_capacity(64);
    for byte in sha.finalize() {
        // OK: writing into a string does not fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// Identifies a request: its method, its path with the query as the client sent it, and its body.
pub(crate) fn fingerprint(parts: &Parts, body: &[u8]) -> String {
    let target = parts.uri.path_and_query().map_or("", |it| it.as_str());
    digest(&[parts.method.as_str().as_bytes(), target.as_bytes(), body])
}

/// An idempotency key on the server: the lock that is the claim, and the record of the response.
#[derive(Clone)]
pub(crate) struct Record {
    pub(crate) handle: Handle,
    pub(crate) lock: Lock,
    done: Vec<u8>,
}

impl Record {
    pub(crate) fn new(
        client: &stanchion_client::Client,
        namespace: &str,
        scope: &str,
        key: &str,
        lease: Duration,
    ) -> Result<Self, InvalidName> {
        // A digest, because clients choose the key, and names have rules for lengths and braces.
        let parts = [namespace, scope, key].map(str::as_bytes);
        let name = format!("idempotency:{}", digest(&parts));
        let lock = Lock::new(client, name)?.lease(lease);
        Ok(Self {
            handle: Handle::of(client),
            done: lock.name().prefixed_alone("stanchion_done"),
            lock,
        })
    }

    /// Returns what is stored, if a request with this key was processed.
    pub(crate) async fn read(&self) -> Result<Option<Stored>, QueryError> {
        let call = READ.call([&self.done], []);
        let reply = self.handle.query(&call, Resend::UntilAnswered).await?;
        Stored::read(&reply).ok_or_else(|| unexpected(&reply))
    }

    /// Stores a response, unless `owner` has lost the claim. Returns whether it had the claim.
    pub(crate) async fn store(
        &self,
        owner: &WireOwner,
        keep: Duration,
        fingerprint: &str,
        response: &Encoded,
    ) -> Result<bool, QueryError> {
        let Encoded {
            status,
            headers,
            body,
        } = response;
        let call = STORE.call(
            [self.lock.name().as_bytes(), &self.done],
            [
                owner.as_str().into(),
                whole_millis(keep).into(),
                fingerprint.into(),
                status.as_str().into(),
                headers.as_slice().into(),
                body.as_ref().into(),
            ],
        );
        match self.handle.query(&call, Resend::UntilAnswered).await? {
            Reply::Int(1) => Ok(true),
            Reply::Int(-2) => Ok(false),
            other => Err(unexpected(&other)),
        }
    }
}

/// A response as it is stored. The default has no status: only that the request was processed is stored.
#[derive(Debug, Default)]
pub(crate) struct Encoded {
    status: String,
    headers: Vec<u8>,
    body: Bytes,
}

impl Encoded {
    /// Returns the stored form of a response, if it is small enough.
    pub(crate) fn of(parts: &response::Parts, body: &Bytes) -> Option<Self> {
        let mut headers = Vec::new();
        for (name, value) in &parts.headers {
            if !NOT_STORED.contains(name) {
                for bytes in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                    headers.extend_from_slice(bytes);
                }
            }
        }
        (headers.len() + body.len() <= MAX_RESPONSE_BYTES).then(|| Self {
            status: parts.status.as_str().to_owned(),
            headers,
            body: body.clone(),
        })
    }
}

/// A record of the server.
#[derive(Debug, PartialEq)]
pub(crate) struct Stored {
    fingerprint: String,
    /// `None`: the request was processed, and its response is not stored.
    response: Option<(StatusCode, HeaderMap, Bytes)>,
}

impl Stored {
    /// Reads the reply of the script. The outer `None`: the reply has another form.
    fn read(reply: &Reply) -> Option<Option<Self>> {
        let [fingerprint, status, headers, body] = reply.as_array()? else {
            return None;
        };
        if *fingerprint == Reply::Nil {
            return Some(None);
        }
        let response = match (status, headers, body) {
            (Reply::Nil, ..) => None,
            (status, Reply::Bulk(lines), Reply::Bulk(body)) => {
                let status = StatusCode::from_bytes(status.as_text()?.as_bytes()).ok()?;
                Some((status, headers_of(lines)?, body.clone().into()))
            }
            _ => return None,
        };
        Some(Some(Self {
            fingerprint: fingerprint.as_text()?.to_owned(),
            response,
        }))
    }

    /// Returns the response to a repeated request.
    pub(crate) fn replay<B>(self, fingerprint: &str) -> Result<Response<ResponseBody<B>>, Refusal> {
        if self.fingerprint != fingerprint {
            return Err(Refusal::KeyReused);
        }
        let Some((status, headers, body)) = self.response else {
            return Err(Refusal::NotStored);
        };
        let mut response = Response::new(ResponseBody::of_layer(body));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        let replayed = HeaderValue::from_static("true");
        response.headers_mut().insert(REPLAYED, replayed);
        Ok(response)
    }
}

fn headers_of(lines: &[u8]) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    // A value has no line breaks: `HeaderValue` refuses them.
    for line in lines.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        let colon = line.windows(2).position(|pair| pair == b": ")?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        headers.append(name, HeaderValue::from_bytes(&line[colon + 2..]).ok()?);
    }
    Some(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_read_as_it_was_stored() {
        let response = Response::builder()
            .status(201)
            .header("content-type", "application/json")
            .header("set-cookie", "a=1")
            .header("set-cookie", "b: 2")
            .header("x-bytes", HeaderValue::from_bytes(b"\xfc\t ").unwrap())
            .header("x-empty", "")
            .header("connection", "close")
            .body(())
            .unwrap();
        let (parts, ()) = response.into_parts();
        let body = Bytes::from_static(b"\x00\r\n\xff");
        let stored = Encoded::of(&parts, &body).unwrap();
        let reply = Reply::Array(vec![
            Reply::Bulk(b"f".to_vec()),
            Reply::Bulk(stored.status.into_bytes()),
            Reply::Bulk(stored.headers),
            Reply::Bulk(stored.body.to_vec()),
        ]);
        let read = Stored::read(&reply).unwrap().unwrap();
        let (status, _, stored) = read.response.as_ref().unwrap();
        assert_eq!((status.as_u16(), stored), (201, &body));
        let replayed: Response<ResponseBody<()>> = read.replay("f").unwrap();
        assert_eq!(replayed.status(), 201);
        let mut headers = parts.headers;
        headers.remove("connection");
        headers.insert("idempotency-replayed", HeaderValue::from_static("true"));
        assert_eq!(replayed.headers(), &headers);
    }

    #[test]
    fn each_part_of_a_request_changes_its_fingerprint() {
        let of = |method: &str, uri: &str, body: &str| {
            let request = http::Request::builder().method(method).uri(uri).body(());
            fingerprint(&request.unwrap().into_parts().0, body.as_bytes())
        };
        let one = of("POST", "/a?b", "c");
        assert_eq!(one, of("POST", "/a?b", "c"));
        for other in [
            of("PATCH", "/a?b", "c"),
            of("POST", "/a", "c"),
            of("POST", "/a?b", "d"),
            of("POST", "/a?bc", ""),
        ] {
            assert_ne!(one, other);
        }
        assert_ne!(digest(&[b"ab", b"c"]), digest(&[b"a", b"bc"]));
    }
}
