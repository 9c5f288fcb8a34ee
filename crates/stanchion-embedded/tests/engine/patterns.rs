//! The patterns of scripts against those of Lua 5.1 itself: random patterns, texts and replacements have the same results and
//! the same errors.

use mlua::{Lua, LuaOptions, StdLib};
use stanchion_embedded::{Engine, Reply};

/// Calls a function of the string library in every way, and writes down what it returns.
const SCRIPT: &str = r#"
local text, pattern, template, init = ARGV[1], ARGV[2], ARGV[3], ARGV[4] + 0
local out = {}
local function note(...)
  for i = 1, select('#', ...) do
    local value = select(i, ...)
    out[#out + 1] = type(value) .. ' ' .. tostring(value)
  end
  out[#out + 1] = ';'
end
local function all(iterate, ...)
  local seen = {}
  for a, b, c in iterate(...) do
    seen[#seen + 1] = tostring(a) .. ',' .. tostring(b) .. ',' .. tostring(c)
  end
  return table.concat(seen, '/')
end
local function join(...)
  local parts = {}
  for i = 1, select('#', ...) do parts[i] = tostring((select(i, ...))) end
  return '<' .. table.concat(parts, '+') .. '>'
end
note(pcall(string.find, text, pattern))
note(pcall(string.find, text, pattern, init))
note(pcall(string.find, text, pattern, init, true))
note(pcall(string.match, text, pattern))
note(pcall(string.match, text, pattern, init))
note(pcall(all, string.gmatch, text, pattern))
note(pcall(all, string.gfind, text, pattern))
note(pcall(string.gsub, text, pattern, template))
note(pcall(string.gsub, text, pattern, template, 2))
note(pcall(string.gsub, text, pattern, join))
note(pcall(string.gsub, text, pattern, { a = 'A', ['1'] = 7, b = false, [1] = 'one' }))
note(pcall(string.gsub, text, pattern, function() return {} end))
note(text:lower(), text:upper(), text:reverse(), text:rep(init))
return table.concat(out, '\n')
"#;

/// Numbers without a pattern that matters, the same in each run.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    fn bytes(&mut self, pieces: &[&[u8]], most: usize) -> Vec<u8> {
        let many = self.below(most + 1);
        (0..many)
            .flat_map(|_| pieces[self.below(pieces.len())])
            .copied()
            .collect()
    }
}

const TEXTS: &[&[u8]] = &[
    b"a", b"a", b"b", b"1", b" ", b"(", b")", b"]", b"%", b"A", b"-", b"^", b"$", b".", b"\0",
    b"\xff", b"ab", b"\n",
];
const PATTERNS: &[&[u8]] = &[
    b"a", b"b", b"1", b".", b"%", b"(", b")", b"()", b"(a)", b"(.-)", b"[", b"]", b"[^", b"[a-c]",
    b"[%a-]", b"[]]", b"[^%s]", b"-", b"*", b"+", b"?", b"^", b"$", b"%a", b"%D", b"%s", b"%w",
    b"%x", b"%z", b"%b()", b"%bab", b"%b", b"%f[%w]", b"%f", b"%1", b"%2", b"%0", b"%%", b"%.",
    b"\0", b"a*", b".-", b".*", b"%p", b"%c", b"%u", b"%L", b"a-b", b"[a\xff]",
];
const TEMPLATES: &[&[u8]] = &[
    b"x", b"%0", b"%1", b"%2", b"%%", b"%", b"%a", b"<", b"", b"\0",
];

#[test]
fn random_patterns_give_what_lua_gives() {
    let engine = Engine::new();
    let libraries = StdLib::STRING | StdLib::TABLE;
    let lua = Lua::new_with(libraries, LuaOptions::new()).unwrap();
    let function = lua.load(SCRIPT).set_name("@user_script");
    let function = function.into_function().unwrap();
    let mut draws = Draws(17);
    let (mut matches, mut errors) = (0, 0);
    for case in 0..8_000 {
        let text = draws.bytes(TEXTS, 10);
        let pattern = draws.bytes(PATTERNS, 6);
        let template = draws.bytes(TEMPLATES, 4);
        let init = i32::try_from(draws.below(16)).unwrap() - 6;
        let arguments = [text, pattern, template, init.to_string().into_bytes()];
        let strings = arguments
            .iter()
            .map(|bytes| lua.create_string(bytes).unwrap());
        lua.globals()
            .set("ARGV", strings.collect::<Vec<_>>())
            .unwrap();
        let expected: mlua::LuaString = function.call(()).unwrap();
        let mut command = vec![b"EVAL".to_vec(), SCRIPT.into(), b"0".to_vec()];
        command.extend(arguments.clone());
        let Reply::Bulk(given) = engine.execute(&command) else {
            panic!("case {case}: no text for {arguments:?}");
        };
        let expected = expected.as_bytes();
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(
            shown(&given),
            shown(&expected),
            "case {case}: {arguments:?}"
        );
        matches += usize::from(expected.windows(6).any(|it| it == b"true\nn"));
        errors += usize::from(expected.windows(5).any(|it| it == b"false"));
    }
    // The draws reach both.
    assert!(matches > 1000 && errors > 1000, "{matches} {errors}");
}

#[test]
fn arguments_of_other_types_give_what_lua_gives() {
    let engine = Engine::new();
    let libraries = StdLib::STRING | StdLib::TABLE;
    let lua = Lua::new_with(libraries, LuaOptions::new()).unwrap();
    // Not as the last call of a function: a Lua function takes the place of its caller there, and a C function does not, so the
    // error has no position.
    for call in [
        "string.find(12345, 34)",
        "string.find('a', nil)",
        "string.find('a')",
        "string.find()",
        "string.find({}, 'a')",
        "string.find('aXa', 'a', '2')",
        "string.find('aXa', 'a', {})",
        "string.find('aXa', 'a', 1.9)",
        "string.find('aXa', 'a', -1.9)",
        "string.find('a.b', '.', 1, 0)",
        "string.find('abc', 'b', 10)",
        "string.find('', '', 10)",
        "string.find('abc', '', 4)",
        "string.match('key = value', '^(%w+)%s*=%s*(%w+)$')",
        "string.match(7, '%d', 1)",
        "string.gmatch('a')",
        "string.gsub('abc', '%w', '%0%0')",
        "string.gsub('abc', '%w', '%0%0', 2)",
        "string.gsub('abc', '%w', 7)",
        "string.gsub('abc', '%w')",
        "string.gsub('abc', '%w', nil)",
        "string.gsub('abc', '%w', true)",
        "string.gsub('abc', '', '-')",
        "string.gsub('abc', '%w', '', -1)",
        "string.gsub('abc', '%w', '', 'x')",
        "string.gsub('$x and $y', '%$(%w+)', { x = 1 })",
        "string.gsub('hello world', '(%w+) (%w+)', '%2 %1')",
        "string.gsub('abc', '(b)()', '%2')",
        "string.rep('ab', 3)",
        "string.rep('ab', '2')",
        "string.rep('ab', 2.9)",
        "string.rep('ab', -1)",
        "string.rep('ab')",
        "string.rep(nil, 1)",
        "string.upper()",
        "string.upper(1e15)",
        "string.reverse(false)",
        "table.sort({ 1, 'x' })",
        "table.sort({ {}, {} })",
        "table.sort('x')",
        "table.sort({ 1, 2 }, 3)",
        "(function() local t = { 3, 1, 2, 'x' and 0 } table.sort(t) return table.concat(t, ',') end)()",
    ] {
        let script = format!(
            "local out = {{}} local function note(...) for i = 1, select('#', ...) do
             local value = select(i, ...) out[#out + 1] = type(value) .. ' ' .. tostring(value) end end
             note(pcall(function() return 0, {call} end)) return table.concat(out, ';')"
        );
        let expected: String = lua.load(&script).set_name("@user_script").eval().unwrap();
        let given = engine.execute(&["EVAL", &script, "0"]);
        let Reply::Bulk(given) = given else {
            panic!("{call}: {given:?}");
        };
        assert_eq!(String::from_utf8_lossy(&given), expected, "{call}");
    }
}
