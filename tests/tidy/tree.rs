//! The project's text files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Files by their path from the project's root.
pub(crate) struct Tree(BTreeMap<String, String>);

impl Tree {
    /// Reads the text files of the project that are written by hand.
    pub(crate) fn of_project() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .expect("the tests are in a folder of the project");
        let mut files = BTreeMap::new();
        collect(root, root, &mut files);
        assert!(files.len() > 200, "only {} files found", files.len());
        Self(files)
    }

    pub(crate) fn planted(files: &[(&str, &str)]) -> Self {
        let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        Self(files.iter().map(owned).collect())
    }

    pub(crate) fn get(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// Path and text of the files below `folder` whose names end in `ending`.
    pub(crate) fn below(&self, folder: &str, ending: &str) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .filter(move |(path, _)| path.starts_with(folder) && path.ends_with(ending))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The sources of the library and its programs, without their tests: `crates/<crate>/src`.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        self.below("crates/", ".rs")
            .filter(|(path, _)| path.split('/').nth(2) == Some("src"))
    }
}

fn collect(root: &Path, folder: &Path, files: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).expect("the project's folders can be read") {
        let path = entry.expect("an entry of a folder can be read").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if !name.starts_with("target") && (!name.starts_with('.') || name == ".ci") {
                collect(root, &path, files);
            }
        } else if [".rs", ".lua", ".md", ".toml", ".yaml"]
            .iter()
            .any(|e| name.ends_with(e))
            || name.ends_with("grafana.json")
        {
            let text = fs::read_to_string(&path).expect("the project's texts are UTF-8");
            let path = path.strip_prefix(root).expect("the file is below the root");
            files.insert(path.to_string_lossy().into_owned(), text);
        }
    }
}

/// The lines of a source with their numbers, without comments and without the unit tests at its end.
pub(crate) fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .take_while(|(_, line)| line.trim() != "#[cfg(test)]")
        .map(|(n, line)| (n + 1, line.split("//").next().unwrap_or_default()))
}

/// Returns whether `line` contains `word` as a whole word.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        !part(line[..at].chars().next_back()) && !part(line[at + word.len()..].chars().next())
    })
}
