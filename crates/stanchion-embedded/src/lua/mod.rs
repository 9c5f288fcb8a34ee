//! Scripts: the cache by digest, and `EVAL`, `EVALSHA` and `SCRIPT`.

mod convert;
mod interpreter;
mod library;
mod packing;
mod patterns;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use mlua::Function;

use crate::commands::ScriptCommand;
use crate::keyspace::number::parse_int;
use crate::locked;
use crate::outcome::{Failure, Outcome};
use crate::reply::Reply;
use crate::resp::Args;
use crate::server::{Server, SessionId};
use interpreter::Interpreter;

/// The most bytes of sources that are kept. Above that all are dropped, as by a restart: clients send them again.
const MOST_SOURCES: usize = 16 * 1024 * 1024;

/// The scripts that a server knows.
#[derive(Debug)]
pub(crate) struct Scripts {
    server: Arc<Mutex<Server>>,
    /// Created for the first script: many engines never run one.
    interpreter: Option<Interpreter>,
    /// Those that the present interpreter has compiled.
    compiled: HashMap<[u8; 40], Function>,
    /// All of them: a fresh interpreter compiles them again.
    sources: HashMap<[u8; 40], Vec<u8>>,
    /// The bytes of the sources.
    bytes: usize,
    /// A text, and the text that replaces it in every script: a planted error, or a mutant.
    change: Option<(String, String)>,
}

/// The change of `scripts/mutants`, which builds with `--cfg stanchion_mutants`: a text, the unit separator, and the text that replaces it.
fn mutant() -> Option<(String, String)> {
    let change = cfg!(stanchion_mutants).then(|| std::env::var("STANCHION_MUTANT").ok())??;
    let (from, to) = change.split_once('\u{1f}')?;
    Some((from.to_owned(), to.to_owned()))
}

impl Scripts {
    pub(crate) fn new(server: Arc<Mutex<Server>>) -> Self {
        Self {
            server,
            interpreter: None,
            compiled: HashMap::new(),
            sources: HashMap::new(),
            bytes: 0,
            change: mutant(),
        }
    }

    /// Replaces a text in every script that is compiled from now on.
    pub(crate) fn change(&mut self, from: &str, to: &str) {
        self.end_interpreter();
        self.change = Some((from.to_owned(), to.to_owned()));
    }

    /// Removes all scripts, and the interpreter with everything that they left in it.
    pub(crate) fn flush(&mut self) {
        self.end_interpreter();
        self.sources.clear();
        self.bytes = 0;
    }

    fn end_interpreter(&mut self) {
        self.compiled.clear();
        self.interpreter = None;
    }

    /// Replaces an interpreter in which scripts have left no room: otherwise every later script would fail.
    fn make_room(&mut self) {
        if self.interpreter.as_ref().is_some_and(Interpreter::is_full) {
            self.end_interpreter();
        }
    }

    pub(crate) fn run(
        &mut self,
        command: ScriptCommand,
        session: SessionId,
        args: Args<'_>,
    ) -> Reply {
        let outcome = match command {
            ScriptCommand::Eval => self.eval(session, args),
            ScriptCommand::EvalSha => self.eval_sha(session, args),
            ScriptCommand::Script => self.script(args),
        };
        outcome.unwrap_or_else(|Failure(text)| Reply::Error(text.into_owned()))
    }

    fn eval(&mut self, session: SessionId, args: Args<'_>) -> Outcome {
        let keys = key_count(args)?;
        let digest = digest(&args[1]);
        self.load(digest, &args[1])?;
        self.call(session, digest, args, keys)
    }

    fn eval_sha(&mut self, session: SessionId, args: Args<'_>) -> Outcome {
        let digest = <[u8; 40]>::try_from(args[1].to_ascii_lowercase()).map_err(|_| no_script())?;
        let keys = key_count(args)?;
        self.call(session, digest, args, keys)
    }

    fn call(
        &mut self,
        session: SessionId,
        digest: [u8; 40],
        args: Args<'_>,
        keys: usize,
    ) -> Outcome {
        if !self.compiled.contains_key(&digest) {
            let source = self.sources.get(&digest).ok_or_else(no_script)?.clone();
            self.compile(digest, &source)?;
        }
        let (Some(function), Some(interpreter)) = (self.compiled.get(&digest), &self.interpreter)
        else {
            return Err(no_script());
        };
        let now = locked(&self.server).begin_script(session, args.skip(3), keys)?;
        let reply = interpreter.call(function, &digest, args.skip(3), keys, now);
        locked(&self.server).end_script();
        self.make_room();
        reply
    }

    fn script(&mut self, args: Args<'_>) -> Outcome {
        let subcommand = args[1].to_ascii_lowercase();
        match (subcommand.as_slice(), args.len()) {
            (b"load", 3) => {
                let digest = digest(&args[2]);
                self.load(digest, &args[2])?;
                Ok(Reply::bulk(digest))
            }
            (b"exists", 3..) => {
                let known = |digest: &[u8]| {
                    let digest = <[u8; 40]>::try_from(digest.to_ascii_lowercase());
                    digest.is_ok_and(|digest| self.sources.contains_key(&digest))
                };
                let flags = args.skip(2).iter().map(|d| Reply::flag(known(d)));
                Ok(Reply::Array(flags.collect()))
            }
            (b"flush", 2) => {
                self.flush();
                Ok(Reply::ok())
            }
            (b"flush", 3) if args.is(2, "SYNC") || args.is(2, "ASYNC") => {
                self.flush();
                Ok(Reply::ok())
            }
            (b"flush", _) => Err(Failure::new(
                "ERR SCRIPT FLUSH only support SYNC|ASYNC option",
            )),
            (b"load" | b"exists", _) => {
                let name = String::from_utf8_lossy(&subcommand);
                Err(Failure::arity(&format!("script|{name}")))
            }
            (b"kill", 2) => Err(Failure::new("NOTBUSY No scripts in execution right now.")),
            _ => Err(Failure::unknown_subcommand("script", &args[1])),
        }
    }

    /// Compiles and keeps a script unless it is known.
    fn load(&mut self, digest: [u8; 40], source: &[u8]) -> Outcome<()> {
        if self.compiled.contains_key(&digest) {
            return Ok(());
        }
        if self.sources.contains_key(&digest) {
            return self.compile(digest, source);
        }
        if self.bytes + source.len() > MOST_SOURCES {
            self.flush();
        }
        self.compile(digest, source)?;
        self.bytes += source.len();
        self.sources.insert(digest, source.to_vec());
        Ok(())
    }

    fn compile(&mut self, digest: [u8; 40], source: &[u8]) -> Outcome<()> {
        // Functions of earlier scripts take room, too.
        self.make_room();
        let made = match self.interpreter.take() {
            Some(made) => made,
            None => Interpreter::new(&self.server)
                .map_err(|e| Failure::new(format!("ERR Lua does not start: {e}")))?,
        };
        let changed = self.change.as_ref().map(|(from, to)| {
            let text = String::from_utf8_lossy(source);
            text.replace(from, to).into_bytes()
        });
        let source = changed.as_deref().unwrap_or(source);
        let function = self.interpreter.insert(made).compile(source);
        match function {
            Ok(function) => {
                self.compiled.insert(digest, function);
                Ok(())
            }
            Err(failure) => {
                self.make_room();
                Err(failure)
            }
        }
    }
}

fn no_script() -> Failure {
    Failure::new("NOSCRIPT No matching script. Please use EVAL.")
}

/// Returns the SHA-1 of a script in lower case hexadecimal.
fn digest(source: &[u8]) -> [u8; 40] {
    let bytes = sha1_smol::Sha1::from(source).digest().bytes();
    let mut hex = [0; 40];
    for (pair, byte) in hex.chunks_exact_mut(2).zip(bytes) {
        pair[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
        pair[1] = b"0123456789abcdef"[usize::from(byte & 15)];
    }
    hex
}

/// Returns the number of keys that a script call announces.
fn key_count(args: Args<'_>) -> Outcome<usize> {
    let count = parse_int(&args[2]).ok_or_else(Failure::not_an_integer)?;
    let Ok(count) = usize::try_from(count) else {
        return Err(Failure::new("ERR Number of keys can't be negative"));
    };
    if count > args.len() - 3 {
        return Err(Failure::new(
            "ERR Number of keys can't be greater than number of args",
        ));
    }
    Ok(count)
}
