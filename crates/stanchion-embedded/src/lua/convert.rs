//! Conversion of values between Lua and the server, by the rules of Redis.

use mlua::{Lua, MultiValue, Table, Value};

use crate::keyspace::number::{format_double, truncate};
use crate::reply::Reply;
use crate::resp::Request;

/// The deepest table that is converted. Redis refuses tables that do not fit Lua's stack.
const MAX_DEPTH: usize = 200;
/// The most items of a reply, with those of nested ones.
const MOST_ITEMS: usize = 1 << 20;
/// The most bytes of a reply: a table can hold one long string many times.
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// Writes the arguments of `redis.call` into `request`. Returns false if one is neither a string nor a number.
pub(super) fn to_request(values: &MultiValue, request: &mut Request) -> bool {
    request.clear();
    for value in values {
        match value {
            Value::String(text) => request.push(&text.as_bytes()),
            Value::Integer(n) => request.push(number(i64_to_f64(*n)).as_bytes()),
            Value::Number(n) => request.push(number(*n).as_bytes()),
            _ => return false,
        }
    }
    true
}

/// Converts an integer back to a double: Lua 5.1 has doubles only, mlua shows whole ones as integers.
fn i64_to_f64(n: i64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "the number was a double before mlua showed it as an integer"
    )]
    let number = n as f64;
    number
}

fn number(n: f64) -> String {
    format_double(n)
}

/// Converts a reply for scripts: RESP2 types, nil as false, a status as a table.
pub(super) fn to_lua(lua: &Lua, reply: Reply) -> mlua::Result<Value> {
    Ok(match reply {
        Reply::Int(n) => Value::Integer(n),
        Reply::Bulk(bytes) => Value::String(lua.create_string(bytes)?),
        Reply::Text(text) => Value::String(lua.create_string(text)?),
        Reply::Nil | Reply::NilArray => Value::Boolean(false),
        Reply::Double(n) => Value::String(lua.create_string(format_double(n))?),
        Reply::Status(text) => Value::Table(single(lua, "ok", text.as_bytes())?),
        Reply::Error(text) => Value::Table(single(lua, "err", text.as_bytes())?),
        Reply::Array(items) | Reply::Push(items) => {
            let table = lua.create_table_with_capacity(items.len(), 0)?;
            for item in items {
                table.raw_push(to_lua(lua, item)?)?;
            }
            Value::Table(table)
        }
        Reply::Map(pairs) => {
            let table = lua.create_table_with_capacity(pairs.len() * 2, 0)?;
            for (key, value) in pairs {
                table.raw_push(to_lua(lua, key)?)?;
                table.raw_push(to_lua(lua, value)?)?;
            }
            Value::Table(table)
        }
    })
}

/// Creates a table with one field, as `redis.status_reply` and `redis.error_reply` do.
pub(super) fn single(lua: &Lua, field: &str, value: &[u8]) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(field, lua.create_string(value)?)?;
    Ok(table)
}

/// Converts the result of a script to a reply: floats lose their fraction, arrays end at the first nil.
pub(super) fn to_reply(value: Value) -> mlua::Result<Reply> {
    let mut room = Room {
        items: MOST_ITEMS,
        bytes: MOST_BYTES,
    };
    convert(value, 0, &mut room)
}

/// The items and bytes that may follow: a table can hold another one many times, which can do the same.
struct Room {
    items: usize,
    bytes: usize,
}

impl Room {
    fn take(&mut self, bytes: usize) -> mlua::Result<()> {
        let left = self.items.checked_sub(1).zip(self.bytes.checked_sub(bytes));
        let left = left.ok_or_else(|| mlua::Error::runtime("the reply is too large"))?;
        (self.items, self.bytes) = left;
        Ok(())
    }
}

fn convert(value: Value, depth: usize, room: &mut Room) -> mlua::Result<Reply> {
    room.take(match &value {
        Value::String(text) => text.as_bytes().len(),
        _ => 0,
    })?;
    Ok(match value {
        Value::Integer(n) => Reply::Int(n),
        Value::Number(n) => Reply::Int(truncate(n)),
        Value::Boolean(true) => Reply::Int(1),
        Value::String(text) => Reply::bulk(text.as_bytes()),
        Value::Table(table) => table_to_reply(&table, depth, room)?,
        _ => Reply::Nil,
    })
}

fn table_to_reply(table: &Table, depth: usize, room: &mut Room) -> mlua::Result<Reply> {
    if depth >= MAX_DEPTH {
        return Ok(Reply::Error("ERR reached lua stack limit".to_owned()));
    }
    if let Value::String(text) = table.raw_get("err")? {
        return Ok(Reply::Error(text.to_string_lossy()));
    }
    if let Value::String(text) = table.raw_get("ok")? {
        return Ok(Reply::Status(text.to_string_lossy()));
    }
    let mut items = Vec::with_capacity(table.raw_len());
    for at in 1.. {
        match table.raw_get(at)? {
            Value::Nil => break,
            value => items.push(convert(value, depth + 1, room)?),
        }
    }
    Ok(Reply::Array(items))
}
