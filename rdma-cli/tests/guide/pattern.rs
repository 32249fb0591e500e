//! Compares output with what a page shows of it

/// What a page writes for text that is not compared: within a line, or as a line for any number of lines
const ANY: &str = "…";

/// Whether `printed` is as `expected` says
pub(crate) fn matches(expected: &str, printed: &str) -> bool {
    let lines = |text: &str| text.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
    lines_match(&lines(expected), &lines(printed))
}

fn lines_match(expected: &[String], printed: &[String]) -> bool {
    match expected.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if first == ANY => {
            (0..=printed.len()).any(|skipped| lines_match(rest, &printed[skipped..]))
        }
        Some((first, rest)) => printed
            .split_first()
            .is_some_and(|(line, others)| line_matches(first, line) && lines_match(rest, others)),
    }
}

fn line_matches(expected: &str, line: &str) -> bool {
    let Some((start, rest)) = expected.split_once(ANY) else { return expected == line };
    let Some(mut line) = line.strip_prefix(start) else { return false };
    let mut parts: Vec<_> = rest.split(ANY).collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        let Some((_, behind)) = line.split_once(part) else { return false };
        line = behind;
    }
    line.ends_with(end)
}

#[test]
fn only_what_is_left_out_may_differ() {
    let printed = "backend: simulator\n p50  11.9 µs (+1 %)\n end\n";
    for expected in [printed, "…\n", "backend: simulator\n…\n end", " …", "backend: …\n p50  … µs (… %)\n…"]
    {
        assert_eq!(matches(expected, printed), expected != " …", "{expected}");
    }
    for expected in
        ["", "backend: simulator\n", "…\n p50  … ms (… %)\n…", "backend: simulator\n end", "…\n end\n\n more"]
    {
        assert!(!matches(expected, printed), "{expected}");
    }
}
