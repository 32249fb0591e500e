//! The types of JSON output, read from the sources of the structs that are serialized
//!
//! A sample shows neither the elements of an empty list nor a key that is `null` in other runs: the types show both.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::punctuated::Punctuated;
use syn::{Attribute, Fields, GenericArgument, Item, Meta, PathArguments, Token, Type, UseTree};

/// The crates whose types are serialized, and their folders
const CRATES: [(&str, &str); 3] =
    [("rdma_cli", "rdma-cli"), ("rdma_doctor", "rdma-doctor"), ("rdma_sim", "rdma-sim")];

/// A JSON type
#[derive(Clone, Debug)]
pub(super) enum Json {
    Bool,
    Whole,
    Number,
    Text,
    Nullable(Box<Self>),
    List(Box<Self>),
    /// Values of one type, by names that the type does not state
    Map(Box<Self>),
    Object(BTreeMap<String, Self>),
    /// An object with one of the keys
    OneOf(BTreeMap<String, Self>),
}

/// A source file
struct Source {
    /// The crate and the modules in it
    path: Vec<String>,
    items: Vec<Item>,
}

/// The sources of all crates
pub(super) struct Sources {
    files: Vec<Source>,
    /// The types of the tool that were asked for, or are a part of one that was
    reached: RefCell<BTreeSet<String>>,
}

impl Sources {
    pub(super) fn read() -> Self {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut files = Vec::new();
        for (name, folder) in CRATES {
            read_folder(&repository.join(folder).join("src"), &[name.to_owned()], &mut files);
        }
        Self { files, reached: RefCell::default() }
    }

    /// The type of the tool at a path such as `bench::report::Report`
    pub(super) fn of(&self, path: &str) -> Json {
        let mut segments: Vec<_> =
            ["rdma_cli"].into_iter().chain(path.split("::")).map(str::to_owned).collect();
        let name = segments.pop().expect("the crate is a segment");
        let file = self.files.iter().find(|file| file.path == segments);
        let file = file.unwrap_or_else(|| panic!("{path}: there is no such module"));
        self.named(&name, file)
    }

    /// The types of the tool that are only serialized, and that no command prints by the paths so far
    pub(super) fn unreached(&self) -> Vec<String> {
        let own = self.files.iter().filter(|file| file.path[0] == "rdma_cli");
        let names = own.flat_map(|file| {
            let written =
                file.items.iter().filter(|item| derives(item, "Serialize") && !derives(item, "Deserialize"));
            written.map(|item| qualified(file, &name_of(item)))
        });
        names.filter(|name| !self.reached.borrow().contains(name)).collect()
    }

    /// The type with a name that `file` declares or imports
    fn named(&self, name: &str, file: &Source) -> Json {
        if let Some(item) = file.serialized(name) {
            self.reached.borrow_mut().insert(qualified(file, name));
            return self.item(item, file);
        }
        let path = file.import(name).unwrap_or_else(|| panic!("{:?}: {name} is not imported", file.path));
        let (name, module) = path.split_last().expect("an import has a name");
        let from =
            self.files.iter().filter(|from| from.path.starts_with(module) && from.serialized(name).is_some());
        let [from] = from.collect::<Vec<_>>()[..] else {
            panic!("{path:?} names no type that is serialized, or several")
        };
        self.named(name, from)
    }

    fn item(&self, item: &Item, file: &Source) -> Json {
        match item {
            Item::Struct(item) => Json::Object(self.fields(&item.fields, file)),
            Item::Enum(item) if item.variants.iter().all(|variant| variant.fields.is_empty()) => Json::Text,
            Item::Enum(item) => {
                let of_variant = |variant: &syn::Variant| {
                    let Fields::Unnamed(fields) = &variant.fields else {
                        panic!("{}: has no value", variant.ident)
                    };
                    (variant.ident.to_string().to_lowercase(), self.json(&fields.unnamed[0].ty, file))
                };
                Json::OneOf(item.variants.iter().map(of_variant).collect())
            }
            _ => unreachable!("only structs and enums are serialized"),
        }
    }

    fn fields(&self, fields: &Fields, file: &Source) -> BTreeMap<String, Json> {
        let mut keys = BTreeMap::new();
        for field in fields {
            let name = field.ident.as_ref().expect("fields have names").to_string();
            let words = serde_words(&field.attrs);
            match words.iter().map(String::as_str).filter(|word| *word != "default").collect::<Vec<_>>()[..] {
                ["skip"] => (),
                ["flatten"] => match self.json(&field.ty, file) {
                    Json::Object(flat) => keys.extend(flat),
                    other => panic!("{name}: {other:?} cannot be flattened"),
                },
                [] => drop(keys.insert(name, self.json(&field.ty, file))),
                ref other => panic!("{:?}: {name}: the test does not know #[serde({other:?})]", file.path),
            }
        }
        keys
    }

    fn json(&self, of: &Type, file: &Source) -> Json {
        let list = |element: &Type| Json::List(Box::new(self.json(element, file)));
        match of {
            Type::Reference(of) => self.json(&of.elem, file),
            Type::Array(of) => list(&of.elem),
            Type::Slice(of) => list(&of.elem),
            Type::Path(of) => {
                let last = of.path.segments.last().expect("a path has a segment");
                let argument = |number| argument(&last.arguments, number);
                match last.ident.to_string().as_str() {
                    "bool" => Json::Bool,
                    "u8" | "u16" | "u32" | "u64" | "usize" | "i32" => Json::Whole,
                    "f64" => Json::Number,
                    "str" | "String" | "SocketAddr" | "Ipv6Addr" => Json::Text,
                    "Option" => Json::Nullable(Box::new(self.json(argument(0), file))),
                    "Vec" => list(argument(0)),
                    "BTreeMap" => Json::Map(Box::new(self.json(argument(1), file))),
                    name => self.named(name, file),
                }
            }
            _ => panic!("{:?}: a field has a type that the test does not know", file.path),
        }
    }
}

impl Source {
    fn serialized(&self, name: &str) -> Option<&Item> {
        self.items.iter().find(|item| name_of(item) == name && derives(item, "Serialize"))
    }

    /// The whole path of a name that the file imports
    fn import(&self, name: &str) -> Option<Vec<String>> {
        let uses = self
            .items
            .iter()
            .filter_map(|item| if let Item::Use(item) = item { Some(&item.tree) } else { None });
        uses.filter_map(|tree| imported(tree, name)).next().map(|path| self.absolute(path))
    }

    fn absolute(&self, path: Vec<String>) -> Vec<String> {
        let mut module = Vec::new();
        for segment in path {
            match segment.as_str() {
                "crate" => module.push(self.path[0].clone()),
                "self" => module.clone_from(&self.path),
                "super" => {
                    if module.is_empty() {
                        module.clone_from(&self.path);
                    }
                    module.pop();
                }
                _ => module.push(segment),
            }
        }
        module
    }
}

fn read_folder(folder: &Path, module: &[String], into: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        let own = ["lib", "main", "mod"].contains(&stem.as_str());
        let module = if own { module.to_vec() } else { [module, &[stem]].concat() };
        if path.is_dir() {
            read_folder(&path, &module, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let file = syn::parse_file(&fs::read_to_string(&path).unwrap());
            let file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            into.push(Source { path: module, items: file.items });
        }
    }
}

fn qualified(file: &Source, name: &str) -> String {
    [&file.path[..], &[name.to_owned()]].concat().join("::")
}

fn name_of(item: &Item) -> String {
    match item {
        Item::Struct(item) => item.ident.to_string(),
        Item::Enum(item) => item.ident.to_string(),
        _ => String::new(),
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Struct(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        _ => &[],
    }
}

/// The parts of the attribute `name`, by their last words
fn words(attributes: &[Attribute], name: &str) -> Vec<String> {
    let listed = attributes.iter().filter(|attribute| attribute.path().is_ident(name));
    let parts = listed.flat_map(|attribute| {
        attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).unwrap()
    });
    parts.map(|part| part.path().segments.last().unwrap().ident.to_string()).collect()
}

fn derives(item: &Item, what: &str) -> bool {
    words(attributes(item), "derive").iter().any(|word| word == what)
}

fn serde_words(attributes: &[Attribute]) -> Vec<String> {
    words(attributes, "serde")
}

/// A type among the arguments of another one; lifetimes do not count
fn argument(arguments: &PathArguments, number: usize) -> &Type {
    let PathArguments::AngleBracketed(arguments) = arguments else { panic!("a type lacks its arguments") };
    let mut types = arguments.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(of) => Some(of),
        _ => None,
    });
    types.nth(number).expect("a type has its arguments")
}

/// The path by which a `use` imports a name
fn imported(tree: &UseTree, name: &str) -> Option<Vec<String>> {
    match tree {
        UseTree::Path(path) => {
            let rest = imported(&path.tree, name)?;
            Some([vec![path.ident.to_string()], rest].concat())
        }
        UseTree::Name(of) => (of.ident == name).then(|| vec![name.to_owned()]),
        UseTree::Rename(of) => (of.rename == name).then(|| vec![of.ident.to_string()]),
        UseTree::Group(group) => group.items.iter().find_map(|tree| imported(tree, name)),
        UseTree::Glob(_) => None,
    }
}
