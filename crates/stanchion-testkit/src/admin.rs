//! One-off commands to a server over a blocking socket.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The longest that a one-off command may take before the test fails.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A reply in RESP2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// An integer.
    Int(i64),
    /// A bulk string.
    Bulk(Vec<u8>),
    /// The null bulk string or the null array.
    Nil,
    /// An array.
    Array(Vec<Self>),
    /// A status, such as `OK`.
    Status(String),
    /// An error, with its code.
    Error(String),
}

impl Value {
    /// Returns the integer. A string that is an integer counts too, as in the reply to `GET` of a counter.
    ///
    /// # Panics
    /// If the reply is something else.
    #[must_use]
    pub fn as_int(&self) -> i64 {
        match self {
            Self::Int(n) => *n,
            other => other
                .as_text()
                .parse()
                .unwrap_or_else(|_| panic!("not an integer: {other}")),
        }
    }

    /// Returns the text of a bulk string, a status or an error.
    ///
    /// # Panics
    /// If the reply is something else, or not UTF-8.
    #[must_use]
    pub fn as_text(&self) -> &str {
        match self {
            Self::Bulk(bytes) => std::str::from_utf8(bytes).expect("a reply in UTF-8"),
            Self::Status(text) | Self::Error(text) => text,
            other => panic!("not a text: {other}"),
        }
    }

    /// Returns the elements of an array.
    ///
    /// # Panics
    /// If the reply is something else.
    #[must_use]
    pub fn as_array(&self) -> &[Self] {
        match self {
            Self::Array(items) => items,
            other => panic!("not an array: {other}"),
        }
    }

    /// Returns the texts of an array's elements; integers as decimals.
    #[must_use]
    pub fn as_texts(&self) -> Vec<String> {
        let text = |v: &Self| match v {
            Self::Int(n) => n.to_string(),
            other => other.as_text().to_owned(),
        };
        self.as_array().iter().map(text).collect()
    }

    /// Returns whether the server answered with an error.
    #[must_use]
    pub const fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }

    /// Returns whether the reply is a null.
    #[must_use]
    pub const fn is_nil(&self) -> bool {
        matches!(self, Self::Nil)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(n) => write!(f, "{n}"),
            Self::Bulk(bytes) => write!(f, "{:?}", String::from_utf8_lossy(bytes)),
            Self::Nil => f.write_str("nil"),
            Self::Array(items) => f.debug_list().entries(items).finish(),
            Self::Status(text) | Self::Error(text) => f.write_str(text),
        }
    }
}

/// The address and login of a server for administration: always plain TCP, also when clients use TLS.
#[derive(Debug, Clone)]
pub(crate) struct Admin {
    pub(crate) addr: SocketAddr,
    pub(crate) password: Option<String>,
}

impl Admin {
    pub(crate) fn connect(&self) -> io::Result<Connection> {
        let socket = TcpStream::connect_timeout(&self.addr, TIMEOUT)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.set_nodelay(true)?;
        let mut connection = Connection {
            reader: BufReader::new(socket),
        };
        if let Some(password) = &self.password {
            let reply = connection.call(&[b"AUTH", password.as_bytes()])?;
            // A server with a password answers with an error while it is being reconfigured; the caller sees it.
            if let Value::Error(text) = reply {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
            }
        }
        Ok(connection)
    }

    /// Runs one command on a connection of its own.
    pub(crate) fn call(&self, args: &[&[u8]]) -> io::Result<Value> {
        self.connect()?.call(args)
    }
}

/// A blocking connection.
pub(crate) struct Connection {
    reader: BufReader<TcpStream>,
}

impl Connection {
    pub(crate) fn call(&mut self, args: &[&[u8]]) -> io::Result<Value> {
        let mut request = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args {
            request.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            request.extend_from_slice(arg);
            request.extend_from_slice(b"\r\n");
        }
        self.reader.get_mut().write_all(&request)?;
        self.read()
    }

    pub(crate) fn read(&mut self) -> io::Result<Value> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end_matches(['\r', '\n']);
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| invalid(line))?;
        let number = || rest.parse::<i64>().map_err(|_| invalid(line));
        match kind {
            "+" => Ok(Value::Status(rest.to_owned())),
            "-" => Ok(Value::Error(rest.to_owned())),
            ":" => Ok(Value::Int(number()?)),
            "$" => match usize::try_from(number()?) {
                Ok(len) => {
                    let mut bytes = vec![0; len + 2];
                    self.reader.read_exact(&mut bytes)?;
                    bytes.truncate(len);
                    Ok(Value::Bulk(bytes))
                }
                Err(_) => Ok(Value::Nil),
            },
            "*" => match usize::try_from(number()?) {
                Ok(len) => (0..len)
                    .map(|_| self.read())
                    .collect::<io::Result<_>>()
                    .map(Value::Array),
                Err(_) => Ok(Value::Nil),
            },
            _ => Err(invalid(line)),
        }
    }

    /// Returns the socket itself, for a reader that waits longer than a command may take.
    pub(crate) fn socket(&self) -> &TcpStream {
        self.reader.get_ref()
    }
}

fn invalid(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not RESP2: {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_convert() {
        let array = Value::Array(vec![Value::Int(1), Value::Bulk(b"two".to_vec())]);
        assert_eq!(array.as_texts(), ["1", "two"]);
        assert_eq!(Value::Bulk(b"42".to_vec()).as_int(), 42);
        assert!(Value::Error("ERR no".into()).is_error());
        assert!(Value::Nil.is_nil());
    }

    #[test]
    #[should_panic(expected = "not an integer: \"x\"")]
    fn a_wrong_kind_is_named() {
        let _ = Value::Bulk(b"x".to_vec()).as_int();
    }
}
