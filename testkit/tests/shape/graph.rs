//! Which module of a crate uses which: circles, and imports that run upward.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::sources::{Crate, Inside, Module};

/// How often a name may be exported again before it is given up.
const HOPS: usize = 16;

/// Files of a crate and the files that each uses. A name that a module exports again leads to where
/// it is defined.
pub(crate) fn uses(one: &Crate) -> BTreeMap<PathBuf, BTreeSet<PathBuf>> {
    let mut graph: BTreeMap<PathBuf, BTreeSet<PathBuf>> = BTreeMap::new();
    for module in one.modules.values() {
        let used = graph.entry(module.file.clone()).or_default();
        let imported = module.imports.iter().map(|(_, path)| path);
        for path in imported.chain(&module.globs).chain(&module.paths) {
            let target = inside(one, module, path).and_then(|path| resolve(one, &path, HOPS));
            if let Some(target) = target.filter(|target| target.file != module.file) {
                used.insert(target.file.clone());
            }
        }
    }
    graph
}

/// Where a path written in `module` begins in the crate; `None` when it leads to another crate.
fn inside(one: &Crate, module: &Module, path: &[String]) -> Option<Inside> {
    let (first, rest) = path.split_first()?;
    let mut from = module.path.clone();
    match first.as_str() {
        "crate" => from.clear(),
        "self" => {}
        "super" => {
            from.pop()?;
            let mut rest = rest;
            while let [again, behind @ ..] = rest
                && again == "super"
            {
                from.pop()?;
                rest = behind;
            }
            from.extend_from_slice(rest);
            return Some(from);
        }
        name => {
            from.push(name.to_owned());
            if !one.modules.contains_key(&from) {
                // A module that was imported by name.
                let (_, full) = module.imports.iter().find(|(import, _)| import == name)?;
                if full.first() == path.first() {
                    return None;
                }
                from = inside(one, module, full)?;
            }
        }
    }
    from.extend_from_slice(rest);
    Some(from)
}

/// The module that a path from the crate's top leads to, or whose item it names.
fn resolve<'a>(one: &'a Crate, path: &[String], hops: usize) -> Option<&'a Module> {
    let mut at = one.modules.get(&Vec::new())?;
    for (index, name) in path.iter().enumerate() {
        let rest = &path[index + 1..];
        if let Some((_, full)) = at.imports.iter().find(|(import, _)| import == name)
            && !at.items.contains(name)
            && hops > 0
            && let Some(mut full) = inside(one, at, full)
        {
            full.extend_from_slice(rest);
            return resolve(one, &full, hops - 1);
        }
        let mut below = at.path.clone();
        below.push(name.clone());
        if let Some(module) = one.modules.get(&below) {
            at = module;
            continue;
        }
        if !at.items.contains(name)
            && hops > 0
            && let Some(module) = behind_star(one, at, name, hops)
        {
            return Some(module);
        }
        break;
    }
    Some(at)
}

/// The module from which `name` comes through `use module::*`.
fn behind_star<'a>(one: &'a Crate, at: &Module, name: &String, hops: usize) -> Option<&'a Module> {
    at.globs.iter().find_map(|glob| {
        let source = resolve(one, &inside(one, at, glob)?, hops - 1)?;
        let has = source.items.contains(name);
        let hands_on = source.imports.iter().any(|(import, _)| import == name);
        let mut full = source.path.clone();
        full.push(name.clone());
        (has || hands_on).then(|| resolve(one, &full, hops - 1)).flatten()
    })
}

/// Modules that use each other in a circle, largest circle first.
pub(crate) fn circles(graph: &BTreeMap<PathBuf, BTreeSet<PathBuf>>) -> Vec<Vec<PathBuf>> {
    let reach: BTreeMap<&PathBuf, BTreeSet<&PathBuf>> =
        graph.keys().map(|from| (from, reachable(graph, from))).collect();
    let mut done = BTreeSet::new();
    let mut circles: Vec<Vec<PathBuf>> = Vec::new();
    for (from, seen) in &reach {
        let round: Vec<PathBuf> =
            seen.iter().filter(|to| reach[**to].contains(from)).map(|to| (*to).clone()).collect();
        if round.len() > 1 && done.insert(round.clone()) {
            circles.push(round);
        }
    }
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

fn reachable<'a>(
    graph: &'a BTreeMap<PathBuf, BTreeSet<PathBuf>>,
    from: &PathBuf,
) -> BTreeSet<&'a PathBuf> {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&PathBuf> = graph[from].iter().collect();
    while let Some(one) = next.pop() {
        if seen.insert(one) {
            next.extend(graph.get(one).into_iter().flatten());
        }
    }
    seen
}

/// How many storeys a crate has: the longest way down through modules, a circle being one storey.
pub(crate) fn floors(graph: &BTreeMap<PathBuf, BTreeSet<PathBuf>>) -> usize {
    let circles = circles(graph);
    let room = |file: &PathBuf| {
        let circle = circles.iter().find(|circle| circle.contains(file));
        circle.map_or_else(|| file.clone(), |circle| circle[0].clone())
    };
    let mut rooms: BTreeMap<PathBuf, BTreeSet<PathBuf>> = BTreeMap::new();
    for (from, used) in graph {
        let room_of = room(from);
        let below = used.iter().map(&room).filter(|to| *to != room_of).collect::<Vec<_>>();
        rooms.entry(room_of).or_default().extend(below);
    }
    let mut heights = BTreeMap::new();
    rooms.keys().map(|one| height(&rooms, one, &mut heights)).max().unwrap_or(0)
}

fn height(
    rooms: &BTreeMap<PathBuf, BTreeSet<PathBuf>>,
    one: &PathBuf,
    known: &mut BTreeMap<PathBuf, usize>,
) -> usize {
    if let Some(height) = known.get(one) {
        return *height;
    }
    let below = rooms.get(one).into_iter().flatten();
    let tall = 1 + below.map(|to| height(rooms, to, known)).max().unwrap_or(0);
    known.insert(one.clone(), tall);
    tall
}

/// Layers of a crate, from the bottom up: each row names files or folders below `src`.
pub(crate) type Layers = [&'static [&'static str]];

/// Imports of a module in a layer from a module in a layer above it, and files that no layer names.
pub(crate) fn upward(
    graph: &BTreeMap<PathBuf, BTreeSet<PathBuf>>,
    source: &str,
    layers: &Layers,
) -> (Vec<(PathBuf, PathBuf)>, Vec<PathBuf>) {
    let layer = |file: &PathBuf| {
        let inside = file.strip_prefix(source).ok()?;
        let named =
            |name: &&str| inside.starts_with(name) || inside == PathBuf::from(format!("{name}.rs"));
        // The longest name counts: a part of a folder may stand in a layer of its own.
        let all = layers.iter().enumerate();
        let all = all.flat_map(|(at, names)| names.iter().map(move |name| (name.len(), at, name)));
        all.filter(|(_, _, name)| named(name)).max_by_key(|(len, ..)| *len).map(|(_, at, _)| at)
    };
    let mut wrong = Vec::new();
    for (from, used) in graph {
        let own = layer(from);
        for to in used {
            if let (Some(own), Some(above)) = (own, layer(to))
                && above > own
            {
                wrong.push((from.clone(), to.clone()));
            }
        }
    }
    (wrong, graph.keys().filter(|file| layer(file).is_none()).cloned().collect())
}
