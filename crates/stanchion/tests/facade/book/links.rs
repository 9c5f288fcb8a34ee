//! Every link of the book and of the root's pages leads to a file and a heading that exist.

use super::pages;

/// The targets of the links in a text, code left out.
fn links(page: &str) -> Vec<String> {
    let mut links = Vec::new();
    let mut in_code = false;
    for line in page.lines() {
        if line.starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        // Inline code is the odd parts between back quotes.
        let text: String = line.split('`').step_by(2).collect();
        links.extend(
            text.split("](")
                .skip(1)
                .filter_map(|rest| rest.split_once(')'))
                .map(|(target, _)| target.to_owned()),
        );
    }
    links
}

/// The anchors of a page's headings, as the forge and mdBook make them.
fn anchors(page: &str) -> Vec<String> {
    let mut in_code = false;
    let headings = page.lines().filter(|line| {
        in_code ^= line.starts_with("```");
        !in_code && line.starts_with('#')
    });
    headings
        .map(|heading| {
            let text = heading.trim_start_matches('#').trim().to_lowercase();
            text.chars()
                .filter_map(|c| match c {
                    ' ' => Some('-'),
                    c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
                    _ => None,
                })
                .collect()
        })
        .collect()
}

fn check(page: &str) {
    let text = pages::read(page);
    let path = pages::root().join(page);
    for link in links(&text) {
        if link.starts_with("http://") || link.starts_with("https://") {
            continue;
        }
        let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
        let target = if file.is_empty() {
            path.clone()
        } else {
            path.parent().unwrap().join(file)
        };
        assert!(target.exists(), "{page}: {link} leads nowhere");
        if !anchor.is_empty() {
            let there = anchors(&std::fs::read_to_string(&target).unwrap());
            assert!(
                there.iter().any(|a| a == anchor),
                "{page}: {link}: no such heading among {there:?}"
            );
        }
    }
}

#[test]
fn links_lead_somewhere() {
    let root = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"].map(str::to_owned);
    for page in root.into_iter().chain(pages::of_the_book()) {
        check(&page);
    }
}

#[test]
fn links_and_anchors_are_read_as_they_are_written() {
    let page = "see [a](b.md#c-d), not `[x](y)`\n```text\n[no](no.md)\n```\n![i](i.svg)";
    assert_eq!(links(page), ["b.md#c-d", "i.svg"]);
    assert_eq!(
        anchors("# One, two: `three`\n```sh\n# no\n```\n## P1–P11"),
        ["one-two-three", "p1p11"]
    );
}
