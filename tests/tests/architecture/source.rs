//! The modules of a crate, what each defines, and what its paths name

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use rdma_tests::files::rust_files;
use syn::visit::Visit;

use crate::graph::Imports;

/// The modules of a crate by their path from the root of the crate
pub(crate) struct Crate {
    modules: BTreeMap<Vec<String>, Module>,
}

/// What one file says
#[derive(Default)]
struct Module {
    file: String,
    /// Names of items that are defined here.
    defined: BTreeSet<String>,
    /// Names that `use` brings in, with the paths that they stand for.
    used: Vec<Used>,
    /// Paths of two segments and more in code.
    paths: BTreeSet<Vec<String>>,
    /// Every identifier outside of `use`.
    idents: BTreeSet<String>,
    /// Inline modules around what is being read: their `super` is this file.
    depth: usize,
}

struct Used {
    name: String,
    path: Vec<String>,
    is_reexport: bool,
}

/// Depth of re-exports of re-exports that is followed.
const MAX_REEXPORTS: usize = 8;

impl Crate {
    pub(crate) fn read(folder: &Path) -> Self {
        let src = folder.join("src");
        let mut modules = BTreeMap::new();
        for file in rust_files(&src) {
            let name = file.strip_prefix(&src).expect("a file below src");
            let text = fs::read_to_string(&file).expect("a source file");
            let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            let mut path: Vec<_> = name.iter().map(|part| part.to_string_lossy().into_owned()).collect();
            let last = path.pop().expect("a file has a name");
            match last.trim_end_matches(".rs") {
                "mod" | "lib" | "main" => (),
                name => path.push(name.to_owned()),
            }
            let module = Module::read(name.display().to_string(), &parsed);
            if !path.iter().any(|part| part == "tests" || part == "bin") {
                modules.insert(path, module);
            }
        }
        Self { modules }
    }

    /// Which file takes which names from which other file
    pub(crate) fn imports(&self) -> Imports {
        let mut imports = Imports::new();
        for (at, module) in &self.modules {
            let to: &mut BTreeMap<_, Vec<_>> = imports.entry(module.file.clone()).or_default();
            let in_code = module.paths.iter().filter(|path| self.is_local(at, module, path));
            let in_uses =
                module.used.iter().filter(|used| !used.is_reexport || module.idents.contains(&used.name));
            for path in in_code.chain(in_uses.map(|used| &used.path)) {
                if let Some(file) = self.resolve(at, path, 0).filter(|file| *file != module.file) {
                    let names = to.entry(file).or_default();
                    let name = path.last().expect("a path has a name").clone();
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
            }
        }
        imports
    }

    /// Whether a path begins in this crate, by a keyword or by the name of a module below
    fn is_local(&self, at: &[String], module: &Module, path: &[String]) -> bool {
        matches!(path[0].as_str(), "crate" | "self" | "super")
            || self.modules.contains_key(&[at, &path[..1]].concat())
            || module.used.iter().any(|used| used.name == path[0])
    }

    /// The file that defines what `path` names in module `at`
    fn resolve(&self, at: &[String], path: &[String], depth: usize) -> Option<String> {
        let mut now = at.to_vec();
        let mut rest = path;
        if depth > MAX_REEXPORTS {
            return None;
        }
        match rest.first()?.as_str() {
            "crate" => {
                now.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => (),
            first => {
                // Neither a module below nor something that `use` brought in: another crate.
                let module = self.modules.get(at)?;
                let is_module = self.modules.contains_key(&[at, &rest[..1]].concat());
                if !is_module && !module.used.iter().any(|used| used.name == first) {
                    return None;
                }
            }
        }
        while rest.first().is_some_and(|part| part == "super") {
            now.pop();
            rest = &rest[1..];
        }
        while let Some(part) = rest.first() {
            let below = [now.as_slice(), std::slice::from_ref(part)].concat();
            if !self.modules.contains_key(&below) {
                break;
            }
            now = below;
            rest = &rest[1..];
        }
        let module = self.modules.get(&now)?;
        let Some(name) = rest.first() else { return Some(module.file.clone()) };
        if module.defined.contains(name) {
            return Some(module.file.clone());
        }
        let used = module.used.iter().filter(|used| used.name == *name || used.name == "*");
        used.filter(|used| !(now == at && used.path.as_slice() == path)).find_map(|used| {
            let mut path = used.path.clone();
            if used.name == "*" {
                path.push(name.clone());
            }
            self.resolve(&now, &path, depth + 1)
        })
    }
}

impl Module {
    fn read(file: String, parsed: &syn::File) -> Self {
        let mut module = Self { file, ..Self::default() };
        module.visit_file(parsed);
        module
    }

    fn add_use(&mut self, prefix: &[String], tree: &syn::UseTree, is_reexport: bool) {
        let with = |name: &syn::Ident| [prefix, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.add_use(&with(&path.ident), &path.tree, is_reexport),
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.add_use(prefix, tree, is_reexport));
            }
            syn::UseTree::Glob(_) => {
                self.push_use("*".to_owned(), prefix.to_vec(), is_reexport);
            }
            syn::UseTree::Name(name) if name.ident == "self" => {
                let last = prefix.last().expect("`self` stands in a group").clone();
                self.push_use(last, prefix.to_vec(), is_reexport);
            }
            syn::UseTree::Name(name) => {
                self.push_use(name.ident.to_string(), with(&name.ident), is_reexport);
            }
            syn::UseTree::Rename(rename) => {
                self.push_use(rename.rename.to_string(), with(&rename.ident), is_reexport);
            }
        }
    }

    fn push_use(&mut self, name: String, path: Vec<String>, is_reexport: bool) {
        self.used.push(Used { name, path: self.in_file(path), is_reexport });
    }

    /// A path as the file itself would write it
    fn in_file(&self, mut path: Vec<String>) -> Vec<String> {
        let inner = path.iter().take(self.depth).take_while(|part| *part == "super").count();
        path.drain(..inner);
        if inner > 0 && path.first().is_none_or(|part| part != "super") {
            path.insert(0, "self".to_owned());
        }
        path
    }

    /// Paths in the arguments of a macro
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Ident(ident) => {
                    self.idents.insert(ident.to_string());
                    if colons != 2 {
                        self.add_path(std::mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                other => {
                    self.add_path(std::mem::take(&mut path));
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.add_tokens(group.stream());
                    }
                }
            }
        }
        self.add_path(path);
    }

    fn add_path(&mut self, path: Vec<String>) {
        if path.len() > 1 {
            let path = self.in_file(path);
            self.paths.insert(path);
        }
    }
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let (attributes, name) = match item {
            syn::Item::Const(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Enum(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
            syn::Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
            syn::Item::Mod(item) => (&item.attrs, None),
            syn::Item::Static(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Struct(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Trait(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Type(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Union(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Impl(item) => (&item.attrs, None),
            syn::Item::Use(item) => (&item.attrs, None),
            _ => return syn::visit::visit_item(self, item),
        };
        if attributes.iter().any(is_for_tests) {
            return;
        }
        self.defined.extend(name.map(ToString::to_string));
        syn::visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.depth += 1;
        syn::visit::visit_item_mod(self, item);
        self.depth -= 1;
    }

    /// `pub(in path)` restricts, it takes nothing.
    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_use(&[], &item.tree, !matches!(item.vis, syn::Visibility::Inherited));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<_> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if path.leading_colon.is_none() {
            self.add_path(parts);
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_ident(&mut self, ident: &'ast syn::Ident) {
        self.idents.insert(ident.to_string());
    }

    fn visit_macro(&mut self, found: &'ast syn::Macro) {
        self.add_tokens(found.tokens.clone());
        syn::visit::visit_macro(self, found);
    }
}

fn is_for_tests(attribute: &syn::Attribute) -> bool {
    let is_test = |list: &syn::MetaList| names_test(list.tokens.clone());
    attribute.path().is_ident("cfg") && attribute.meta.require_list().is_ok_and(is_test)
}

/// Whether a condition is `test`, or `all` of `test` and others
fn names_test(tokens: TokenStream) -> bool {
    let mut tokens = tokens.into_iter();
    match (tokens.next(), tokens.next()) {
        (Some(TokenTree::Ident(name)), None) => name == "test",
        (Some(TokenTree::Ident(name)), Some(TokenTree::Group(group))) if name == "all" => {
            group.stream().into_iter().any(|token| matches!(token, TokenTree::Ident(name) if name == "test"))
        }
        _ => false,
    }
}
