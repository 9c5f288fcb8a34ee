//! The replies of scripts.

/// The parts of RESP that scripts use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// A number.
    Int(i64),
    /// Bytes.
    Bulk(Vec<u8>),
    /// No value.
    Nil,
    /// Several values.
    Array(Vec<Self>),
}

impl Reply {
    /// Returns the number, if the reply is one. Text that parses as a number counts, because Redis answers `GET` of a counter as text.
    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(n) => Some(*n),
            // `TIME` and `SENTINEL MASTER` send their numbers as text, too.
            Self::Bulk(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// Returns the text, if the reply is bytes in UTF-8.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Bulk(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// Returns the elements, if the reply is an array.
    #[must_use]
    pub fn as_array(&self) -> Option<&[Self]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    pub(crate) fn from_value(value: redis::Value) -> Self {
        use redis::Value;
        // Some of these types exist only in RESP3, which the connections for scripts do not use. They are converted anyway,
        // so that the meaning of a reply does not depend on the protocol.
        match value {
            Value::Int(n) => Self::Int(n),
            Value::BulkString(bytes) => Self::Bulk(bytes),
            Value::SimpleString(text) => Self::Bulk(text.into_bytes()),
            Value::VerbatimString { text, .. } => Self::Bulk(text.into_bytes()),
            // The redis crate has a separate value for `+OK`.
            Value::Okay => Self::Bulk(b"OK".to_vec()),
            Value::Boolean(yes) => Self::Int(i64::from(yes)),
            // In the same form as in RESP2.
            Value::Double(n) => Self::Bulk(n.to_string().into_bytes()),
            Value::Array(items) | Value::Set(items) => {
                Self::Array(items.into_iter().map(Self::from_value).collect())
            }
            // RESP2 sends a map as keys and values in turn. The client reads the facts of sentinels in this form.
            Value::Map(pairs) => Self::Array(
                pairs
                    .into_iter()
                    .flat_map(|(k, v)| [Self::from_value(k), Self::from_value(v)])
                    .collect(),
            ),
            // One of these is the confirmation of a subscription, which the redis crate returns as the reply. The caller
            // needs only to know that the confirmation arrived.
            _ => Self::Nil,
        }
    }
}
