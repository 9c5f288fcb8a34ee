//! In what servers later than Redis 7.0 differ from it, and thereby from the engine: each known, none of use to a lock.

/// The arguments that differ: the command, the index of the word, and the word.
const WORDS: &[(&str, usize, &str)] = &[
    // Refused instead of overflowing.
    ("WAIT", 2, "9223372036854775807"),
    ("LREM", 2, "-9223372036854775808"),
    // There is an `os` with nothing but `clock` in it.
    ("EVAL", 1, "return os"),
    // They tell their own.
    ("EVAL", 1, "return redis.REDIS_VERSION"),
    ("EVAL", 1, "return redis.REDIS_VERSION_NUM"),
];

/// Returns whether `command` is answered otherwise by later servers.
pub(crate) fn known(command: &[Vec<u8>]) -> bool {
    WORDS.iter().any(|(name, word, text)| {
        command[0].eq_ignore_ascii_case(name.as_bytes())
            && command
                .get(*word)
                .is_some_and(|said| said == text.as_bytes())
    })
}
