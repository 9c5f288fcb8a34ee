//! Servers of a cluster that do not answer. A list shows the rest, and names them.

use std::collections::BTreeMap;

use stanchion::Client;
use stanchion::survey::Unreached;

use crate::exit;
use crate::messages;

/// The servers that did not answer, with the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gaps(BTreeMap<String, String>);

impl Gaps {
    pub(crate) fn add(&mut self, server: &str, why: impl ToString) {
        let why = why.to_string();
        self.0.entry(server.to_owned()).or_insert(why);
    }

    pub(crate) fn add_all<'a>(&mut self, unreached: impl IntoIterator<Item = &'a Unreached>) {
        for it in unreached {
            self.add(&it.server, &it.why);
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (server, why) in &other.0 {
            self.add(server, why);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn servers(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }

    pub(crate) fn has(&self, server: &str) -> bool {
        self.0.contains_key(server)
    }

    /// Returns the server of `key` if it did not answer, with the reason.
    pub(crate) fn of_key(&self, client: &Client, key: &[u8]) -> Option<(&str, &str)> {
        if self.0.is_empty() {
            return None;
        }
        let console = client.console_of(key);
        let server = console.as_ref().map_or("", |console| console.server());
        let (server, why) = self.0.get_key_value(server)?;
        Some((server, why))
    }

    /// One line for people; `None` if every server answered.
    pub(crate) fn line(&self) -> Option<String> {
        let all: Vec<String> = self
            .0
            .iter()
            .map(|(server, why)| match &**server {
                "" => why.clone(),
                server => messages::server_is_silent(server, why),
            })
            .collect();
        (!all.is_empty()).then(|| messages::partial(&all.join("; ")))
    }

    /// Says on standard error that the list is partial. Returns the exit code.
    pub(crate) fn tell(&self) -> u8 {
        match self.line() {
            None => exit::SUCCESS,
            Some(line) => {
                eprintln!("stanchion: {line}");
                exit::PARTIAL
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_once_with_the_first_reason() {
        let mut gaps = Gaps::default();
        assert_eq!(gaps.line(), None);
        gaps.add("b:2", "refused");
        gaps.add("a:1", "no answer");
        gaps.add("b:2", "late");
        let line = gaps.line().unwrap();
        assert_eq!(
            line,
            "partial: a:1 does not answer (no answer); b:2 does not answer (refused)"
        );
    }
}
