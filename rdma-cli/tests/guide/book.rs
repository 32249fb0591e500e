//! The pages of the book, as its contents name them

use std::fs;
use std::path::{Path, PathBuf};

/// A page
pub(crate) struct Page {
    /// Its path in the book
    pub(crate) name: String,
    /// Its text, with the directives that include others
    pub(crate) text: String,
}

/// The root of the repository
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tool is a folder of the repository").to_owned()
}

/// The folder of the book
pub(crate) fn source() -> PathBuf {
    root().join("docs/guide/src")
}

/// All pages, in the order of the contents
pub(crate) fn pages() -> Vec<Page> {
    let contents = fs::read_to_string(source().join("SUMMARY.md")).expect("the contents of the guide");
    let names = contents.lines().filter_map(|line| line.split_once("](")?.1.strip_suffix(')'));
    let page = |name: &str| {
        let text = fs::read_to_string(source().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        Page { name: name.to_owned(), text }
    };
    names.map(page).collect()
}

/// The documents of the repository that are no pages of the book alone, by their paths from its root
pub(crate) fn documents() -> Vec<Page> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of the repository").flatten() {
            let (path, kind) = (entry.path(), entry.file_type().expect("a file of the repository"));
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_generated = matches!(name.as_str(), "target" | "corpus" | "artifacts");
            if kind.is_dir()
                && !is_generated
                && (name == ".github" || !name.starts_with('.'))
                && path != source()
            {
                folders.push(path);
            } else if kind.is_file() && name.ends_with(".md") {
                let text = fs::read_to_string(&path).expect("a document");
                let name = path.strip_prefix(root()).expect("it is below").to_string_lossy().into_owned();
                found.push(Page { name, text });
            }
        }
    }
    found.sort_by(|left, right| left.name.cmp(&right.name));
    found
}

/// The files of pages below the folder of the book, without those of linked folders
pub(crate) fn files() -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![source()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of the guide").flatten() {
            let (path, kind) = (entry.path(), entry.file_type().expect("a file of the guide"));
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && path.extension().is_some_and(|extension| extension == "md") {
                found.push(path.strip_prefix(source()).expect("it is below").to_string_lossy().into_owned());
            }
        }
    }
    found
}

/// File and part of a line that includes another file
pub(crate) fn include(line: &str) -> Option<(&str, Option<&str>)> {
    let target = line.strip_prefix("{{#include ")?.strip_suffix("}}")?;
    Some(target.split_once(':').map_or((target, None), |(file, part)| (file, Some(part))))
}

impl Page {
    /// Whether it is a document of the repository, which is tested where it is
    pub(crate) fn is_document(&self) -> bool {
        include(self.text.trim()).is_some_and(|(_, part)| part.is_none())
    }

    /// The text of a file, or of a part of it
    ///
    /// # Errors
    ///
    /// A sentence if there is no such file or part.
    pub(crate) fn included(&self, file: &str, part: Option<&str>) -> Result<String, String> {
        let folder = source().join(&self.name).parent().expect("a page is in a folder").to_owned();
        let text = fs::read_to_string(folder.join(file)).map_err(|error| format!("{file}: {error}"))?;
        let is_mark = |line: &&str, mark: &str| line.split_whitespace().any(|word| word == mark);
        let Some(part) = part else { return Ok(text) };
        let mut lines = text.lines().skip_while(|line| !(is_mark(line, "ANCHOR:") && is_mark(line, part)));
        lines.next().ok_or_else(|| format!("{file} has no part `{part}`"))?;
        let mut inside = String::new();
        for line in lines {
            if is_mark(&line, "ANCHOR_END:") && is_mark(&line, part) {
                return Ok(inside);
            }
            inside.push_str(line);
            inside.push('\n');
        }
        Err(format!("{file}: the part `{part}` has no end"))
    }

    /// The text with what it includes
    pub(crate) fn expanded(&self) -> String {
        let expand = |line: &str| match include(line) {
            Some((file, part)) => {
                self.included(file, part).unwrap_or_else(|error| panic!("{}: {error}", self.name))
            }
            None => format!("{line}\n"),
        };
        self.text.lines().map(expand).collect()
    }
}
