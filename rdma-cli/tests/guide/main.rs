//! The guide in `docs/guide`: each command and code block of it runs in a test, and each link leads somewhere
//!
//! Rust blocks are doctests of `rdma-tests`, or parts of examples that other tests run; here it is checked that they are. The rest
//! runs here. A block that cannot run here, because it needs a Mac or a program that is not installed, is printed:
//! `cargo test -p rdma-cli --test guide -- --nocapture`.
#![cfg(unix)]

mod block;
mod book;
mod command;
mod links;
mod pattern;

use std::fs;

use block::{Kind, blocks};
use book::{Page, pages, root};
use command::Scratch;

/// The workspace members and example programs that commands of cargo may name
fn cargo_names() -> Vec<String> {
    let mut names = Vec::new();
    for folder in fs::read_dir(root()).expect("the root of the repository").flatten() {
        let folder = folder.path();
        let Ok(manifest) = fs::read_to_string(folder.join("Cargo.toml")) else { continue };
        names.extend(
            manifest.lines().find_map(|line| line.strip_prefix("name = ")).map(|name| name.replace('"', "")),
        );
        for example in fs::read_dir(folder.join("examples")).into_iter().flatten().flatten() {
            names.extend(example.path().file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names
}

/// Checks that a line of a block for cargo names packages and examples that there are
fn check_cargo(page: &str, line: &str, names: &[String]) {
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words.first(), Some(&"cargo"), "{page}: `{line}` is no command of cargo");
    for pair in words.windows(2).filter(|pair| ["-p", "--example"].contains(&pair[0])) {
        assert!(names.iter().any(|name| name == pair[1]), "{page}: `{line}`: there is no {}", pair[1]);
    }
}

/// Catches a command that the tool does not know any more, output that has changed, and a file in a block that does not parse.
#[test]
#[allow(clippy::print_stdout, reason = "a test that leaves something out says so")]
fn commands_of_the_guide_do_as_it_says() {
    let (mut ran, mut not_run) = (0, Vec::new());
    let names = cargo_names();
    for page in pages().iter().filter(|page| !page.is_document()) {
        let scratch = Scratch::new();
        for block in blocks(&page.text) {
            let at = format!("{}:{}", page.name, block.line);
            let reason = match block.kind().unwrap_or_else(|error| panic!("{at}: {error}")) {
                Kind::Command { needs } => match needs.filter(|program| !scratch.has(program)) {
                    Some(program) => format!("there is no {program} on this machine"),
                    None => {
                        scratch.run(&at, block.text, 0);
                        ran += 1;
                        continue;
                    }
                },
                Kind::Console => {
                    ran += scratch.compare(&at, block.text);
                    continue;
                }
                Kind::Cargo => {
                    block.text.lines().for_each(|line| check_cargo(&at, line, &names));
                    "it builds: the stages of .ci/run do".into()
                }
                Kind::Mac => {
                    block
                        .text
                        .lines()
                        .filter(|line| line.starts_with("cargo"))
                        .for_each(|line| check_cargo(&at, line, &names));
                    "it needs a Mac".into()
                }
                Kind::File { name } => {
                    scratch.write(&at, name, block.text);
                    continue;
                }
                Kind::Workflow => "a linter of workflows checks it: .ci/run".into(),
                Kind::Doctest | Kind::Included | Kind::Toml => continue,
            };
            not_run.push(format!("{at}: {reason}: {}", block.text.lines().next().unwrap_or_default()));
        }
    }
    println!("{ran} commands of the guide ran; {} blocks did not:", not_run.len());
    not_run.iter().for_each(|block| println!("  {block}"));
    assert!(ran > 0, "no command was found");
}

/// Catches a page with code that no doctest compiles, and a page that includes a part which its program does not have.
#[test]
fn rust_of_the_guide_is_compiled() {
    let doctests = fs::read_to_string(root().join("tests/src/guide.rs")).expect("the doctests of the guide");
    for page in pages().iter().filter(|page| !page.is_document()) {
        let kinds = blocks(&page.text).map(|block| (block.kind(), block));
        for (kind, block) in kinds {
            let at = format!("{}:{}", page.name, block.line);
            match kind {
                Ok(Kind::Doctest) => {
                    assert!(
                        doctests.contains(&format!("/{}\")", page.name)),
                        "{at}: tests/src/guide.rs lacks the page"
                    );
                }
                Ok(Kind::Included) => {
                    let (file, part) = book::include(block.text.trim())
                        .unwrap_or_else(|| panic!("{at}: it includes no program"));
                    let text = page.included(file, part).unwrap_or_else(|error| panic!("{at}: {error}"));
                    assert!(
                        file.contains("/examples/") && !text.trim().is_empty(),
                        "{at}: {file} is no example"
                    );
                }
                Ok(Kind::Toml) => {
                    toml::from_str::<toml::Table>(block.text).unwrap_or_else(|error| panic!("{at}: {error}"));
                }
                _ => {}
            }
        }
    }
}

/// Catches a link to a page, a heading, a picture or another file that the book does not have.
#[test]
fn links_of_the_guide_lead_somewhere() {
    let pages = pages();
    let broken: Vec<_> = pages.iter().flat_map(|page| links::broken(page, &pages)).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Catches a file of the guide that no page of the contents names: the book would not have it.
#[test]
fn every_file_of_the_guide_is_a_page_of_it() {
    let named: Vec<_> = pages().iter().map(|page: &Page| page.name.clone()).collect();
    for file in book::files() {
        assert!(named.contains(&file) || file == "SUMMARY.md", "{file} is not in SUMMARY.md");
    }
}

/// Catches a picture that no page shows any more, and one without a description.
#[test]
fn every_picture_of_the_guide_is_on_a_page_and_described() {
    let texts: Vec<_> = pages().iter().map(Page::expanded).collect();
    let shown: Vec<_> = texts.iter().flat_map(|text| links::targets(text)).collect();
    for picture in fs::read_dir(book::source().join("pictures")).expect("the pictures of the guide") {
        let name = format!("pictures/{}", picture.expect("a picture").file_name().display());
        assert!(shown.contains(&name.as_str()), "no page shows {name}");
    }
    assert!(!texts.iter().any(|text| text.contains("![](")), "a picture has no description");
}
