//! The guide in `docs/guide` and all other documents: commands and code blocks run in a test, and each link leads somewhere
//!
//! Rust blocks are doctests, or parts of examples that other tests run; of the guide it is checked here that they are. The rest
//! runs here. Of a block that cannot run, because it needs a Mac, a build, or a program that is not installed, commands and options
//! are checked, and it is printed: `cargo test -p rdma-cli --test guide -- --nocapture`. With `RDMA_REQUIRE_PROGRAMS=1`, a missing
//! program is a failure.
#![cfg(unix)]

mod block;
mod book;
mod command;
mod counts;
mod links;
mod models;
mod names;
mod pattern;
mod words;

use std::{env, fs};

use block::{Kind, blocks};
use book::{Page, documents, pages, root, source};
use command::Scratch;
use names::Names;

/// Runs the blocks of a page, and returns how many commands ran, and what did not
fn run_blocks(page: &Page, names: &Names) -> (usize, Vec<String>) {
    let (mut ran, mut not_run) = (0, Vec::new());
    let scratch = Scratch::new();
    for block in blocks(&page.text) {
        let at = format!("{}:{}", page.name, block.line);
        let check = || {
            let text = block.text.replace("\\\n", " ");
            for line in text.lines() {
                words::check(&scratch, line, names).unwrap_or_else(|error| panic!("{at}: {error}"));
            }
        };
        let reason = match block.kind().unwrap_or_else(|error| panic!("{at}: {error}")) {
            Kind::Command { needs: Some(program) } | Kind::Console { needs: Some(program) }
                if !scratch.has(program) =>
            {
                assert!(
                    env::var_os(REQUIRED).is_none(),
                    "{at}: there is no {program}, and {REQUIRED} is set"
                );
                check();
                format!("there is no {program} on this machine")
            }
            Kind::Command { .. } => {
                scratch.run(&at, block.text, 0);
                ran += 1;
                continue;
            }
            Kind::Console { .. } => {
                ran += scratch.compare(&at, block.text);
                continue;
            }
            Kind::Cargo => "it builds, or sets up a terminal".into(),
            Kind::Mac => "it needs a Mac".into(),
            Kind::Root => "it needs privileges".into(),
            Kind::File { name } => {
                scratch.write(&at, name, block.text);
                continue;
            }
            Kind::Workflow => "a linter of workflows checks it: .ci/run workflows".into(),
            Kind::Toml => {
                toml::from_str::<toml::Table>(block.text).unwrap_or_else(|error| panic!("{at}: {error}"));
                continue;
            }
            Kind::Text => {
                words::check_replays(&at, block.text);
                continue;
            }
            Kind::Doctest | Kind::Included => continue,
        };
        if block.kind() != Ok(Kind::Workflow) {
            check();
        }
        not_run.push(format!("{at}: {reason}: {}", block.text.lines().next().unwrap_or_default()));
    }
    (ran, not_run)
}

/// Set where all programs that the pages need are installed, as in CI: a missing one fails the test then
const REQUIRED: &str = "RDMA_REQUIRE_PROGRAMS";

/// Catches a command that the tool does not know any more, output that has changed, and a file in a block that does not parse.
#[test]
#[allow(clippy::print_stdout, reason = "a test that leaves something out says so")]
fn commands_of_the_guide_and_of_all_documents_do_as_they_say() {
    let names = Names::read();
    let (mut ran, mut not_run) = (0, Vec::new());
    for page in pages().iter().filter(|page| !page.is_document()).chain(&documents()) {
        let (more, without) = run_blocks(page, &names);
        ran += more;
        not_run.extend(without);
    }
    println!("{ran} commands of the guide and of the documents ran; {} blocks did not:", not_run.len());
    not_run.iter().for_each(|block| println!("  {block}"));
    assert!(ran > 40, "{ran} commands were found");
}

/// Catches a sentence or a table that names a command, an option, a package, a test or a benchmark that there is not.
#[test]
fn commands_within_sentences_have_the_options_that_they_name() {
    let (names, scratch) = (Names::read(), Scratch::new());
    let mut count = 0;
    for page in pages().iter().filter(|page| !page.is_document()).chain(&documents()) {
        for span in words::spans(&page.text).filter(|span| !span.contains(['…', '|'])) {
            count += usize::from(span.starts_with("tb5 "));
            words::check(&scratch, &span, &names).unwrap_or_else(|error| panic!("{}: {error}", page.name));
        }
    }
    assert!(count > 100, "{count} commands were found");
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
                _ => {}
            }
        }
    }
}

/// Catches a link to a page, a heading, a picture or another file that the book does not have.
#[test]
fn links_of_the_guide_lead_somewhere() {
    let pages = pages();
    let broken: Vec<_> = pages.iter().flat_map(|page| links::broken(page, &pages, &source())).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Catches a link of a document to a file, or to a heading, that the repository does not have.
#[test]
fn links_of_all_documents_lead_somewhere() {
    let documents = documents();
    let in_repository =
        |page: Page| Page { name: format!("docs/guide/src/{}", page.name), text: page.expanded() };
    let of_guide = pages().into_iter().map(in_repository);
    let all: Vec<_> = self::documents().into_iter().chain(of_guide).collect();
    let broken: Vec<_> = documents.iter().flat_map(|page| links::broken(page, &all, &root())).collect();
    assert!(documents.len() > 30, "{} documents", documents.len());
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Catches a count in a sentence that was not changed with what it counts.
#[test]
fn counts_in_sentences_are_true() {
    let pages: Vec<_> = pages().into_iter().chain(documents()).collect();
    for (phrase, count) in counts::counts() {
        let mut found = 0;
        for page in &pages {
            for stated in counts::stated(&page.text, phrase) {
                assert_eq!(stated, count, "{}: {phrase}", page.name);
                found += 1;
            }
        }
        assert!(found > 0, "no page says {phrase:?}");
    }
}

/// Catches a model of Mac that the page of formats lacks, and devices or rates that are not those of the simulator.
#[test]
fn the_table_of_macs_is_that_of_the_simulator() {
    let page = fs::read_to_string(source().join("formats.md")).expect("the page of formats");
    let table: Vec<_> = page.lines().filter(|line| line.starts_with("| `mac")).skip(1).collect();
    assert_eq!(table, models::rows().collect::<Vec<_>>());
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
