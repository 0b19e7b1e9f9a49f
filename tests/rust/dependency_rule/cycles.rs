//! Finds files of a crate that import each other in a cycle.
//!
//! A file imports the files that define the names it uses. If a file only re-exports a name, for example with
//! `pub use`, the search follows its `use` statement (except `*`).
//!
//! A module and its submodules may import each other: together they are one part. A cycle is accepted if all
//! its files are in the part of one of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::slice;

use super::paths::{Named, paths};

type Module = Vec<String>;

/// Maximum number of `use` statements that the search follows for one path. It ends the search in circular imports.
const MAX_USES: usize = 16;

/// The paths that a file names, and the full paths of the names that it imports.
struct File {
    named: Vec<Named>,
    imported: BTreeMap<String, Module>,
}

type Files = BTreeMap<Module, File>;

/// The cycles in the files of a crate, one sentence each. If cycles share a file, only the shortest is reported.
///
/// `sources` maps the module of each file, such as `["crate", "batch_source", "probe"]`, to its source.
pub(crate) fn cycles(sources: &BTreeMap<Module, String>) -> Vec<String> {
    let files: Files = (sources.iter())
        .map(|(module, source)| (module.clone(), read(module, source)))
        .collect();
    let imports: BTreeMap<&Module, BTreeSet<&Module>> = (files.keys())
        .map(|module| (module, imports(module, &files)))
        .collect();
    let starts = files.keys();
    let mut cycles: Vec<Vec<&Module>> = starts
        .filter_map(|module| shortest_cycle(module, &imports))
        .collect();
    cycles.sort_by_key(Vec::len);
    let mut found = Vec::new();
    let mut reported = BTreeSet::new();
    for cycle in cycles {
        if cycle.iter().any(|module| reported.contains(module)) {
            continue;
        }
        let names: Vec<String> = cycle.iter().map(|module| module.join("::")).collect();
        found.push(format!("a cycle of imports: {}", names.join(" → ")));
        reported.extend(cycle);
    }
    found
}

fn read(module: &Module, source: &str) -> File {
    let named = paths(source, module).unwrap_or_default();
    let imported = (named.iter())
        .filter_map(|path| Some((path.imported_as.clone()?, path.segments.clone())))
        .collect();
    File { named, imported }
}

/// The other files whose items a file names, outside its tests.
fn imports<'a>(module: &Module, files: &'a Files) -> BTreeSet<&'a Module> {
    let outside_tests = files[module].named.iter().filter(|path| !path.in_tests);
    outside_tests
        .filter_map(|path| defining_file(from_root(&path.segments, module, files)?, files))
        .filter(|other| *other != module)
        .collect()
}

/// Resolves a `path` in the file `module` to a path from the root of the crate. `None` if it is in another crate.
fn from_root(path: &[String], module: &Module, files: &Files) -> Option<Module> {
    let mut path = path.to_vec();
    for _ in 0..MAX_USES {
        let (first, rest) = path.split_first()?;
        if first == "crate" {
            return Some(path);
        }
        let child = [module.as_slice(), slice::from_ref(first)].concat();
        let submodule = files.get_key_value(&child).map(|(name, _)| name);
        let target = submodule.or_else(|| files[module].imported.get(first))?;
        path = [target.as_slice(), rest].concat();
    }
    None
}

/// The file that defines the item at a path from the root of the crate.
fn defining_file(mut path: Module, files: &Files) -> Option<&Module> {
    let mut found = None;
    for _ in 0..MAX_USES {
        let mut lengths = (1..=path.len()).rev();
        let Some((module, file)) = lengths.find_map(|n| files.get_key_value(&path[..n])) else {
            break;
        };
        found = Some(module);
        let Some((name, rest)) = path[module.len()..].split_first() else {
            break;
        };
        let imported = file.imported.get(name);
        let Some(target) = imported.and_then(|target| from_root(target, module, files)) else {
            break;
        };
        path = [target.as_slice(), rest].concat();
    }
    found
}

/// The shortest cycle through a file that leaves the part of the file, and does not pass through its parents.
fn shortest_cycle<'a>(
    start: &'a Module,
    imports: &BTreeMap<&'a Module, BTreeSet<&'a Module>>,
) -> Option<Vec<&'a Module>> {
    // The key is a file, and whether the path to it has left the part. The value is the previous file on the path.
    let mut before: BTreeMap<(&Module, bool), (&Module, bool)> = BTreeMap::new();
    let mut queue = VecDeque::from([(start, false)]);
    while let Some(at @ (module, has_left)) = queue.pop_front() {
        for next in imports.get(module).into_iter().flatten() {
            if *next == start && has_left {
                let ways = std::iter::successors(Some(&at), |at| before.get(at));
                let mut cycle: Vec<&Module> = ways.map(|(module, _)| *module).collect();
                cycle.reverse();
                cycle.push(start);
                return Some(cycle);
            }
            let reached = (*next, has_left || !next.starts_with(start));
            if !start.starts_with(next) && !before.contains_key(&reached) {
                before.insert(reached, at);
                queue.push_back(reached);
            }
        }
    }
    None
}

fn cycles_of(sources: &[(&str, &str)]) -> Vec<String> {
    let module = |text: &str| text.split("::").map(ToOwned::to_owned).collect::<Module>();
    let sources = (sources.iter())
        .map(|(name, source)| (module(name), (*source).to_owned()))
        .collect();
    cycles(&sources)
}

#[test]
fn the_search_finds_a_cycle_and_accepts_a_parent_with_its_children() {
    let good = cycles_of(&[
        ("crate", "mod a; mod b; pub use a::A;"),
        (
            "crate::a",
            "use crate::b::B; mod inner; pub use self::inner::I;",
        ),
        (
            "crate::a::inner",
            "use super::A; use super::other::O; use crate::C;",
        ),
        ("crate::a::other", "use super::A;"),
        ("crate::b", "#[cfg(test)] mod tests { use crate::a::A; }"),
    ]);
    assert_eq!(good, Vec::<String>::new());

    let bad = cycles_of(&[
        ("crate::a", "use crate::b::B;"),
        ("crate::b", "fn f() -> super::c::C { todo!() }"),
        ("crate::c", "use crate::{a::A, d::D};"),
        ("crate::d", ""),
    ]);
    assert_eq!(
        bad,
        ["a cycle of imports: crate::a → crate::b → crate::c → crate::a"]
    );
}

#[test]
fn a_name_that_a_parent_passes_on_belongs_to_the_file_that_defines_it() {
    for passed_on in [
        "pub(super) use self::inner::attribute;",
        "mod inner; pub use inner::{attribute, Other};",
        "use crate::attribution::inner::work as attribute;",
        "use self::inner::{self as below}; pub use below::attribute;",
    ] {
        let found = cycles_of(&[
            ("crate::attribution", passed_on),
            ("crate::attribution::inner", "use crate::summary::Facts;"),
            ("crate::summary", "use super::attribution::attribute;"),
        ]);
        assert_eq!(
            found,
            [
                "a cycle of imports: crate::attribution::inner → crate::summary → crate::attribution::inner"
            ],
            "{passed_on}"
        );
    }

    let by_the_name_of_its_module = cycles_of(&[
        ("crate::a", "use crate::m; fn f(_: m::X) {}"),
        ("crate::m", "pub use x::{Y as X};"),
        ("crate::m::x", "use crate::a::A;"),
    ]);
    assert_eq!(
        by_the_name_of_its_module,
        ["a cycle of imports: crate::a → crate::m::x → crate::a"]
    );
}

#[test]
fn a_cycle_that_leaves_a_parent_with_its_children_is_found() {
    let through_the_child = cycles_of(&[
        ("crate::a", "use self::inner::I;"),
        ("crate::a::inner", "use crate::b::B;"),
        ("crate::b", "use crate::a::A;"),
    ]);
    assert_eq!(
        through_the_child,
        ["a cycle of imports: crate::a → crate::a::inner → crate::b → crate::a"]
    );

    let through_the_parent = cycles_of(&[
        ("crate::a", "use crate::b::B;"),
        ("crate::a::inner", "use super::A;"),
        ("crate::b", "use crate::a::inner::I;"),
    ]);
    assert_eq!(
        through_the_parent,
        ["a cycle of imports: crate::a → crate::b → crate::a::inner → crate::a"]
    );
}
