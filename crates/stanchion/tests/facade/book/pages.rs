//! Reading the book: its pages and their code blocks.

use std::fs;
use std::path::{Path, PathBuf};

/// A code block: what follows its opening fence, and the text.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) language: String,
    pub(crate) text: String,
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The pages of the book, as paths from the root of the repository.
pub(crate) fn of_the_book() -> Vec<String> {
    let mut pages = Vec::new();
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let name = entry.unwrap().file_name();
            let path = folder.join(&name);
            if root().join(&path).is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path.to_str().unwrap().to_owned());
            }
        }
    }
    pages.sort();
    pages
}

/// The code blocks of a page.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = false;
    for line in page.lines() {
        match line.strip_prefix("```") {
            Some(_) if open => open = false,
            Some(language) => {
                open = true;
                blocks.push(Block {
                    language: language.to_owned(),
                    text: String::new(),
                });
            }
            None if open => {
                let block = blocks.last_mut().unwrap();
                block.text.push_str(line);
                block.text.push('\n');
            }
            None => {}
        }
    }
    assert!(!open, "a code block that does not end");
    blocks
}

/// The blocks of one language on a page of the book.
pub(crate) fn blocks_in(path: &str, language: &str) -> Vec<String> {
    blocks(&read(path))
        .into_iter()
        .filter(|block| block.language == language)
        .map(|block| block.text)
        .collect()
}

/// Programs that rustdoc does not run are taken, word for word, from a test beside this one.
#[test]
fn every_program_of_the_book_runs_somewhere() {
    let tests: String = [
        "bridge.rs",
        "connection.rs",
        "s3.rs",
        "sharding.rs",
        "sql.rs",
        "testing.rs",
    ]
    .map(|file| read(&format!("crates/stanchion/tests/facade/book/{file}")))
    .concat();
    let doctests = read("crates/stanchion/src/lib.rs");
    for page in of_the_book() {
        for block in blocks(&read(&page)) {
            match block.language.as_str() {
                "" => panic!("{page}: a code block without a language is a doc test"),
                "rust,ignore" => assert!(
                    tests.contains(&block.text),
                    "{page}: not in the tests:\n{}",
                    block.text
                ),
                rust if rust.starts_with("rust") => assert!(
                    doctests.contains(&format!("../../../{page}\"")),
                    "{page}: not among the doc tests of the facade"
                ),
                _ => {}
            }
        }
    }
}

#[test]
fn the_summary_names_every_page_once() {
    let summary = read("docs/SUMMARY.md");
    for page in of_the_book() {
        let path = page.strip_prefix("docs/").unwrap();
        let named = summary.matches(&format!("]({path})")).count();
        assert_eq!(named, usize::from(path != "SUMMARY.md"), "{page}");
    }
}

/// Tokio's features that a program of the README needs, by what stands in it.
const NEEDS: [(&str, &str); 6] = [
    ("#[tokio::main]", "rt-multi-thread"),
    ("#[tokio::", "macros"),
    ("#[tokio::test", "rt"),
    ("start_paused", "test-util"),
    ("tokio::time::", "time"),
    ("tokio::net::", "net"),
];

/// The features of tokio that `manifests` name and `program` lacks.
fn missing<'a>(manifests: &str, program: &'a str) -> Vec<&'a str> {
    NEEDS
        .iter()
        .filter(|(use_of, feature)| {
            program.contains(use_of) && !manifests.contains(&format!("\"{feature}\""))
        })
        .map(|(_, feature)| *feature)
        .collect()
}

#[test]
fn the_manifests_of_the_readme_have_what_its_programs_use() {
    let page = blocks(&read("README.md"));
    let of = |language: &str| -> String {
        let texts = page
            .iter()
            .filter(|block| block.language.starts_with(language));
        texts.map(|block| block.text.as_str()).collect()
    };
    let (manifests, programs) = (of("toml"), of("rust"));
    assert!(programs.contains("#[tokio::main]") && programs.contains("start_paused"));
    assert_eq!(missing(&manifests, &programs), Vec::<&str>::new());
    let without = manifests.replace("\"test-util\"", "");
    assert_eq!(missing(&without, &programs), ["test-util"]);
}
