//! Public functions that can fail or wait, and whether their documentation names the errors and what dropping the future does

use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, Lit, Meta, ReturnType, Signature, Visibility};

/// Collects the public functions of a file whose documentation lacks a section
#[derive(Default)]
pub(crate) struct Undocumented {
    /// Those that can fail and name no error
    pub(crate) functions: Vec<String>,
    /// Those that return a future and do not say what dropping it does
    pub(crate) futures: Vec<String>,
    is_trait: bool,
}

impl Undocumented {
    fn check(&mut self, attributes: &[Attribute], signature: &Signature) {
        if is_fallible(&signature.output) && !names_errors(&documentation(attributes)) {
            self.functions.push(signature.ident.to_string());
        }
        if is_future(signature) && !documentation(attributes).contains("# Cancel safety") {
            self.futures.push(signature.ident.to_string());
        }
    }
}

impl Visit<'_> for Undocumented {
    fn visit_item_fn(&mut self, item: &syn::ItemFn) {
        if matches!(item.vis, Visibility::Public(_)) {
            self.check(&item.attrs, &item.sig);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &syn::ImplItemFn) {
        if matches!(item.vis, Visibility::Public(_)) {
            self.check(&item.attrs, &item.sig);
        }
    }

    fn visit_item_trait(&mut self, item: &syn::ItemTrait) {
        self.is_trait = matches!(item.vis, Visibility::Public(_));
        visit::visit_item_trait(self, item);
        self.is_trait = false;
    }

    fn visit_trait_item_fn(&mut self, item: &syn::TraitItemFn) {
        if self.is_trait {
            self.check(&item.attrs, &item.sig);
        }
    }

    fn visit_item_mod(&mut self, item: &syn::ItemMod) {
        if item.ident != "tests" {
            visit::visit_item_mod(self, item);
        }
    }
}

/// Whether a function returns a `Result`, at once or when it is ready
fn is_fallible(output: &ReturnType) -> bool {
    let ReturnType::Type(_, output) = output else { return false };
    let syn::Type::Path(path) = &**output else { return false };
    let last = path.path.segments.last().expect("a path has a segment");
    match (&*last.ident.to_string(), &last.arguments) {
        ("Result", _) => true,
        ("Poll", syn::PathArguments::AngleBracketed(inner)) => inner.args.iter().any(|arg| {
            matches!(arg, syn::GenericArgument::Type(syn::Type::Path(path))
                if path.path.segments.last().is_some_and(|segment| segment.ident == "Result"))
        }),
        _ => false,
    }
}

/// Types of the workspace that are futures or streams of messages, by their last name
const FUTURES: [&str; 10] = [
    "AcceptStream",
    "Alloc",
    "Closed",
    "Messages",
    "OpenStream",
    "Recv",
    "RecvInto",
    "Send",
    "Sleep",
    "Timeout",
];

/// Whether a function returns something to await
fn is_future(signature: &Signature) -> bool {
    let ReturnType::Type(_, output) = &signature.output else { return signature.asyncness.is_some() };
    let is_named = match &**output {
        syn::Type::Path(path) => {
            path.path.segments.last().is_some_and(|segment| FUTURES.contains(&&*segment.ident.to_string()))
        }
        syn::Type::ImplTrait(bounds) => bounds.bounds.iter().any(|bound| {
            matches!(bound, syn::TypeParamBound::Trait(bound)
                if bound.path.segments.last().is_some_and(|segment| segment.ident == "Future"))
        }),
        _ => false,
    };
    signature.asyncness.is_some() || is_named
}

fn documentation(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(doc) if doc.path.is_ident("doc") => match &doc.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Whether the section about errors links to a variant, or to the function or error that it refers to
fn names_errors(documentation: &str) -> bool {
    let Some((_, section)) = documentation.split_once("# Errors") else { return false };
    let section = section.split("\n # ").next().expect("a split has a first part");
    section.contains("[`")
}

#[test]
fn an_errors_section_without_a_link_names_nothing() {
    let source = "
        /// Fails.
        ///
        /// # Errors
        ///
        /// If it does not work.
        pub fn vague() -> Result<(), E> { Ok(()) }
        /// # Errors
        ///
        /// [`E::Broken`] if it is broken.
        pub fn exact() -> Result<(), E> { Ok(()) }
        /// Fails.
        pub fn silent() -> Poll<Result<(), E>> { Ok(()) }
        fn private() -> Result<(), E> { Ok(()) }
    ";
    let mut found = Undocumented::default();
    found.visit_file(&syn::parse_file(source).expect("Rust"));
    assert_eq!(found.functions, ["vague", "silent"]);
}

#[test]
fn a_future_without_a_word_about_dropping_it_is_found() {
    let source = "
        /// Waits.
        pub async fn vague() {}
        /// # Cancel safety
        ///
        /// Dropping it has no effect.
        pub async fn exact() {}
        /// Waits.
        pub fn boxed() -> impl Future<Output = ()> + Send { async {} }
        /// Waits.
        pub fn named(&self) -> future::Recv<D> { todo!() }
        /// Returns.
        pub fn plain() -> u8 { 0 }
        async fn private() {}
    ";
    let mut found = Undocumented::default();
    found.visit_file(&syn::parse_file(source).expect("Rust"));
    assert_eq!(found.futures, ["vague", "boxed", "named"]);
}
