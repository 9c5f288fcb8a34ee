//! The library `struct` of scripts, as Redis 7 has it: Redisson's rate limiter packs its entries with it.
//!
//! | option | value |
//! |---|---|
//! | `>`, `<` | big, little endian; little at first |
//! | `!n` | alignment to at most n bytes; 8 without n, 1 at first |
//! | `b` `B`, `h` `H`, `l` `L`, `i` `I` and a number of bytes, `T` | integers; a capital is unsigned |
//! | `f`, `d` | floating point numbers of 4 and 8 bytes |
//! | `s` | text that ends with a zero byte |
//! | `cn` | n bytes; `c0` packs a whole text, and unpacks as many bytes as the last number says |
//! | `x`, space | a zero byte; nothing |

use mlua::{FromLua as _, Lua, LuaString, MultiValue, Table, Value};

use crate::keyspace::number::truncate;

/// The largest size of an integer.
const MOST: usize = 32;
/// The alignment of `!` without a number: that of a `double`.
const NATURAL: usize = 8;

/// Adds `struct_pack`, `struct_unpack` and `struct_size` to the host's functions.
pub(super) fn add(lua: &Lua, host: &Table) -> mlua::Result<()> {
    host.set(
        "struct_pack",
        lua.create_function(|lua, (format, values): (LuaString, MultiValue)| {
            lua.create_string(pack(lua, &format.as_bytes(), values)?)
        })?,
    )?;
    host.set(
        "struct_unpack",
        lua.create_function(
            |lua, (format, data, from): (LuaString, LuaString, Option<f64>)| {
                unpack(lua, &format.as_bytes(), &data.as_bytes(), from)
            },
        )?,
    )?;
    host.set(
        "struct_size",
        lua.create_function(|_, format: LuaString| size(&format.as_bytes()).map(number))?,
    )
}

/// The options of a format, one after the other.
struct Format<'a> {
    rest: &'a [u8],
    is_big: bool,
    align: usize,
}

/// An option with its size.
#[derive(Clone, Copy)]
struct Part {
    option: u8,
    size: usize,
}

impl<'a> Format<'a> {
    const fn new(rest: &'a [u8]) -> Self {
        Self {
            rest,
            is_big: false,
            align: 1,
        }
    }

    /// Returns the next option that has a value or a size; settings are taken on the way.
    fn next(&mut self) -> mlua::Result<Option<Part>> {
        while let [option, rest @ ..] = self.rest {
            self.rest = rest;
            let size = match option {
                b'b' | b'B' | b'x' => 1,
                b'h' | b'H' => 2,
                b'f' => 4,
                b'l' | b'L' | b'T' | b'd' => 8,
                b'c' => self.number(1)?,
                b's' => 0,
                b'i' | b'I' => match self.number(4)? {
                    size @ ..=MOST => size,
                    size => {
                        let rule = format!("integral size {size} is larger than limit of {MOST}");
                        return Err(mlua::Error::runtime(rule));
                    }
                },
                b' ' => continue,
                b'>' | b'<' => {
                    self.is_big = *option == b'>';
                    continue;
                }
                b'!' => {
                    self.align = self.number(NATURAL)?;
                    if !self.align.is_power_of_two() {
                        let rule = format!("alignment {} is not a power of 2", self.align);
                        return Err(mlua::Error::runtime(rule));
                    }
                    continue;
                }
                other => {
                    let option = char::from(*other);
                    return Err(bad(1, &format!("invalid format option '{option}'")));
                }
            };
            return Ok(Some(Part {
                option: *option,
                size,
            }));
        }
        Ok(None)
    }

    /// Reads a number of the format.
    fn number(&mut self, otherwise: usize) -> mlua::Result<usize> {
        let digits = self
            .rest
            .iter()
            .take_while(|it| it.is_ascii_digit())
            .count();
        let (digits, rest) = self.rest.split_at(digits);
        if digits.is_empty() {
            return Ok(otherwise);
        }
        self.rest = rest;
        let number = std::str::from_utf8(digits)
            .ok()
            .and_then(|it| it.parse::<i32>().ok());
        let number = number.and_then(|it| usize::try_from(it).ok());
        number.ok_or_else(|| mlua::Error::runtime("integral size overflow"))
    }

    /// Returns the bytes before `part` at the offset `at`.
    fn padding(&self, part: Part, at: usize) -> usize {
        let size = part.size.min(self.align);
        if size == 0 || part.option == b'c' || !size.is_power_of_two() {
            return 0;
        }
        (size - (at & (size - 1))) & (size - 1)
    }

    /// Puts the bytes of a little endian number into the order of this format.
    fn ordered(&self, mut little: Vec<u8>) -> Vec<u8> {
        if self.is_big {
            little.reverse();
        }
        little
    }
}

fn bad(argument: usize, rule: &str) -> mlua::Error {
    mlua::Error::runtime(format!("bad argument #{argument} to '?' ({rule})"))
}

fn number(size: usize) -> f64 {
    f64::from(u32::try_from(size).unwrap_or(u32::MAX))
}

fn pack(lua: &Lua, format: &[u8], values: MultiValue) -> mlua::Result<Vec<u8>> {
    let mut format = Format::new(format);
    let mut values = values.into_iter().zip(2..);
    let mut next = |what: &str| {
        let none = || bad(2, &format!("{what} expected, got no value"));
        values.next().ok_or_else(none)
    };
    let mut packed = Vec::new();
    while let Some(part) = format.next()? {
        let padding = format.padding(part, packed.len());
        packed.resize(packed.len() + padding, 0);
        match part.option {
            b'x' => packed.push(0),
            b'c' | b's' => {
                let (value, at) = next("string")?;
                let text = LuaString::from_lua(value, lua)?;
                let text = text.as_bytes();
                let size = if part.size == 0 {
                    text.len()
                } else {
                    part.size
                };
                let some = text.get(..size);
                packed.extend_from_slice(some.ok_or_else(|| bad(at, "string too short"))?);
                if part.option == b's' {
                    packed.push(0);
                }
            }
            option => {
                let value = f64::from_lua(next("number")?.0, lua)?;
                let bytes = match option {
                    #[expect(clippy::cast_possible_truncation, reason = "the format wants a float")]
                    b'f' => (value as f32).to_le_bytes().to_vec(),
                    b'd' => value.to_le_bytes().to_vec(),
                    _ => {
                        let mut bytes = whole(value).to_le_bytes().to_vec();
                        bytes.resize(part.size, 0);
                        bytes
                    }
                };
                packed.extend(format.ordered(bytes));
            }
        }
    }
    Ok(packed)
}

/// The 64 bits of an integer, as C converts it.
fn whole(value: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "numbers outside of the range have no defined result in Redis"
    )]
    if value < 0.0 {
        (value as i64).cast_unsigned()
    } else {
        value as u64
    }
}

fn unpack(lua: &Lua, format: &[u8], data: &[u8], from: Option<f64>) -> mlua::Result<MultiValue> {
    let mut format = Format::new(format);
    let from = usize::try_from(truncate(from.unwrap_or(1.0))).unwrap_or(0);
    let Some(mut at) = from.checked_sub(1) else {
        return Err(bad(3, "offset must be 1 or greater"));
    };
    let short = || bad(2, "data string too short");
    let mut values: Vec<Value> = Vec::new();
    while let Some(mut part) = format.next()? {
        at = at.saturating_add(format.padding(part, at));
        let rest = data.get(at..).ok_or_else(short)?;
        let bytes = rest.get(..part.size).ok_or_else(short)?;
        match part.option {
            b'x' => {}
            b's' => {
                let length = rest.iter().position(|byte| *byte == 0);
                let length =
                    length.ok_or_else(|| mlua::Error::runtime("unfinished string in data"))?;
                values.push(Value::String(lua.create_string(&rest[..length])?));
                part.size = length + 1;
            }
            b'c' if part.size == 0 => {
                let size = match values.pop() {
                    Some(Value::Number(size)) => usize::try_from(truncate(size)).ok(),
                    _ => {
                        let rule = "format 'c0' needs a previous size";
                        return Err(mlua::Error::runtime(rule));
                    }
                };
                part.size = size.ok_or_else(short)?;
                let text = rest.get(..part.size).ok_or_else(short)?;
                values.push(Value::String(lua.create_string(text)?));
            }
            b'c' => values.push(Value::String(lua.create_string(bytes)?)),
            option => {
                let little = format.ordered(bytes.to_vec());
                values.push(Value::Number(read(option, &little)));
            }
        }
        at += part.size;
    }
    values.push(Value::Number(number(at + 1)));
    Ok(MultiValue::from_vec(values))
}

/// Reads a number from its bytes in little endian order.
#[expect(
    clippy::cast_precision_loss,
    reason = "numbers of scripts are floating point numbers"
)]
fn read(option: u8, little: &[u8]) -> f64 {
    match option {
        b'f' => <[u8; 4]>::try_from(little).map_or(0.0, |it| f32::from_le_bytes(it).into()),
        b'd' => <[u8; 8]>::try_from(little).map_or(0.0, f64::from_le_bytes),
        _ => {
            let is_negative =
                option.is_ascii_lowercase() && little.last().is_some_and(|it| *it > 127);
            let mut bytes = [if is_negative { 255 } else { 0 }; 8];
            let some = little.len().min(8);
            bytes[..some].copy_from_slice(&little[..some]);
            match option.is_ascii_lowercase() {
                true => i64::from_le_bytes(bytes) as f64,
                false => u64::from_le_bytes(bytes) as f64,
            }
        }
    }
}

fn size(format: &[u8]) -> mlua::Result<usize> {
    let mut format = Format::new(format);
    let mut size: usize = 0;
    while let Some(part) = format.next()? {
        match part {
            Part { option: b's', .. } => {
                return Err(bad(1, "option 's' has no fixed size in size"));
            }
            Part {
                option: b'c',
                size: 0,
            } => return Err(bad(1, "option 'c0' has no fixed size in size")),
            _ => {}
        }
        size = size.saturating_add(format.padding(part, size) + part.size);
    }
    Ok(size)
}
