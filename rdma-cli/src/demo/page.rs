//! Pages of HTML that need nothing else

use std::borrow::Cow;

const STYLE: &str = include_str!("page.css");

/// The page that `template` becomes when each `{{name}}` is replaced by a part
pub(super) fn fill<'a>(template: &str, part: impl Fn(&str) -> Cow<'a, str>) -> String {
    let mut page = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        page.push_str(before);
        let Some((name, after)) = after.split_once("}}") else { break };
        page.push_str(&if name == "style" { Cow::Borrowed(STYLE) } else { part(name) });
        rest = after;
    }
    page + rest
}
