use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// By importing file, the files that it imports and the names that it takes from each
pub(crate) type Imports = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// One step of a circle: the importing file, the imported file, and the names
pub(crate) type Step = (String, String, Vec<String>);

/// The shortest circle through each file that is in one, each circle once, shortest first
pub(crate) fn circles(imports: &Imports) -> Vec<Vec<Step>> {
    let mut found: Vec<_> = imports.keys().filter_map(|start| path_back(imports, start)).collect();
    found.sort_by_key(Vec::len);
    let mut seen = BTreeSet::new();
    found.retain(|circle| seen.insert(circle.iter().cloned().collect::<BTreeSet<_>>()));
    let steps = |circle: &Vec<String>| {
        let steps = circle.iter().zip(circle.iter().cycle().skip(1));
        steps.map(|(from, to)| (from.clone(), to.clone(), imports[from][to].clone())).collect()
    };
    found.iter().map(steps).collect()
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
