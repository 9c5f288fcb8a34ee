//! Planted bugs on the wire: between a client and the engine, commands and replies are changed as if the program that
//! made them had the bug.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use stanchion::embedded::{Engine, Reply};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Mutex;

/// Which bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// The release script frees the lock whoever holds it: each call of it becomes a call of a script that deletes the
    /// key without looking at the owner.
    UncheckedRelease,
    /// Nobody asks again once the subscription is in effect. The client does ask after the confirmation, so the
    /// confirmation is sent at once and the subscription takes effect later: for the server the client's last question
    /// came before its subscription, as in a program that asks, subscribes and waits. Messages in between are lost.
    NoRetryAfterSubscribe,
    /// Of every script that has this line, the line is another one.
    Line(&'static str, &'static str),
}

/// The delay of a subscription's effect after its confirmation: longer than the question after it takes.
const SUBSCRIPTION_DELAY: Duration = Duration::from_millis(150);

const RELEASE: &str =
    stanchion_client::in_line!(include_str!("../../crates/stanchion-lock/lua/release.lua"));

/// The release script without its check.
const UNCHECKED: &str = "redis.call('DEL', KEYS[1]) return redis.call(ARGV[2], ARGV[1], '0')";

/// Serves one connection.
pub(crate) async fn serve(
    engine: &Engine,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    mutation: Mutation,
) -> io::Result<()> {
    // The engine's digest of the true text is the one clients send.
    let Reply::Bulk(release) = engine.execute(&["SCRIPT", "LOAD", RELEASE]) else {
        return Err(io::Error::other("the release script does not load"));
    };
    let (mut from_client, to_client) = tokio::io::split(stream);
    let (from_engine, to_engine) = tokio::io::split(engine.connect()?);
    let (to_client, to_engine) = (&Mutex::new(to_client), &Mutex::new(to_engine));
    let commands = async {
        let mut parser = Parser::default();
        // The digests of scripts as they should be, and of what runs in their place.
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

/// Puts the changed script in the place of the true one, whose text comes first: nobody has ever loaded it.
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
        b"EVAL" => args[1] == RELEASE.as_bytes(),
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

/// Takes out the true confirmation: the client has had one. The engine gives whole replies at once.
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

/// Takes commands apart: arrays of bulk strings, which is all that clients send.
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

    /// The number in the line at `at`, behind its first byte, and where the next line begins.
    fn number(&self, at: usize) -> Option<(usize, usize)> {
        let line = self.buffer.get(at..)?;
        let end = find(line, b"\r\n")?;
        let number = std::str::from_utf8(&line[1..end]).ok()?.parse().ok()?;
        Some((number, at + end + 2))
    }
}
