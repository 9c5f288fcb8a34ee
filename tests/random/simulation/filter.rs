//! Planted bugs on the wire: a filter between a client and the engine changes commands and replies as a program with the bug would.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use stanchion::embedded::{Engine, Reply};
use stanchion_lock::scripts::RELEASE;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Mutex;

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// The release script frees the lock for any caller: the filter replaces it by a script that deletes the key without a check of
    /// the owner.
    UncheckedRelease,
    /// A client does not retry after its subscription takes effect. The real client retries after the confirmation, so the filter
    /// sends the confirmation at once and delays the subscription. The server receives the retry before the subscription, as from a
    /// program that tries, subscribes and waits. Messages in between are lost.
    NoRetryAfterSubscribe,
    /// Replaces the first text by the second one in every script that contains it.
    Line(&'static str, &'static str),
}

/// The delay between the confirmation and the effect of a subscription. Longer than the retry takes.
const SUBSCRIPTION_DELAY: Duration = Duration::from_millis(150);

/// The release script without its check.
const UNCHECKED: &str = "redis.call('DEL', KEYS[1]) return redis.call(ARGV[2], ARGV[1], '0')";

/// Serves one connection.
pub(crate) async fn serve(
    engine: &Engine,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    mutation: Mutation,
) -> io::Result<()> {
    // Clients send this digest.
    let Reply::Bulk(release) = engine.execute(&["SCRIPT", "LOAD", RELEASE.text()]) else {
        return Err(io::Error::other("the release script does not load"));
    };
    let (mut from_client, to_client) = tokio::io::split(stream);
    let (from_engine, to_engine) = tokio::io::split(engine.connect()?);
    let (to_client, to_engine) = (&Mutex::new(to_client), &Mutex::new(to_engine));
    let commands = async {
        let mut parser = Parser::default();
        // From the digest of the original script to the digest of its replacement.
        let mut planted: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        loop {
            if from_client.read_buf(&mut parser.buffer).await? == 0 {
                return to_engine.lock().await.shutdown().await;
            }
            while let Some(args) = parser.next() {
                let word = args[0].to_ascii_uppercase();
                if mutation == Mutation::UncheckedRelease && calls(&args, &word, &release) {
                    let mut changed = vec![b"EVAL".to_vec(), UNCHECKED.into()];
                    changed.extend_from_slice(&args[2..]);
                    to_engine.lock().await.write_all(&encode(&changed)).await?;
                } else if mutation == Mutation::NoRetryAfterSubscribe && word == b"SUBSCRIBE" {
                    to_client
                        .lock()
                        .await
                        .write_all(&confirmation(&args[1]))
                        .await?;
                    tokio::time::sleep(SUBSCRIPTION_DELAY).await;
                    to_engine.lock().await.write_all(&encode(&args)).await?;
                } else {
                    let mut args = args;
                    if let Mutation::Line(from, to) = mutation {
                        plant(engine, &mut planted, &word, &mut args, (from, to));
                    }
                    to_engine.lock().await.write_all(&encode(&args)).await?;
                }
            }
        }
    };
    tokio::select! {
        biased;
        ended = commands => ended,
        ended = replies(from_engine, to_client, mutation) => ended,
    }
}

/// Replaces a script by the changed one. The first call of a script contains its text, because the server has not loaded it.
fn plant(
    engine: &Engine,
    planted: &mut BTreeMap<Vec<u8>, Vec<u8>>,
    word: &[u8],
    args: &mut [Vec<u8>],
    (from, to): (&str, &str),
) {
    if word == b"EVALSHA" {
        if let Some(digest) = planted.get(&args[1]) {
            args[1].clone_from(digest);
        }
    } else if word == b"EVAL" {
        let text = String::from_utf8_lossy(&args[1]).into_owned();
        if !text.contains(from) {
            return;
        }
        let changed = text.replace(from, to);
        if let Reply::Bulk(digest) = engine.execute(&["SCRIPT", "LOAD", &changed]) {
            let original = sha1_smol::Sha1::from(&text).digest().to_string();
            planted.insert(original.into_bytes(), digest);
        }
        args[1] = changed.into_bytes();
    }
}

async fn replies(
    mut from: impl AsyncRead + Unpin,
    to: &Mutex<impl AsyncWrite + Unpin>,
    mutation: Mutation,
) -> io::Result<()> {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let n = from.read(&mut bytes).await?;
        let mut chunk = bytes[..n].to_vec();
        if n == 0 {
            return to.lock().await.shutdown().await;
        }
        if mutation == Mutation::NoRetryAfterSubscribe {
            cut_confirmation(&mut chunk);
        }
        to.lock().await.write_all(&chunk).await?;
    }
}

fn calls(args: &[Vec<u8>], word: &[u8], sha: &[u8]) -> bool {
    match word {
        b"EVALSHA" => args[1] == sha,
        b"EVAL" => args[1] == RELEASE.text().as_bytes(),
        _ => false,
    }
}

const CONFIRMATION: &[u8] = b">3\r\n$9\r\nsubscribe\r\n";

fn confirmation(channel: &[u8]) -> Vec<u8> {
    let mut bytes = CONFIRMATION.to_vec();
    bytes.extend_from_slice(format!("${}\r\n", channel.len()).as_bytes());
    bytes.extend_from_slice(channel);
    bytes.extend_from_slice(b"\r\n:1\r\n");
    bytes
}

/// Removes the real confirmation, because the client has received one already. The engine writes each reply as a whole.
fn cut_confirmation(chunk: &mut Vec<u8>) {
    let Some(at) = find(chunk, CONFIRMATION) else {
        return;
    };
    // The channel's length, the channel, and the count.
    let mut end = at + CONFIRMATION.len();
    for _ in 0..3 {
        let Some(line) = find(&chunk[end..], b"\r\n") else {
            return;
        };
        end += line + 2;
    }
    chunk.drain(at..end);
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn encode(args: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Parses commands: arrays of bulk strings, the only type that clients send.
#[derive(Default)]
struct Parser {
    buffer: Vec<u8>,
}

impl Parser {
    fn next(&mut self) -> Option<Vec<Vec<u8>>> {
        let (count, mut at) = self.number(0)?;
        let mut args = Vec::with_capacity(count);
        for _ in 0..count {
            let (length, begin) = self.number(at)?;
            args.push(self.buffer.get(begin..begin + length)?.to_vec());
            at = begin + length + 2;
        }
        if self.buffer.len() < at {
            return None;
        }
        self.buffer.drain(..at);
        Some(args)
    }

    /// Returns the number in the line at `at`, after its first byte, and the start of the next line.
    fn number(&self, at: usize) -> Option<(usize, usize)> {
        let line = self.buffer.get(at..)?;
        let end = find(line, b"\r\n")?;
        let number = std::str::from_utf8(&line[1..end]).ok()?.parse().ok()?;
        Some((number, at + end + 2))
    }
}
