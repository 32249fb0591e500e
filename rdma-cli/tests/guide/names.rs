//! What commands of cargo may name

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::book::root;

/// The names that may follow an option
pub(crate) struct Names(BTreeMap<&'static str, Vec<String>>);

/// Folders whose files and folders are targets, and the option that names one
const TARGETS: [(&str, &str); 5] = [
    ("--example", "examples"),
    ("--test", "tests"),
    ("--bench", "benches"),
    ("--bin", "src/bin"),
    ("run", "fuzz_targets"),
];

impl Names {
    /// Those of all packages of the repository
    pub(crate) fn read() -> Self {
        let mut names = BTreeMap::<_, Vec<_>>::new();
        let mut folders: Vec<_> =
            fs::read_dir(root()).expect("the root of the repository").flatten().collect();
        for nested in ["tests", "rdma-sim-verbs"] {
            folders.extend(fs::read_dir(root().join(nested)).expect("a folder of packages").flatten());
        }
        for folder in folders {
            let folder = folder.path();
            let Ok(manifest) = fs::read_to_string(folder.join("Cargo.toml")) else { continue };
            let declared = manifest.lines().filter_map(|line| line.strip_prefix("name = "));
            let declared: Vec<_> = declared.map(|name| name.replace('"', "")).collect();
            // The first one is the package; further ones are targets.
            names.entry("-p").or_default().extend(declared.first().cloned());
            for (option, targets) in TARGETS {
                let found = names.entry(option).or_default();
                found.extend(declared.iter().skip(1).cloned());
                found.extend(stems(&folder.join(targets)));
            }
        }
        Self(names)
    }

    /// Checks that a command of cargo names packages and targets that there are
    ///
    /// # Errors
    ///
    /// The name that there is not.
    pub(crate) fn check(&self, command: &str) -> Result<(), String> {
        let words: Vec<_> = command.split_whitespace().take_while(|word| *word != "--").collect();
        for pair in words.windows(2) {
            let Some(names) = self.0.get(pair[0]).filter(|_| !pair[1].starts_with('-')) else { continue };
            if !is_placeholder(pair[1]) && !names.iter().any(|name| name == pair[1]) {
                return Err(format!("`{command}`: there is no {}", pair[1]));
            }
        }
        Ok(())
    }
}

/// Whether a word stands for another one, as NAME does
fn is_placeholder(word: &str) -> bool {
    word.chars().all(|letter| letter.is_ascii_uppercase())
}

/// The names of the files and folders in a folder
fn stems(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some(entry.path().file_stem()?.to_string_lossy().into_owned())).collect()
}
