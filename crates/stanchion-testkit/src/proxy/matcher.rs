//! The selection of requests for a fault.

use std::fmt;
use std::sync::Arc;

type Custom = Arc<dyn Fn(&[Vec<u8>]) -> bool + Send + Sync>;

/// A description of requests; every condition must hold.
#[derive(Clone, Default)]
#[must_use]
pub struct Matcher {
    command: Option<String>,
    script: Option<String>,
    contains: Vec<Vec<u8>>,
    custom: Option<Custom>,
    pub(super) nth: Option<usize>,
}

impl Matcher {
    /// Matches any request.
    pub fn any() -> Self {
        Self::default()
    }

    /// Matches requests with this command, in any case.
    pub fn command(name: &str) -> Self {
        Self {
            command: Some(name.to_owned()),
            ..Self::default()
        }
    }

    /// Matches `EVALSHA` of this script, and `EVAL` of the text with this SHA-1.
    pub fn script(sha: &str) -> Self {
        Self {
            script: Some(sha.to_owned()),
            ..Self::default()
        }
    }

    /// Matches any `EVALSHA` or `EVAL`.
    pub fn any_script() -> Self {
        Self::custom(|args| {
            let name = args.first().map(Vec::as_slice).unwrap_or_default();
            name.eq_ignore_ascii_case(b"EVALSHA") || name.eq_ignore_ascii_case(b"EVAL")
        })
    }

    /// Matches requests for which `matches` returns true; it gets the command name and its arguments.
    pub fn custom(matches: impl Fn(&[Vec<u8>]) -> bool + Send + Sync + 'static) -> Self {
        Self {
            custom: Some(Arc::new(matches)),
            ..Self::default()
        }
    }

    /// Adds the condition that one of the arguments contains these bytes (an owner, a key).
    pub fn containing(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.contains.push(bytes.as_ref().to_vec());
        self
    }

    /// Limits the match to the `nth` such request from now on, counted from 1 over all connections.
    ///
    /// # Panics
    /// If `nth` is 0.
    pub fn nth(mut self, nth: usize) -> Self {
        assert!(nth > 0, "requests are counted from 1");
        self.nth = Some(nth);
        self
    }

    /// Returns whether the request meets the conditions, without regard to [`Matcher::nth`].
    #[must_use]
    pub fn matches(&self, args: &[Vec<u8>]) -> bool {
        let Some((name, rest)) = args.split_first() else {
            return false;
        };
        let command_fits = |wanted: &String| name.eq_ignore_ascii_case(wanted.as_bytes());
        self.command.as_ref().is_none_or(command_fits)
            && self.script.as_ref().is_none_or(|sha| runs(args, sha))
            && self.contains.iter().all(|bytes| holds(rest, bytes))
            && self.custom.as_ref().is_none_or(|custom| custom(args))
    }
}

fn runs(args: &[Vec<u8>], sha: &str) -> bool {
    let [name, script, ..] = args else {
        return false;
    };
    if name.eq_ignore_ascii_case(b"EVALSHA") {
        return script.eq_ignore_ascii_case(sha.as_bytes());
    }
    let is_eval = name.eq_ignore_ascii_case(b"EVAL");
    is_eval
        && sha1_smol::Sha1::from(script)
            .digest()
            .to_string()
            .eq_ignore_ascii_case(sha)
}

fn holds(args: &[Vec<u8>], bytes: &[u8]) -> bool {
    // `windows` does not take 0; every argument contains the empty string.
    bytes.is_empty()
        || args
            .iter()
            .any(|a| a.windows(bytes.len()).any(|w| w == bytes))
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let contains: Vec<_> = self
            .contains
            .iter()
            .map(|b| String::from_utf8_lossy(b))
            .collect();
        f.debug_struct("Matcher")
            .field("command", &self.command)
            .field("script", &self.script)
            .field("contains", &contains)
            .field("custom", &self.custom.is_some())
            .field("nth", &self.nth)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Vec<Vec<u8>> {
        text.split(' ').map(|a| a.as_bytes().to_vec()).collect()
    }

    #[test]
    fn every_condition_must_hold() {
        let set = Matcher::command("set").containing("key");
        assert!(set.matches(&request("SET my:key:1 v")));
        assert!(!set.matches(&request("SET other v")), "wrong argument");
        assert!(!set.matches(&request("GET my:key:1")), "wrong command");
        let name = Matcher::any().containing("SET");
        assert!(
            !name.matches(&request("SET k v")),
            "the name is no argument"
        );
        assert!(!Matcher::any().matches(&[]), "an empty line is no request");
    }

    #[test]
    fn a_script_is_known_by_its_sha_or_its_text() {
        let sha = sha1_smol::Sha1::from("return 1").digest().to_string();
        let script = Matcher::script(&sha);
        assert!(script.matches(&request(&format!("evalsha {sha} 0"))));
        assert!(script.matches(&[b"EVAL".to_vec(), b"return 1".to_vec(), b"0".to_vec()]));
        assert!(!script.matches(&[b"EVAL".to_vec(), b"return 2".to_vec(), b"0".to_vec()]));
        assert!(!script.matches(&request(&format!("GET {sha}"))));
    }
}
