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
    /// Returns the number, if it is one. Text that parses as a number counts: Redis answers `GET` of a counter as text.
    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(n) => Some(*n),
            // `TIME` and `SENTINEL MASTER` send their numbers as text, too.
            Self::Bulk(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// Returns the text, if it is bytes in UTF-8.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Bulk(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// Returns the elements, if it is an array.
    #[must_use]
    pub fn as_array(&self) -> Option<&[Self]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    pub(crate) fn from_value(value: redis::Value) -> Self {
        use redis::Value;
        // Some of these types exist in RESP3 only, which the connections that run scripts do not speak. They are read all
        // the same, so that the meaning of a reply does not depend on the protocol.
        match value {
            Value::Int(n) => Self::Int(n),
            Value::BulkString(bytes) => Self::Bulk(bytes),
            Value::SimpleString(text) => Self::Bulk(text.into_bytes()),
            Value::VerbatimString { text, .. } => Self::Bulk(text.into_bytes()),
            // The redis crate has a value of its own for `+OK`.
            Value::Okay => Self::Bulk(b"OK".to_vec()),
            Value::Boolean(yes) => Self::Int(i64::from(yes)),
            // As RESP2 sends it.
            Value::Double(n) => Self::Bulk(n.to_string().into_bytes()),
            Value::Array(items) | Value::Set(items) => {
                Self::Array(items.into_iter().map(Self::from_value).collect())
            }
            // As RESP2 sends a map: keys and values in turn. Sentinels' facts are read in this form.
            Value::Map(pairs) => Self::Array(
                pairs
                    .into_iter()
                    .flat_map(|(k, v)| [Self::from_value(k), Self::from_value(v)])
                    .collect(),
            ),
            // Among them the confirmation of a subscription, which the redis crate gives to the caller as the reply. That
            // it came is all that its caller needs.
            _ => Self::Nil,
        }
    }
}
