//! The bytes of one connection: input that is not executed yet, and output that is not read yet.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use std::time::Duration;

use tokio::io::ReadBuf;
use tokio::time::Instant;

use crate::locked;
use crate::reply::{Protocol, Reply};
use crate::resp::{KEPT, Parsed, Parser, Request};

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Open,
    /// Closed by one side: the reader gets the remaining output, then the end.
    Closing,
    /// Cut: nothing more is read, not even output that was already sent.
    Dead,
}

/// The flow of bytes on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Moving,
    /// Stopped until it is thawed: bytes are kept.
    Frozen,
    /// Stopped for good: bytes are lost.
    Lost,
}

/// The two directions of one connection, shared by its stream and the server.
#[derive(Clone, Debug)]
pub(crate) struct Connection(Arc<Mutex<Pipe>>);

/// The state behind a connection's lock. Last in the lock order of [`Core`](crate::engine::Core).
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) life: Life,
    pub(crate) flow: Flow,
    /// The delay of every reply and message.
    pub(crate) delay: Duration,
    /// True while commands wait until the client has read its replies.
    is_full: bool,
    /// True while a whole command waits for the end of `CLIENT PAUSE`.
    pub(crate) is_held_back: bool,
    input: Vec<u8>,
    /// The number of bytes at the start of `input` that are taken.
    parsed: usize,
    parser: Parser,
    /// A command that was taken and put back.
    put_back: Option<Request>,
    limits: Limits,
    output: Vec<u8>,
    read: usize,
    /// Delayed output, in order. The reader sets `due` when it first sees the bytes, as only it runs on a tokio clock.
    late: VecDeque<Late>,
    /// Second copies of messages, in order. They overtake delayed output, as on a second connection.
    copies: VecDeque<Late>,
    reader: Option<Waker>,
}

#[derive(Debug)]
struct Late {
    delay: Duration,
    due: Option<Instant>,
    bytes: Vec<u8>,
}

/// The most that a connection may take of the server's memory, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The largest request.
    pub(crate) request: usize,
    /// The most output that waits for the reader; with more the connection is cut.
    pub(crate) output: usize,
    /// The output that waits for the reader before its next command is executed.
    pub(crate) ample: usize,
}

impl Limits {
    /// For clients of the same process.
    pub(crate) const NONE: Self = Self {
        request: usize::MAX,
        output: usize::MAX,
        ample: usize::MAX,
    };
}

/// The result of a read.
#[derive(Debug)]
pub(crate) enum Readable {
    /// Bytes were copied.
    Bytes,
    End,
    /// Nothing yet. With an instant, read again then.
    Later(Option<Instant>),
}

impl Connection {
    pub(crate) fn new(flow: Flow, delay: Duration, limits: Limits) -> Self {
        Self(Arc::new(Mutex::new(Pipe {
            life: Life::Open,
            flow,
            delay,
            is_full: false,
            is_held_back: false,
            input: Vec::new(),
            parsed: 0,
            parser: Parser::new(limits.request),
            put_back: None,
            limits,
            output: Vec::new(),
            read: 0,
            late: VecDeque::new(),
            copies: VecDeque::new(),
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
        !self.input.is_empty() || self.put_back.is_some() || self.parser.is_within_command()
    }

    /// Returns whether the server may read the next command.
    pub(crate) fn is_readable_by_server(&self) -> bool {
        self.life == Life::Open && self.flow == Flow::Moving
    }

    /// Takes the next whole command. A protocol error is answered here and ends the connection.
    pub(crate) fn next_command(&mut self, request: &mut Request) -> bool {
        self.is_held_back = false;
        self.is_full = self.backlog() > self.limits.ample;
        if self.is_full {
            return false;
        }
        while self.is_readable_by_server() {
            if let Some(first) = self.put_back.take() {
                *request = first;
                return true;
            }
            match self.parser.advance(&self.input, &mut self.parsed) {
                Parsed::Incomplete => break,
                Parsed::Command => {
                    self.parser.swap(request);
                    if !request.args().is_empty() {
                        return true;
                    }
                }
                Parsed::Broken(error) => {
                    self.send(&Reply::Error(error), Protocol::Resp2);
                    self.finish_sending();
                }
            }
        }
        self.input.drain(..self.parsed);
        self.parsed = 0;
        if self.input.is_empty() {
            self.input.shrink_to(KEPT);
        }
        false
    }

    /// Puts a command back: it has to wait.
    pub(crate) fn hold_back(&mut self, request: &mut Request) {
        self.put_back = Some(std::mem::take(request));
        self.is_held_back = true;
    }

    /// Puts a command back and freezes the connection: that command and all later ones have not arrived yet.
    pub(crate) fn delay_requests(&mut self, request: &mut Request) {
        self.hold_back(request);
        self.is_held_back = false;
        self.flow = Flow::Frozen;
    }

    pub(crate) fn send(&mut self, reply: &Reply, protocol: Protocol) {
        if self.life != Life::Open || self.flow == Flow::Lost {
            return;
        }
        reply.encode(protocol, self.output_buffer());
        self.cut_if_flooded();
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        if self.life == Life::Open && self.flow != Flow::Lost {
            self.output_buffer().extend_from_slice(bytes);
            self.cut_if_flooded();
        }
    }

    /// Sends a second copy of a message, `delay` after the reader sees the first.
    pub(crate) fn send_copy(&mut self, bytes: &[u8], delay: Duration) {
        if self.life == Life::Open && self.flow != Flow::Lost {
            self.copies.push_back(Late {
                delay,
                due: None,
                bytes: bytes.to_vec(),
            });
        }
    }

    /// Ends the connection of a client that does not read its output.
    fn cut_if_flooded(&mut self) {
        if self.backlog() > self.limits.output {
            self.cut();
        }
    }

    fn backlog(&self) -> usize {
        self.output.len() - self.read
    }

    /// Returns whether commands wait until the client has read its replies.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns whether the waiting commands may run again.
    pub(crate) fn has_room_again(&self) -> bool {
        self.is_full && self.backlog() <= self.limits.ample
    }

    /// Returns the buffer for new output. While older output is delayed, new output queues behind it.
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
        self.forget_input();
        self.output = Vec::new();
        self.read = 0;
        self.late.clear();
        self.copies.clear();
    }

    /// Lets the reader have the remaining output, then the end.
    pub(crate) fn finish_sending(&mut self) {
        if self.life == Life::Open {
            self.life = Life::Closing;
        }
    }

    /// Ends the client's side: no more commands, and the reader gets the end after the remaining output. Returns the reader
    /// to wake.
    pub(crate) fn finish(&mut self) -> Option<Waker> {
        self.finish_sending();
        self.take_reader()
    }

    /// Silences the connection: the server never sends anything on it again.
    pub(crate) fn silence(&mut self) {
        self.flow = Flow::Lost;
        self.forget_input();
    }

    fn forget_input(&mut self) {
        self.input = Vec::new();
        self.parsed = 0;
        self.put_back = None;
        self.parser.reset();
    }

    /// Copies the output that has arrived.
    pub(crate) fn read(&mut self, target: &mut ReadBuf<'_>) -> Readable {
        if self.life == Life::Dead {
            return Readable::End;
        }
        if self.flow != Flow::Moving {
            return Readable::Later(None);
        }
        let wait = if self.late.is_empty() && self.copies.is_empty() {
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
            self.output.shrink_to(KEPT);
            self.read = 0;
        }
        Readable::Bytes
    }

    /// Moves delayed output that is due to the ready output. Returns the time at which the next is due.
    fn promote(&mut self, now: Instant) -> Option<Instant> {
        let next = promote(&mut self.late, &mut self.output, now);
        let copy = promote(&mut self.copies, &mut self.output, now);
        next.into_iter().chain(copy).min()
    }

    pub(crate) fn set_reader(&mut self, waker: &Waker) {
        match &mut self.reader {
            Some(old) => old.clone_from(waker),
            None => self.reader = Some(waker.clone()),
        }
    }

    /// Takes the waker of the reader. The caller wakes it when it holds no lock.
    pub(crate) fn take_reader(&mut self) -> Option<Waker> {
        self.reader.take()
    }
}

/// Moves the bytes in front of `queue` that are due to `output`. Returns the time at which the next are due.
fn promote(queue: &mut VecDeque<Late>, output: &mut Vec<u8>, now: Instant) -> Option<Instant> {
    for late in &mut *queue {
        late.due.get_or_insert(now + late.delay);
    }
    while let Some(late) = queue.front() {
        match late.due {
            Some(due) if due > now => return Some(due),
            _ => output.extend_from_slice(&late.bytes),
        }
        queue.pop_front();
    }
    None
}
