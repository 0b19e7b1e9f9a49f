//! Finds files of a crate that import each other in a cycle.
//!
//! A module may import its own submodules, and they may import it: together they are one part.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::paths::paths;

type Module = Vec<String>;

/// The cycles in the files of a crate, one sentence each. A file is its module, such as
/// `["crate", "batch_source", "probe"]`, and its source.
pub(crate) fn cycles(files: &BTreeMap<Module, String>) -> Vec<String> {
    let imports: BTreeMap<&Module, BTreeSet<&Module>> = (files.iter())
        .map(|(module, source)| (module, imports(module, source, files)))
        .collect();
    let mut found = Vec::new();
    let mut in_cycle = BTreeSet::new();
    for module in files.keys() {
        if in_cycle.contains(module) {
            continue;
        }
        if let Some(cycle) = shortest_cycle(module, &imports) {
            let names: Vec<String> = cycle.iter().map(|module| module.join("::")).collect();
            found.push(format!("a cycle of imports: {}", names.join(" → ")));
            in_cycle.extend(cycle);
        }
    }
    found
}

/// The other files whose items a file names, outside its tests.
fn imports<'a>(
    module: &Module,
    source: &str,
    files: &'a BTreeMap<Module, String>,
) -> BTreeSet<&'a Module> {
    let named = paths(source, module).unwrap_or_default();
    let is_other = |other: &&Module| !(other.starts_with(module) || module.starts_with(other));
    let outside_tests = named.iter().filter(|path| !path.in_tests);
    let file_of = |segments: &[String]| {
        let prefixes = (1..=segments.len()).rev();
        let mut known = prefixes.filter_map(|length| files.get_key_value(&segments[..length]));
        known.next().map(|(module, _)| module)
    };
    let targets = outside_tests.filter_map(|path| file_of(&path.segments));
    targets.filter(is_other).collect()
}

/// The shortest way from a file back to itself.
fn shortest_cycle<'a>(
    start: &'a Module,
    imports: &BTreeMap<&'a Module, BTreeSet<&'a Module>>,
) -> Option<Vec<&'a Module>> {
    let mut before: BTreeMap<&Module, &Module> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(module) = queue.pop_front() {
        for next in imports.get(module).into_iter().flatten() {
            if *next == start {
                let mut way = vec![start, module];
                while let Some(earlier) = before.get(way[way.len() - 1]) {
                    way.push(earlier);
                }
                way.reverse();
                return Some(way);
            }
            if !before.contains_key(next) {
                before.insert(next, module);
                queue.push_back(next);
            }
        }
    }
    None
}

#[test]
fn the_search_finds_a_cycle_and_accepts_a_parent_with_its_child() {
    let module = |text: &str| text.split("::").map(ToOwned::to_owned).collect::<Module>();
    let files = |sources: &[(&str, &str)]| {
        let files = sources.iter();
        files
            .map(|(name, source)| (module(name), (*source).to_owned()))
            .collect()
    };
    let good = files(&[
        ("crate", "mod a; mod b;"),
        ("crate::a", "use crate::b::B; mod inner;"),
        ("crate::a::inner", "use super::A;"),
        ("crate::b", "#[cfg(test)] mod tests { use crate::a::A; }"),
    ]);
    assert_eq!(cycles(&good), Vec::<String>::new());

    let bad = files(&[
        ("crate::a", "use crate::b::B;"),
        ("crate::b", "fn f() -> super::c::C { todo!() }"),
        ("crate::c", "use crate::{a::A, d::D};"),
        ("crate::d", ""),
    ]);
    assert_eq!(
        cycles(&bad),
        ["a cycle of imports: crate::a → crate::b → crate::c → crate::a"]
    );
}
