//! Code blocks of a page, and what is done with each

/// A fenced block
pub(crate) struct Block<'a> {
    /// The words after the fence
    pub(crate) info: &'a str,
    /// The line of the fence, counted from 1
    pub(crate) line: usize,
    /// Its lines
    pub(crate) text: &'a str,
}

/// How a block is tested
#[derive(Debug, PartialEq)]
pub(crate) enum Kind<'a> {
    /// `sh`: runs, and succeeds; `needs` is a program that may be missing
    Command { needs: Option<&'a str> },
    /// `console`: runs, and the output is compared
    Console { needs: Option<&'a str> },
    /// `sh,cargo`: builds something or sets up a terminal; names, commands and options are checked
    Cargo,
    /// `sh,mac`: needs a Mac; commands and options are checked
    Mac,
    /// `sh,root`: needs privileges; commands and options are checked
    Root,
    /// `toml,file=…` or `json,file=…`: a file for the commands of the page
    File { name: &'a str },
    /// `toml`: a part of a manifest
    Toml,
    /// `yaml`: a workflow
    Workflow,
    /// `text`: what a failed check prints; its replay lines are read
    Text,
    /// `rust`, `rust,no_run`, `rust,test_harness` or nothing: a doctest
    Doctest,
    /// `rust,ignore`: a part of an example
    Included,
}

impl<'a> Block<'a> {
    /// # Errors
    ///
    /// The words of a block of which it is not known how it is tested.
    pub(crate) fn kind(&self) -> Result<Kind<'a>, String> {
        let (language, rest) = self.info.split_once(',').unwrap_or((self.info, ""));
        match (language, rest, rest.split_once('=')) {
            ("sh", "", _) => Ok(Kind::Command { needs: None }),
            ("sh", _, Some(("needs", program))) => Ok(Kind::Command { needs: Some(program) }),
            ("sh", "cargo", _) => Ok(Kind::Cargo),
            ("sh", "mac", _) => Ok(Kind::Mac),
            ("sh", "root", _) => Ok(Kind::Root),
            ("console", "", _) => Ok(Kind::Console { needs: None }),
            ("console", _, Some(("needs", program))) => Ok(Kind::Console { needs: Some(program) }),
            ("text", "", _) => Ok(Kind::Text),
            ("toml" | "json", _, Some(("file", name))) => Ok(Kind::File { name }),
            ("toml", "", _) => Ok(Kind::Toml),
            ("yaml", "", _) => Ok(Kind::Workflow),
            ("rust", "" | "no_run" | "test_harness", _) | ("" | "no_run", "", _) => Ok(Kind::Doctest),
            ("rust", "ignore", _) => Ok(Kind::Included),
            _ => Err(format!("a block of `{}`, of which it is not known how it is tested", self.info)),
        }
    }
}

/// The blocks of a page, in order
///
/// # Panics
///
/// If the last one has no end.
pub(crate) fn blocks(text: &str) -> impl Iterator<Item = Block<'_>> {
    let mut lines = text.split_inclusive('\n').enumerate().scan(0, |offset, (number, line)| {
        let start = *offset;
        *offset += line.len();
        Some((number + 1, start, *offset, line.trim()))
    });
    std::iter::from_fn(move || {
        let (line, _, start, info) = lines.by_ref().find_map(|(number, start, end, line)| {
            line.strip_prefix("```").map(|info| (number, start, end, info))
        })?;
        let end = lines.by_ref().find(|(.., line)| *line == "```").map(|(_, start, ..)| start);
        let end = end.unwrap_or_else(|| panic!("line {line}: a block without an end"));
        Some(Block { info, line, text: &text[start..end] })
    })
}

#[test]
fn blocks_have_their_words_lines_and_text() {
    let text = "# A\n\n```sh,mac\none\ntwo\n```\nbetween\n```console\n$ three\n```\n";
    let found: Vec<_> = blocks(text).map(|block| (block.info, block.line, block.text)).collect();
    assert_eq!(found, [("sh,mac", 3, "one\ntwo\n"), ("console", 8, "$ three\n")]);
}

#[test]
fn a_block_of_an_unknown_kind_is_refused() {
    let kind = |info| Block { info, line: 1, text: "" }.kind().is_ok();
    assert!(kind("sh") && kind("sh,needs=ibv_devinfo") && kind("json,file=a.json"));
    for info in ["bash", "sh,later", "rust,should_panic", "console,mac"] {
        assert!(!kind(info), "{info}");
    }
}
