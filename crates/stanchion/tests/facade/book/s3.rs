//! The object store of the chapter on fencing: the program of the page, on a bucket that has S3's conditional writes.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Mutex;

use super::fencing::{a_stale_and_a_fresh_hold, token_of as token};

/// S3's conditional writes: an ETag that is a digest of the contents, `If-Match` and `If-None-Match: *`.
trait Bucket {
    async fn get(&self, key: &str) -> Option<Object>;
    async fn put(&self, key: &str, body: &str, condition: Condition) -> Result<(), Conflict>;
}

#[derive(Clone, Debug)]
struct Object {
    etag: u64,
    body: String,
}

#[derive(Debug)]
enum Condition {
    IfMatch(u64),
    IfNoneMatch,
}

/// 412 or 409.
#[derive(Debug)]
struct Conflict;

#[derive(Debug, PartialEq, Eq)]
enum Refused {
    Stale,
}

fn token_of(body: &str) -> u64 {
    body[..20].parse().unwrap()
}

async fn put_fenced(
    bucket: &impl Bucket,
    key: &str,
    token: u64,
    payload: &str,
) -> Result<(), Refused> {
    let body = format!("{token:020}\n{payload}"); // the token first: the ETag changes with it
    loop {
        let condition = match bucket.get(key).await {
            None => Condition::IfNoneMatch,
            Some(object) if token_of(&object.body) > token => return Err(Refused::Stale),
            Some(object) => Condition::IfMatch(object.etag),
        };
        match bucket.put(key, &body, condition).await {
            Ok(()) => return Ok(()),
            Err(Conflict) => continue, // 412 or 409: somebody wrote in between
        }
    }
}

/// A bucket in memory. Between a get and the put that follows, `meanwhile` is written once.
#[derive(Default)]
struct Memory {
    objects: Mutex<HashMap<String, Object>>,
    meanwhile: Mutex<Option<String>>,
}

impl Memory {
    fn write(&self, key: &str, body: &str) {
        let mut digest = DefaultHasher::new();
        body.hash(&mut digest);
        let object = Object {
            etag: digest.finish(),
            body: body.to_owned(),
        };
        self.objects.lock().unwrap().insert(key.to_owned(), object);
    }

    fn payload(&self, key: &str) -> String {
        self.objects.lock().unwrap()[key].body[21..].to_owned()
    }
}

impl Bucket for Memory {
    async fn get(&self, key: &str) -> Option<Object> {
        let found = self.objects.lock().unwrap().get(key).cloned();
        if let Some(body) = self.meanwhile.lock().unwrap().take() {
            self.write(key, &body);
        }
        found
    }

    async fn put(&self, key: &str, body: &str, condition: Condition) -> Result<(), Conflict> {
        let there = self
            .objects
            .lock()
            .unwrap()
            .get(key)
            .map(|object| object.etag);
        match (condition, there) {
            (Condition::IfNoneMatch, None) => {}
            (Condition::IfMatch(wanted), Some(etag)) if wanted == etag => {}
            _ => return Err(Conflict),
        }
        self.write(key, body);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_refuses_a_paused_holder() {
    let (old, new) = a_stale_and_a_fresh_hold().await;
    let (old, new) = (token(&old).cast_unsigned(), token(&new).cast_unsigned());
    let bucket = Memory::default();
    put_fenced(&bucket, "report", old, "first").await.unwrap();
    put_fenced(&bucket, "report", new, "second").await.unwrap();
    assert_eq!(
        put_fenced(&bucket, "report", old, "late").await,
        Err(Refused::Stale)
    );
    assert_eq!(bucket.payload("report"), "second");
}

#[tokio::test]
async fn a_newer_holder_that_writes_between_the_steps_wins() {
    for there in [None, Some("00000000000000000001\nsame")] {
        let bucket = Memory::default();
        if let Some(body) = there {
            bucket.write("report", body);
        }
        // The same payload as was there: only the token tells the two objects apart.
        *bucket.meanwhile.lock().unwrap() = Some("00000000000000000009\nsame".into());
        let late = put_fenced(&bucket, "report", 5, "late").await;
        assert_eq!(late, Err(Refused::Stale), "{there:?}");
        assert_eq!(bucket.payload("report"), "same");
    }
}
