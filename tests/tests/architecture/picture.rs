//! The pictures of the crates, in the README and on the front pages of the crates

use std::collections::BTreeSet;
use std::fs;

use rdma_tests::files::root;

use crate::LAYERS;

/// Crates whose documentation begins with the picture
const WITH_PICTURE: [&str; 5] = ["rdma-async", "rdma-sim", "rdma-core", "rdma-tb5", "rdma-collectives"];

fn crates() -> BTreeSet<&'static str> {
    LAYERS.iter().map(|(folder, _)| folder.rsplit('/').next().unwrap_or(folder)).collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Catches a crate that is missing in the drawing, and one that is drawn and does not exist any more.
#[test]
fn the_drawing_shows_every_crate() {
    let drawing = read("docs/crates.svg");
    let boxes = drawing.split("class=\"name\"").skip(1);
    let names: BTreeSet<_> = boxes
        .filter_map(|text| text.split_once('>')?.1.split('<').next())
        .filter(|name| *name != "your program")
        .collect();
    assert_eq!(names, crates());
}

/// Catches a crate that is missing in the text, a front page without it, and one whose copy differs: packages do not share files.
#[test]
fn front_pages_show_every_crate() {
    let picture = read("docs/crates.txt");
    let words: BTreeSet<_> =
        picture.split(|letter: char| !letter.is_alphanumeric() && letter != '-').collect();
    for name in crates() {
        assert!(words.contains(name), "docs/crates.txt lacks {name}");
    }
    let lines: String = picture.lines().map(|line| format!("//! {line}\n")).collect();
    let block = format!("//! ```text\n{lines}//! ```\n");
    for name in WITH_PICTURE {
        let front = read(&format!("{name}/src/lib.rs"));
        assert!(front.contains(&block), "{name}/src/lib.rs has not the picture of docs/crates.txt:\n{block}");
    }
}

/// Catches a crate that the table of the README does not name.
#[test]
fn the_readme_lists_every_crate() {
    let readme = read("README.md");
    let table = readme.split("## Crates").nth(1).and_then(|rest| rest.split("\n## ").next());
    let table = table.expect("the README has a section about crates");
    for name in crates() {
        assert!(table.contains(&format!("`{name}`")), "the table of the README lacks {name}");
    }
}
