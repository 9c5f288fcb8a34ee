//! The functions of Lua's string library that need a bound, for `strings.lua`.

use mlua::{Lua, LuaString, MultiValue, Table, Value};

use super::interpreter::{Limit, MEMORY};
use super::patterns::{Budget, Capture, Search, Stop, find_plain, is_plain};
use crate::keyspace::number::truncate;

/// The captures that `seek` returns, as `strings.lua` numbers the choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Find,
    Match,
    Template,
    Key,
}

impl Mode {
    const fn of(number: i64) -> Self {
        match number {
            0 => Self::Find,
            1 => Self::Match,
            2 => Self::Template,
            _ => Self::Key,
        }
    }

    /// Returns whether the whole match takes the place of the captures, for a pattern without captures.
    const fn has_whole(self) -> bool {
        matches!(self, Self::Match | Self::Key)
    }

    /// Returns whether each capture is needed, so that none may be without an end.
    const fn needs_all(self) -> bool {
        matches!(self, Self::Find | Self::Match)
    }
}

/// Adds the functions to the host's.
pub(super) fn add(lua: &Lua, host: &Table, limit: &Limit) -> mlua::Result<()> {
    let watch = limit.clone();
    host.set(
        "seek",
        lua.create_function(
            move |lua, (text, pattern, at, anchored, mode): (LuaString, LuaString, f64, bool, i64)| {
                seek(lua, &watch, &text, &pattern, index(at), anchored, Mode::of(mode))
            },
        )?,
    )?;
    let watch = limit.clone();
    host.set(
        "seek_plain",
        lua.create_function(move |_, (text, wanted, at): (LuaString, LuaString, f64)| {
            let mut budget = Budget::new(|| watch.look());
            let text = text.as_bytes();
            let found = find_plain(
                &text,
                &wanted.as_bytes(),
                index(at).min(text.len()),
                &mut budget,
            )?;
            Ok(found.map(|at| at + 1))
        })?,
    )?;
    host.set(
        "is_plain",
        lua.create_function(|_, pattern: LuaString| Ok(is_plain(&pattern.as_bytes())))?,
    )?;
    host.set(
        "rep",
        lua.create_function(|lua, (text, times): (LuaString, f64)| {
            let times = usize::try_from(truncate(times)).unwrap_or(0);
            let text = text.as_bytes();
            match text.len().checked_mul(times) {
                Some(bytes) if bytes < MEMORY => lua.create_string(text.repeat(times)).map(Some),
                _ => Ok(None),
            }
        })?,
    )?;
    let change = |change: fn(&[u8]) -> Vec<u8>| {
        lua.create_function(move |lua, text: LuaString| lua.create_string(change(&text.as_bytes())))
    };
    host.set("lower", change(<[u8]>::to_ascii_lowercase)?)?;
    host.set("upper", change(<[u8]>::to_ascii_uppercase)?)?;
    host.set(
        "reverse",
        change(|text| text.iter().rev().copied().collect())?,
    )
}

/// The index of a position that is counted from 1.
fn index(at: f64) -> usize {
    usize::try_from(truncate(at)).unwrap_or(0).saturating_sub(1)
}

/// Searches. Returns the error in the pattern, or false; the first and the last position of the match, or nil; its
/// captures in a table, or nil.
fn seek(
    lua: &Lua,
    limit: &Limit,
    text: &LuaString,
    pattern: &LuaString,
    from: usize,
    anchored: bool,
    mode: Mode,
) -> mlua::Result<MultiValue> {
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let mut search = Search::new(&text, &pattern, || limit.look());
    let wrong = |problem: &str| {
        let problem = Value::String(lua.create_string(problem)?);
        Ok(MultiValue::from_vec(vec![problem]))
    };
    let found = match search.find(from.min(text.len()), anchored) {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(MultiValue::from_vec(vec![Value::Boolean(false)])),
        Err(Stop::Pattern(problem)) => return wrong(problem),
        Err(Stop::Budget(error)) => return Err(error),
    };
    if mode.needs_all() && search.captures().any(|it| it == Capture::Unfinished) {
        return wrong("unfinished capture");
    }
    let stands = mode.has_whole() && search.captures().len() == 0;
    let whole = stands.then(|| Capture::Text(found.clone()));
    let values = search.captures().chain(whole).map(|capture| {
        Ok(match capture {
            Capture::Unfinished => Value::Boolean(false),
            Capture::Position(at) => Value::Number(float(at + 1)),
            Capture::Text(range) => Value::String(lua.create_string(&text[range])?),
        })
    });
    let values = values.collect::<mlua::Result<Vec<_>>>()?;
    let captures = match values.is_empty() {
        true => Value::Nil,
        false => Value::Table(lua.create_sequence_from(values)?),
    };
    let (first, last) = (float(found.start + 1), float(found.end));
    let results = vec![
        Value::Boolean(false),
        Value::Number(first),
        Value::Number(last),
        captures,
    ];
    Ok(MultiValue::from_vec(results))
}

/// A position as Lua's number: texts are far shorter than 2⁵³.
fn float(position: usize) -> f64 {
    f64::from(u32::try_from(position).unwrap_or(u32::MAX))
}
