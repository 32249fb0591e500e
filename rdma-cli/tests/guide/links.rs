//! Links within the book

use std::path::{Component, Path, PathBuf};

use crate::book::Page;

/// Sentences about the links of `page` that lead neither to one of `pages`, whose paths begin at `root`, nor to another file there
pub(crate) fn broken(page: &Page, pages: &[Page], root: &Path) -> Vec<String> {
    let folder = Path::new(&page.name).parent().expect("a page is in a folder");
    let why = |target: &str| {
        let (path, heading) = target.split_once('#').unwrap_or((target, ""));
        let path = if path.is_empty() { PathBuf::from(&page.name) } else { plain(&folder.join(path)) };
        match pages.iter().find(|page| Path::new(&page.name) == path) {
            Some(other) if heading.is_empty() || headings(&other.expanded()).any(|id| id == heading) => None,
            Some(_) => Some(format!("{}: {target}: the page has no such heading", page.name)),
            None if path.extension().is_none_or(|extension| extension != "md")
                && root.join(&path).exists() =>
            {
                None
            }
            None => Some(format!("{}: {target}: there is no such page or file", page.name)),
        }
    };
    let text = page.expanded();
    targets(&text).into_iter().filter(|target| !target.starts_with("https://")).filter_map(why).collect()
}

/// A path without `.` and `..`
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

/// The lines that are no code
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// What the links of a text lead to, and its pictures
pub(crate) fn targets(text: &str) -> Vec<&str> {
    let links = prose(text).flat_map(|line| line.split("](").skip(1));
    links.filter_map(|link| Some(link.split_once(')')?.0)).collect()
}

/// The names by which links find the headings of a text, as mdBook makes them
fn headings(text: &str) -> impl Iterator<Item = String> {
    let titles =
        prose(text).filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    titles.map(|title| {
        let kept = |c: char| match c {
            c if c.is_alphanumeric() || c == '_' || c == '-' => Some(c.to_ascii_lowercase()),
            c if c.is_whitespace() => Some('-'),
            _ => None,
        };
        title.chars().filter_map(kept).collect()
    })
}

#[test]
fn links_and_headings_are_found_outside_of_code() {
    let text = "# On `two` Macs, now\n[a](b.md#c) and [`d`](../e.md)\n```sh\n[f](g.md)\n# no heading\n```\n![h](i.svg)\n";
    assert_eq!(targets(text), ["b.md#c", "../e.md", "i.svg"]);
    assert_eq!(headings(text).collect::<Vec<_>>(), ["on-two-macs-now"]);
    assert_eq!(plain(Path::new("rdma-async/../docs/./A.md")), Path::new("docs/A.md"));
}
