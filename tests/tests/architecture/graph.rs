use std::collections::{BTreeMap, VecDeque};

/// By importing file, the files that it imports and the names that it takes from each
pub(crate) type Imports = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// The shortest circle of imports, as steps of (importing file, imported file, names), or `None`
pub(crate) fn shortest_circle(imports: &Imports) -> Option<Vec<(String, String, Vec<String>)>> {
    let shortest = imports.keys().filter_map(|start| path_back(imports, start)).min_by_key(Vec::len)?;
    let steps = shortest.iter().zip(shortest.iter().cycle().skip(1));
    Some(steps.map(|(from, to)| (from.clone(), to.clone(), imports[from][to].clone())).collect())
}

/// The files of the shortest path from `start` back to itself
fn path_back(imports: &Imports, start: &str) -> Option<Vec<String>> {
    let mut paths = VecDeque::from([vec![start.to_owned()]]);
    let mut seen = Vec::new();
    while let Some(path) = paths.pop_front() {
        for to in imports.get(path.last()?)?.keys() {
            if to == start {
                return Some(path);
            }
            if !seen.contains(to) && imports.contains_key(to) {
                seen.push(to.clone());
                paths.push_back([path.as_slice(), std::slice::from_ref(to)].concat());
            }
        }
    }
    None
}
