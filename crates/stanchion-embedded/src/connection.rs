//! One connection's bytes: what came in and is not executed yet, what goes out and is not read yet.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use std::time::Duration;

use tokio::io::ReadBuf;
use tokio::time::Instant;

use crate::locked;
use crate::reply::{Protocol, Reply};
use crate::resp::{Parsed, Request, parse};

/// How a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Open,
    /// The server has closed it: the reader gets what is left, then the end.
    Closing,
    /// Cut: nothing more is read, not even what was already sent.
    Dead,
}

/// Whether bytes move at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Moving,
    /// A black hole until it is thawed.
    Frozen,
    /// A black hole for good.
    Lost,
}

/// The two directions of one connection, shared by its stream and the server.
#[derive(Clone, Debug)]
pub(crate) struct Connection(Arc<Mutex<Pipe>>);

/// What is behind the connection's lock.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) life: Life,
    pub(crate) flow: Flow,
    /// Every reply and message takes this much longer.
    pub(crate) delay: Duration,
    /// A whole command waits for the end of `CLIENT PAUSE`.
    pub(crate) is_held_back: bool,
    input: Vec<u8>,
    parsed: usize,
    /// The length of the command taken last.
    taken: usize,
    output: Vec<u8>,
    read: usize,
    /// Output that is delayed, in order; the reader sets the instant when it first sees the bytes.
    late: VecDeque<Late>,
    reader: Option<Waker>,
}

#[derive(Debug)]
struct Late {
    delay: Duration,
    due: Option<Instant>,
    bytes: Vec<u8>,
}

/// What a reader finds.
#[derive(Debug)]
pub(crate) enum Readable {
    /// Some were copied.
    Bytes,
    End,
    /// Nothing yet; with an instant, look again then.
    Later(Option<Instant>),
}

impl Connection {
    pub(crate) fn new(flow: Flow, delay: Duration) -> Self {
        Self(Arc::new(Mutex::new(Pipe {
            life: Life::Open,
            flow,
            delay,
            is_held_back: false,
            input: Vec::new(),
            parsed: 0,
            taken: 0,
            output: Vec::new(),
            read: 0,
            late: VecDeque::new(),
            reader: None,
        })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Pipe> {
        locked(&self.0)
    }
}

impl Pipe {
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    pub(crate) fn has_input(&self) -> bool {
        !self.input.is_empty()
    }

    /// Whether the server may read the next command.
    pub(crate) fn is_readable_by_server(&self) -> bool {
        self.life == Life::Open && self.flow == Flow::Moving
    }

    /// Takes the next whole command. A protocol error is answered here and ends the connection.
    pub(crate) fn next_command(&mut self, request: &mut Request) -> bool {
        self.is_held_back = false;
        while self.is_readable_by_server() {
            match parse(&self.input[self.parsed..], request) {
                Parsed::Incomplete => break,
                Parsed::Command(used) => {
                    self.parsed += used;
                    self.taken = used;
                    if !request.args().is_empty() {
                        return true;
                    }
                }
                Parsed::Broken(error) => {
                    self.send(&Reply::Error(error), Protocol::Resp2);
                    self.life = Life::Closing;
                }
            }
        }
        self.input.drain(..self.parsed);
        self.parsed = 0;
        false
    }

    /// Gives the command taken last back: it has to wait.
    pub(crate) fn hold_back(&mut self) {
        self.parsed -= self.taken;
        self.input.drain(..self.parsed);
        self.parsed = 0;
        self.is_held_back = true;
    }

    /// Gives the command taken last back: it is still on its way, and so is what comes after it.
    pub(crate) fn delay_requests(&mut self) {
        self.hold_back();
        self.is_held_back = false;
        self.flow = Flow::Frozen;
    }

    pub(crate) fn send(&mut self, reply: &Reply, protocol: Protocol) {
        if self.life != Life::Open || self.flow == Flow::Lost {
            return;
        }
        reply.encode(protocol, self.output_buffer());
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        if self.life == Life::Open && self.flow != Flow::Lost {
            self.output_buffer().extend_from_slice(bytes);
        }
    }

    /// Where new output goes. Behind delayed output everything waits, so that order is kept.
    fn output_buffer(&mut self) -> &mut Vec<u8> {
        if self.delay.is_zero() && self.late.is_empty() {
            return &mut self.output;
        }
        let late = Late {
            delay: self.delay,
            due: None,
            bytes: Vec::new(),
        };
        let at = self.late.len();
        self.late.push_back(late);
        &mut self.late[at].bytes
    }

    /// Ends the connection at once: the reader sees the end, the writer a broken pipe.
    pub(crate) fn cut(&mut self) {
        self.life = Life::Dead;
        self.input.clear();
        self.output.clear();
        self.late.clear();
    }

    /// The client writes no more: no command comes, and the reader gets the end after what is left.
    pub(crate) fn finish(&mut self) -> Option<Waker> {
        if self.life == Life::Open {
            self.life = Life::Closing;
        }
        self.take_reader()
    }

    /// The server goes black for this connection: nothing comes out of it ever again.
    pub(crate) fn silence(&mut self) {
        self.flow = Flow::Lost;
        self.input.clear();
        self.parsed = 0;
    }

    /// Copies what has arrived.
    pub(crate) fn read(&mut self, target: &mut ReadBuf<'_>) -> Readable {
        if self.life == Life::Dead {
            return Readable::End;
        }
        if self.flow != Flow::Moving {
            return Readable::Later(None);
        }
        let wait = if self.late.is_empty() {
            None
        } else {
            self.promote(Instant::now())
        };
        let ready = &self.output[self.read..];
        if ready.is_empty() {
            return match (self.life, wait) {
                (Life::Open, _) | (_, Some(_)) => Readable::Later(wait),
                _ => Readable::End,
            };
        }
        let count = ready.len().min(target.remaining());
        target.put_slice(&ready[..count]);
        self.read += count;
        if self.read == self.output.len() {
            self.output.clear();
            self.read = 0;
        }
        Readable::Bytes
    }

    /// Moves delayed output that is due to the ready output; says when the next is due.
    fn promote(&mut self, now: Instant) -> Option<Instant> {
        for late in &mut self.late {
            late.due.get_or_insert(now + late.delay);
        }
        while let Some(late) = self.late.front() {
            match late.due {
                Some(due) if due > now => return Some(due),
                _ => self.output.extend_from_slice(&late.bytes),
            }
            self.late.pop_front();
        }
        None
    }

    pub(crate) fn set_reader(&mut self, waker: &Waker) {
        match &mut self.reader {
            Some(old) => old.clone_from(waker),
            None => self.reader = Some(waker.clone()),
        }
    }

    /// The task to wake; the caller wakes it when it holds no lock.
    pub(crate) fn take_reader(&mut self) -> Option<Waker> {
        self.reader.take()
    }
}
