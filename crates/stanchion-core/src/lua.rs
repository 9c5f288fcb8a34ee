//! The Lua parts that several primitives share. They are put into the scripts at compile time.

use stanchion_transport::Part;

/// Mints `token`, and returns an error if the counter has none to give. Needs the locals `call`, `fence` (the counter's key; `KEYS[1]`: mint none),
/// `time` and `now` (the server's `TIME`, and that in microseconds).
#[doc(hidden)]
pub const MINT: Part = Part::new("-- @mint.lua\n", include_str!("../lua/mint.lua"));

/// The same as a function, for scripts that define functions: `mint(us)`. Needs the locals `call`, `fence` and `lock`.
#[doc(hidden)]
pub const MINT_FUNCTION: Part = Part::new(
    "-- @mint_function.lua\n",
    include_str!("../lua/mint_function.lua"),
);

/// The functions for the queue of the processes that wait for a lock. `line.lua` lists the locals that they need.
#[doc(hidden)]
pub const LINE: Part = Part::new(
    "-- @line.lua\n",
    crate::line!(include_str!("../lua/line_of_lock.lua")),
);

/// The same functions for another kind of synchronizer, before the part that describes a hold is put in.
#[doc(hidden)]
pub const ANY_LINE: &str = crate::mint_function!(include_str!("../lua/line.lua"));

/// The functions that notify holders. `notice.lua` lists the locals that they need.
#[doc(hidden)]
pub const NOTICE: Part = Part::new("-- @notice.lua\n", include_str!("../lua/notice.lua"));

/// The text of a script with `mint.lua` in the place of its line `-- @mint.lua`.
///
/// Not a Lua function, which would cost an uncontended acquire about 1 µs of the server's 14 µs. Not `concat!`, which accepts no text from another
/// crate, and would split the script's own text in two.
#[macro_export]
macro_rules! minting {
    ($text:expr) => {
        $crate::woven!($text, $crate::primitive::MINT)
    };
}

/// The text of a script with `mint_function.lua` in the place of its line `-- @mint_function.lua`.
#[macro_export]
macro_rules! mint_function {
    ($text:expr) => {
        $crate::woven!($text, $crate::primitive::MINT_FUNCTION)
    };
}

/// The text of a script with `notice.lua` in the place of its line `-- @notice.lua`.
#[macro_export]
macro_rules! noticing {
    ($text:expr) => {
        $crate::woven!($text, $crate::primitive::NOTICE)
    };
}

/// The text of a script with `line.lua` in the place of its line `-- @line.lua`. `of` selects the part that describes the holds, by default that of
/// a lock.
#[macro_export]
macro_rules! in_line {
    ($text:expr) => {
        $crate::woven!($text, $crate::primitive::LINE)
    };
    ($text:expr, of $kind:expr) => {
        $crate::woven!(
            $text,
            $crate::primitive::LuaPart::new("-- @line.lua\n", $crate::line!($kind))
        )
    };
}

/// The text of `line.lua` for holds as `kind` describes them.
#[doc(hidden)]
#[macro_export]
macro_rules! line {
    ($kind:expr) => {
        $crate::woven!(
            $crate::primitive::ANY_LINE,
            $crate::primitive::LuaPart::new("-- @kind.lua\n", $kind)
        )
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_line_is_replaced() {
        let whole = crate::minting!("local fence\n  -- @mint.lua\nreturn token\n");
        let (before, rest) = whole.split_once(include_str!("../lua/mint.lua")).unwrap();
        assert_eq!((before, rest), ("local fence\n  ", "return token\n"));
    }
}
