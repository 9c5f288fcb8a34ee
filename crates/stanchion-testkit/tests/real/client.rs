//! A raw client, so that tests see exactly the bytes that a proxy or server sends.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> Self {
        let socket = TcpStream::connect(addr).unwrap();
        let limit = Duration::from_secs(10);
        socket.set_read_timeout(Some(limit)).unwrap();
        socket.set_nodelay(true).unwrap();
        Self(BufReader::new(socket))
    }

    /// Sends inline commands, one per line.
    pub(crate) fn send(&mut self, commands: &str) {
        let text = commands.replace('\n', "\r\n") + "\r\n";
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
    }

    /// Sends a command as an array of bulk strings, as real clients do.
    pub(crate) fn send_array(&mut self, args: &[&str]) {
        let mut text = format!("*{}\r\n", args.len());
        for arg in args {
            text += &format!("${}\r\n{arg}\r\n", arg.len());
        }
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
    }

    /// The next line, without its end; the error is the socket's.
    pub(crate) fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    pub(crate) fn call(&mut self, command: &str) -> String {
        self.send(command);
        self.line().unwrap()
    }

    /// Reads up to the connection's end: the lines before it, and how it ended.
    pub(crate) fn drain(&mut self) -> (Vec<String>, io::ErrorKind) {
        let mut lines = Vec::new();
        loop {
            match self.line() {
                Ok(line) => lines.push(line),
                Err(e) => return (lines, e.kind()),
            }
        }
    }

    /// Returns whether nothing has arrived by now.
    pub(crate) fn is_silent(&mut self) -> bool {
        let socket = self.0.get_ref();
        socket.set_nonblocking(true).unwrap();
        let got = self.0.fill_buf().map(<[u8]>::len).map_err(|e| e.kind());
        self.0.get_ref().set_nonblocking(false).unwrap();
        got == Err(io::ErrorKind::WouldBlock)
    }
}
