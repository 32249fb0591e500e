//! The structure of the workspace: crates import downwards, modules have no circles, files stay short
//!
//! The module graph is read from the sources. It catches what a path names, in code and in macros; a method that is called
//! without a path is not seen.

mod errors;
mod graph;
mod picture;
mod source;

use std::collections::BTreeMap;
use std::fs;

use graph::circles;
use rdma_tests::files::{root, rust_files};
use source::Crate;
use syn::visit::Visit as _;

/// Which crates of the workspace each crate may depend on, lowest first
///
/// Development dependencies are free: a test or an example may use any crate.
const LAYERS: &[(&str, &[&str])] = &[
    ("rdma-core", &[]),
    ("rdma-arena", &[]),
    ("rdma-verbs-abi", &[]),
    ("rdma-bare", &["rdma-arena", "rdma-core"]),
    ("rdma-sim", &["rdma-arena", "rdma-core"]),
    ("rdma-tb5", &["rdma-arena", "rdma-core", "rdma-verbs-abi"]),
    ("rdma-tcp", &["rdma-core"]),
    ("rdma-async", &["rdma-arena", "rdma-core"]),
    ("rdma-collectives", &["rdma-async", "rdma-core"]),
    ("rdma-calibrate", &["rdma-arena", "rdma-async", "rdma-bare", "rdma-core", "rdma-sim"]),
    ("rdma-doctor", &["rdma-core", "rdma-tb5", "rdma-verbs-abi"]),
    ("rdma-sim-verbs", &["rdma-arena", "rdma-core", "rdma-sim", "rdma-verbs-abi"]),
    ("rdma-sim-verbs/librdma", &["rdma-sim-verbs"]),
    (
        "rdma-cli",
        &[
            "librdma",
            "rdma-arena",
            "rdma-async",
            "rdma-bare",
            "rdma-calibrate",
            "rdma-collectives",
            "rdma-core",
            "rdma-doctor",
            "rdma-sim",
            "rdma-sim-verbs",
            "rdma-tb5",
            "rdma-tcp",
        ],
    ),
];

/// Lines that a file of Rust may have.
const MAX_LINES: usize = 500;

#[test]
fn crates_depend_on_lower_crates_only() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest of the workspace");
    let manifest: toml::Table = manifest.parse().expect("TOML");
    let members: Vec<_> = manifest["workspace"]["members"].as_array().expect("a list").iter().collect();
    let mut layers: BTreeMap<_, _> = LAYERS.iter().copied().collect();
    for member in
        members.into_iter().filter_map(toml::Value::as_str).filter(|member| !member.starts_with("tests"))
    {
        let allowed =
            layers.remove(member).unwrap_or_else(|| panic!("{member} has no layer: add it to LAYERS"));
        let manifest = fs::read_to_string(root().join(member).join("Cargo.toml")).expect("a manifest");
        let manifest: toml::Table = manifest.parse().expect("TOML");
        let tables = manifest.get("target").and_then(toml::Value::as_table).into_iter().flatten();
        let tables = tables.filter_map(|(_, target)| target.as_table()).chain([&manifest]);
        for (name, _) in tables
            .filter_map(|table| table.get("dependencies").and_then(toml::Value::as_table))
            .flatten()
            .filter(|(name, _)| name.starts_with("rdma-") || *name == "librdma")
        {
            assert!(allowed.contains(&name.as_str()), "{member} depends on {name}, which is not below it");
        }
    }
    assert!(layers.is_empty(), "layers without a crate: {:?}", layers.keys());
}

#[test]
fn modules_have_no_circles() {
    let mut report = String::new();
    for (name, _) in LAYERS {
        for circle in circles(&Crate::read(&root().join(name)).imports()) {
            report += &format!("{name}:\n");
            for (from, to, names) in circle {
                report += &format!("  {from} -> {to}: {}\n", names.join(", "));
            }
        }
    }
    assert!(report.is_empty(), "modules import each other in circles:\n{report}");
}

#[test]
fn files_are_short() {
    let mut long = Vec::new();
    for directory in LAYERS.iter().map(|(name, _)| *name).chain(["tests", "fuzz"]) {
        for file in rust_files(&root().join(directory)) {
            let lines = fs::read_to_string(&file).expect("a source file").lines().count();
            if lines > MAX_LINES {
                long.push(format!("{}: {lines}", file.display()));
            }
        }
    }
    assert!(long.is_empty(), "files above {MAX_LINES} lines, to be split by concept:\n{}", long.join("\n"));
}

/// Lines of code that an adapter of another library may have: programs copy it.
const MAX_ADAPTER: usize = 50;

/// Catches an adapter that grows: what it needs belongs in the library.
#[test]
fn adapters_of_other_libraries_are_short() {
    let files = rust_files(&root().join("tests/adapters/src"));
    let adapters: Vec<_> = files.iter().filter(|file| !file.ends_with("lib.rs")).collect();
    assert_eq!(adapters.len(), 3, "{adapters:?}");
    for file in adapters {
        let text = fs::read_to_string(file).expect("a source file");
        let is_code = |line: &&str| !line.is_empty() && !line.starts_with("//");
        let lines = text.lines().map(str::trim).filter(is_code).count();
        assert!(lines <= MAX_ADAPTER, "{}: {lines} lines, of {MAX_ADAPTER}", file.display());
    }
}

#[test]
fn public_functions_name_their_errors_and_say_what_cancelling_does() {
    let mut report = String::new();
    for (member, _) in LAYERS.iter().filter(|(name, _)| *name != "rdma-cli") {
        for file in rust_files(&root().join(member).join("src")) {
            let mut found = errors::Undocumented::default();
            let text = fs::read_to_string(&file).expect("a source file");
            found.visit_file(&syn::parse_file(&text).expect("Rust"));
            for function in found.functions {
                report += &format!("{}: {function}: # Errors\n", file.display());
            }
            for function in found.futures {
                report += &format!("{}: {function}: # Cancel safety\n", file.display());
            }
        }
    }
    assert!(report.is_empty(), "functions whose documentation lacks a section:\n{report}");
}

#[test]
fn files_that_the_architecture_names_exist() {
    let text = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).expect("the document");
    let code = text.split('`').skip(1).step_by(2);
    let files: Vec<_> = code.filter(|code| code.contains('/') && !code.contains(' ')).collect();
    assert!(files.len() > 40, "the document names files in code spans: {files:?}");
    let missing: Vec<_> = files.iter().filter(|file| !root().join(file).exists()).collect();
    assert!(missing.is_empty(), "docs/ARCHITECTURE.md names files that do not exist: {missing:?}");
}

/// A fabric sequences its components; what one component can do alone is a method of that component.
#[test]
fn the_fabric_itself_has_few_methods() {
    let files = rust_files(&root().join("rdma-sim/src/fabric"));
    let items = files.iter().flat_map(|file| {
        let text = fs::read_to_string(file).expect("a source file");
        syn::parse_file(&text).expect("Rust").items
    });
    let methods = items.filter_map(|item| match item {
        syn::Item::Impl(found) if found.trait_.is_none() => Some(found),
        _ => None,
    });
    let of_fabric = methods
        .filter(|found| matches!(&*found.self_ty, syn::Type::Path(path) if path.path.is_ident("Fabric")));
    let count: usize = of_fabric.map(|found| found.items.len()).sum();
    assert!((20..=40).contains(&count), "{count} methods of Fabric");
}

/// A circle that is planted is found, through a re-export and through a macro
#[test]
fn a_planted_circle_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let write =
        |name: &str, text: &str| fs::write(folder.path().join("src").join(name), text).expect("a file");
    fs::create_dir(folder.path().join("src")).expect("a folder");
    write("lib.rs", "mod a; mod b; mod c; pub use b::B;");
    write("a.rs", "use crate::B; pub(crate) struct A(B);");
    write("b.rs", "pub struct B; fn f() { println!(\"{}\", crate::c::C) }");
    write("c.rs", "pub(crate) const C: u8 = 0; #[cfg(test)] mod tests { use crate::a::A; }");
    assert!(circles(&Crate::read(folder.path()).imports()).is_empty(), "tests do not count");
    write("c.rs", "pub(crate) const C: u8 = super::a::N;");
    write("a.rs", "use crate::B; pub(crate) struct A(B); pub(crate) const N: u8 = 0;");
    let found = circles(&Crate::read(folder.path()).imports());
    let [circle] = found.as_slice() else { panic!("one circle: {found:?}") };
    let files: Vec<_> = circle.iter().map(|(from, ..)| from.as_str()).collect();
    assert_eq!(files, ["a.rs", "b.rs", "c.rs"]);
}
