//! The sources of the checkout: which lines are production, and what each module's file holds.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Folders of tests, test programs, fixtures, benchmarks and examples, by their name anywhere in a
/// path.
const NOT_PRODUCTION: [&str; 7] =
    ["tests", "testkit", "bench", "benches", "fuzz", "loom", "examples"];
/// Those of them that are tests. Fixtures, fuzz targets and models are part of what tests a change.
const TESTS: [&str; 5] = ["tests", "testkit", "benches", "fuzz", "loom"];
/// Features under which a crate builds its own test support.
const TEST_FEATURES: [&str; 3] = ["fuzz", "testing", "conformance"];

/// A path inside a crate: the segments behind `crate`.
pub(crate) type Inside = Vec<String>;

/// What one file of Rust says.
#[derive(Default)]
pub(crate) struct Module {
    /// Where it is, relative to the checkout.
    pub(crate) file: PathBuf,
    /// Its path inside the crate.
    pub(crate) path: Inside,
    /// Names that it imports or exports: name, where it leads.
    pub(crate) imports: Vec<(String, Vec<String>)>,
    /// What it imports with a star.
    pub(crate) globs: Vec<Vec<String>>,
    /// Paths in its code.
    pub(crate) paths: Vec<Vec<String>>,
    /// Names of its own items.
    pub(crate) items: Vec<String>,
}

/// One crate: its modules by path. Modules inside a file have entries of their own, with the same
/// file.
pub(crate) struct Crate {
    pub(crate) name: String,
    pub(crate) modules: BTreeMap<Inside, Module>,
}

/// Counts over the whole checkout.
#[derive(Default)]
pub(crate) struct Sources {
    pub(crate) crates: Vec<Crate>,
    pub(crate) production_lines: usize,
    /// Lines of headers and scripts.
    pub(crate) other_lines: usize,
    pub(crate) test_lines: usize,
    /// Production files of Rust and their lines.
    pub(crate) files: Vec<(PathBuf, usize)>,
    /// Functions of production code: file, first line, lines.
    pub(crate) functions: Vec<(PathBuf, usize, usize)>,
    /// Production files with the word `unsafe`.
    pub(crate) with_unsafe: Vec<PathBuf>,
}

impl Sources {
    /// Reads the checkout.
    pub(crate) fn read(root: &Path) -> Self {
        let mut sources = Self::default();
        let mut listed = Vec::new();
        list(root, Path::new(""), &mut listed);
        listed.sort();
        let is_package =
            |file: &&PathBuf| file.file_name().is_some_and(|name| name == "Cargo.toml");
        let mut seen = BTreeMap::new();
        for package in listed.iter().filter(is_package).filter_map(|file| file.parent()) {
            for start in ["src/lib.rs", "src/main.rs"] {
                let file = package.join(start);
                if kind(&file) == Kind::Production && root.join(&file).is_file() {
                    let mut reader = Reader { root, seen: &mut seen, sources: &mut sources };
                    let modules = reader.crate_at(&file);
                    let mut name = package.display().to_string();
                    if start.ends_with("main.rs") {
                        name += ", main";
                    }
                    sources.crates.push(Crate { name, modules });
                }
            }
        }
        for file in &listed {
            let lines = count(&root.join(file));
            match (kind(file), seen.get(file)) {
                (Kind::Production, Some(tests)) => {
                    sources.production_lines += lines - tests;
                    sources.test_lines += tests;
                    if *tests < lines {
                        sources.files.push((file.clone(), lines));
                    }
                }
                (Kind::Production, None) => sources.other_lines += lines,
                (Kind::Test, _) => sources.test_lines += lines,
                (Kind::Other, _) => {}
            }
        }
        sources
    }
}

#[derive(PartialEq, Eq, Clone, Copy)]
enum Kind {
    Production,
    Test,
    Other,
}

fn kind(file: &Path) -> Kind {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let script = file.starts_with("scripts") && ending.is_empty() || file.starts_with(".ci");
    let source = script || matches!(ending, "rs" | "c" | "cpp" | "h" | "sh");
    let within = |folders: &[&str]| {
        file.parent()
            .is_some_and(|folder| folder.iter().any(|part| folders.iter().any(|one| part == *one)))
    };
    if !source || name.contains("_generated.") {
        Kind::Other
    } else if within(&TESTS) {
        Kind::Test
    } else if within(&NOT_PRODUCTION) {
        Kind::Other
    } else {
        Kind::Production
    }
}

fn list(root: &Path, folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(root.join(folder)).expect("a folder of the checkout can be read");
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let path = folder.join(&name);
        let hidden = name.as_encoded_bytes().first() == Some(&b'.') && name != ".ci";
        if entry.path().is_dir() {
            if !hidden && name != "target" && name != "out" {
                list(root, &path, found);
            }
        } else if !hidden {
            found.push(path);
        }
    }
}

fn count(file: &Path) -> usize {
    fs::read_to_string(file).map_or(0, |text| text.lines().count())
}

/// Follows the modules of a crate from its first file.
struct Reader<'a> {
    root: &'a Path,
    /// Files that a crate has: how many of their lines are tests.
    seen: &'a mut BTreeMap<PathBuf, usize>,
    sources: &'a mut Sources,
}

/// A file that is still to be read.
struct Next {
    file: PathBuf,
    path: Inside,
    test: bool,
}

impl Reader<'_> {
    fn crate_at(&mut self, start: &Path) -> BTreeMap<Inside, Module> {
        let mut modules = BTreeMap::new();
        let mut next = vec![Next { file: start.to_owned(), path: Vec::new(), test: false }];
        while let Some(one) = next.pop() {
            let text = fs::read_to_string(self.root.join(&one.file))
                .unwrap_or_else(|error| panic!("{}: {error}", one.file.display()));
            let parsed = syn::parse_file(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", one.file.display()));
            let lines = text.lines().count();
            let mut found = Found::default();
            found.modules.push(Module {
                file: one.file.clone(),
                path: one.path.clone(),
                ..Module::default()
            });
            found.visit_file(&parsed);
            let tests = if one.test { lines } else { found.test_lines.min(lines) };
            self.seen.insert(one.file.clone(), tests);
            if !one.test && says_unsafe(&text) {
                self.sources.with_unsafe.push(one.file.clone());
            }
            let functions = found.functions.into_iter();
            if !one.test {
                let placed = functions.map(|(line, lines)| (one.file.clone(), line, lines));
                self.sources.functions.extend(placed);
            }
            for (path, place, test) in found.files {
                if let Some(file) = self.file_of(&one.file, &path[one.path.len()..], place) {
                    next.push(Next { file, path, test: one.test || test });
                }
            }
            if !one.test {
                modules.extend(found.modules.into_iter().map(|one| (one.path.clone(), one)));
            }
        }
        modules
    }

    /// The file of the module `names`, which `file` declares.
    fn file_of(&self, file: &Path, names: &[String], place: Option<String>) -> Option<PathBuf> {
        let beside = file.parent()?;
        let stem = file.file_stem()?.to_str()?;
        if let Some(place) = place {
            return Some(clean(&beside.join(place)));
        }
        let base = match stem {
            "lib" | "main" | "mod" => beside.to_owned(),
            stem => beside.join(stem),
        };
        let (last, inline) = names.split_last()?;
        let folder = inline.iter().fold(base, |folder, name| folder.join(name));
        let flat = folder.join(format!("{last}.rs"));
        let nested = folder.join(last).join("mod.rs");
        [flat, nested].into_iter().find(|file| self.root.join(file).is_file())
    }
}

/// The path without `..`.
fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path {
        if part == ".." {
            clean.pop();
        } else {
            clean.push(part);
        }
    }
    clean
}

/// What is found in one file.
#[derive(Default)]
struct Found {
    test_lines: usize,
    functions: Vec<(usize, usize)>,
    /// Modules of this file; the last is the one that is being read.
    modules: Vec<Module>,
    /// Modules in files of their own: path, `#[path]`, only for tests.
    files: Vec<(Inside, Option<String>, bool)>,
}

impl Found {
    fn module(&mut self) -> &mut Module {
        self.modules.last_mut().expect("the file itself is a module")
    }

    fn add_use(&mut self, tree: &syn::UseTree, before: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.add_use(&path.tree, before);
                before.pop();
            }
            syn::UseTree::Name(name) => self.add_name(&name.ident.to_string(), None, before),
            syn::UseTree::Rename(name) => {
                let to = name.rename.to_string();
                self.add_name(&name.ident.to_string(), Some(to), before);
            }
            syn::UseTree::Glob(_) => {
                let path = before.clone();
                self.module().globs.push(path);
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_use(tree, before);
                }
            }
        }
    }

    fn add_name(&mut self, name: &str, rename: Option<String>, before: &[String]) {
        let mut path = before.to_vec();
        if name != "self" {
            path.push(name.to_owned());
        }
        let Some(last) = rename.or_else(|| path.last().cloned()) else { return };
        self.module().imports.push((last, path));
    }

    /// Paths in what a macro is given.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
                TokenTree::Ident(word) => {
                    if colons != 2 {
                        self.end_path(&mut path);
                    }
                    path.push(word.to_string());
                    colons = 0;
                }
                other => {
                    self.end_path(&mut path);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.add_tokens(group.stream());
                    }
                }
            }
        }
        self.end_path(&mut path);
    }

    fn end_path(&mut self, path: &mut Vec<String>) {
        let path = std::mem::take(path);
        if path.len() > 1 {
            self.module().paths.push(path);
        }
    }

    /// Whether the item is for tests only; its lines are counted then.
    fn skips(&mut self, attributes: &[syn::Attribute], span: proc_macro2::Span) -> bool {
        let only = attributes.iter().any(for_tests);
        if only {
            self.test_lines += length(span);
        }
        only
    }
}

/// Whether code, and not only a comment or a text, has the word.
fn says_unsafe(text: &str) -> bool {
    text.lines().any(|line| {
        let code = line.split("//").next().unwrap_or_default();
        let code = code.split('"').step_by(2).collect::<Vec<_>>().join(" ");
        code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe")
    })
}

fn length(span: proc_macro2::Span) -> usize {
    span.end().line + 1 - span.start().line
}

/// `#[cfg(test)]`, `#[test]`, and what only a feature for tests builds.
fn for_tests(attribute: &syn::Attribute) -> bool {
    if attribute.path().is_ident("test") {
        return true;
    }
    let syn::Meta::List(list) = &attribute.meta else { return false };
    list.path.is_ident("cfg") && names_tests(&list.tokens)
}

fn names_tests(tokens: &TokenStream) -> bool {
    let text = tokens.to_string();
    if text.contains("not") {
        return false;
    }
    let features = TEST_FEATURES.iter().any(|name| text.contains(&format!("\"{name}\"")));
    features || text.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
}

fn attributes_of(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn name_of(item: &syn::Item) -> Option<&syn::Ident> {
    match item {
        syn::Item::Const(item) => Some(&item.ident),
        syn::Item::Enum(item) => Some(&item.ident),
        syn::Item::Fn(item) => Some(&item.sig.ident),
        syn::Item::Macro(item) => item.ident.as_ref(),
        syn::Item::Static(item) => Some(&item.ident),
        syn::Item::Struct(item) => Some(&item.ident),
        syn::Item::Trait(item) => Some(&item.ident),
        syn::Item::Type(item) => Some(&item.ident),
        syn::Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}

impl<'ast> Visit<'ast> for Found {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let declares = matches!(item, syn::Item::Mod(module) if module.content.is_none());
        if !declares && self.skips(attributes_of(item), item.span()) {
            return;
        }
        if let Some(name) = name_of(item) {
            let name = name.to_string();
            self.module().items.push(name);
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let mut path = self.module().path.clone();
        path.push(module.ident.to_string());
        if let Some((_, items)) = &module.content {
            let file = self.module().file.clone();
            let at = self.modules.len() - 1;
            self.modules.push(Module { file, path, ..Module::default() });
            for item in items {
                self.visit_item(item);
            }
            // What was read stays; the module around it is the last one again.
            self.modules[at..].rotate_left(1);
            return;
        }
        let place = module.attrs.iter().find(|one| one.path().is_ident("path")).and_then(|one| {
            let syn::Meta::NameValue(pair) = &one.meta else { return None };
            let syn::Expr::Lit(text) = &pair.value else { return None };
            let syn::Lit::Str(text) = &text.lit else { return None };
            Some(text.value())
        });
        let test = module.attrs.iter().any(for_tests);
        self.files.push((path, place, test));
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_use(&item.tree, &mut Vec::new());
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.functions.push((item.sig.span().start().line, body(&item.sig, &item.block)));
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if self.skips(&item.attrs, item.span()) {
            return;
        }
        self.functions.push((item.sig.span().start().line, body(&item.sig, &item.block)));
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.functions.push((item.sig.span().start().line, body(&item.sig, block)));
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 && path.leading_colon.is_none() {
            let names = path.segments.iter().map(|part| part.ident.to_string()).collect();
            self.module().paths.push(names);
        }
        visit::visit_path(self, path);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.add_tokens(called.tokens.clone());
        visit::visit_macro(self, called);
    }
}

/// Lines of a function, from its name to its last brace.
fn body(signature: &syn::Signature, block: &syn::Block) -> usize {
    block.span().end().line + 1 - signature.span().start().line
}
