//! Changed scripts, for `scripts/mutants`, which builds with `--cfg stanchion_mutants`.

use std::borrow::Cow;

/// Returns a script with the change that `scripts/mutants` asks for: a text, the unit separator, and the text that replaces it.
pub(super) fn mutated(source: &[u8]) -> Cow<'_, [u8]> {
    let (Ok(text), Ok(change)) = (str::from_utf8(source), std::env::var("STANCHION_MUTANT")) else {
        return source.into();
    };
    match change.split_once('\u{1f}') {
        Some((old, new)) => text.replace(old, new).into_bytes().into(),
        None => source.into(),
    }
}
