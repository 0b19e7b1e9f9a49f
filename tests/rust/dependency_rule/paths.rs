//! Reads the paths that a source file names from its tokens.
//!
//! Comments and strings do not count. `self::` and `super::` are resolved, and `{..}` groups are expanded.

use std::path::Path;
use std::str::FromStr;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A path of two segments or more that the source names, resolved.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Named {
    /// Starts with `crate` for a path within the crate, otherwise with another crate or a local name.
    pub(crate) segments: Vec<String>,
    /// Whether the path is inside a `mod tests`, or in a file of such a module.
    pub(crate) in_tests: bool,
    /// The name under which the file imports the path. `None` outside `use` statements, and in inner modules.
    pub(crate) imported_as: Option<String>,
}

/// The position of tokens in the source.
#[derive(Clone, Copy)]
struct Place<'a> {
    module: &'a [String],
    in_tests: bool,
    /// Whether the tokens are outside all braces.
    at_top: bool,
    /// Whether the tokens are in a `use` statement outside all braces.
    in_use: bool,
}

/// Every path of two segments or more that `source` names. `module` is the module of the file, such as
/// `["crate", "batch_source", "replay"]`.
pub(crate) fn paths(source: &str, module: &[String]) -> Result<Vec<Named>, String> {
    let tokens = TokenStream::from_str(source).map_err(|e| e.to_string())?;
    let mut found = Vec::new();
    let in_tests = module
        .last()
        .is_some_and(|name| name == "tests" || name.ends_with("_tests"));
    let place = Place {
        module,
        in_tests,
        at_top: true,
        in_use: false,
    };
    walk(tokens, place, &mut found);
    Ok(found)
}

fn walk(tokens: TokenStream, place: Place<'_>, found: &mut Vec<Named>) {
    let inside = Place {
        at_top: false,
        ..place
    };
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match token {
            TokenTree::Ident(word) if word == "mod" => {
                if let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) =
                    (tokens.get(at + 1), tokens.get(at + 2))
                {
                    let inner = [place.module, &[name.to_string()]].concat();
                    let inside = Place {
                        module: &inner,
                        in_tests: place.in_tests || name == "tests",
                        ..inside
                    };
                    walk(body.stream(), inside, found);
                    at += 3;
                } else {
                    at += 1;
                }
            }
            TokenTree::Ident(word) if word == "use" => {
                let in_use = place.at_top;
                at = path(&tokens, at + 1, &[], Place { in_use, ..place }, found);
            }
            TokenTree::Ident(_) => at = path(&tokens, at, &[], place, found),
            TokenTree::Group(group) => {
                walk(group.stream(), inside, found);
                at += 1;
            }
            _ => at += 1,
        }
    }
}

/// Reads the path that begins at `at`, after `prefix`, and returns where it ends.
fn path(
    tokens: &[TokenTree],
    mut at: usize,
    prefix: &[String],
    place: Place<'_>,
    found: &mut Vec<Named>,
) -> usize {
    let mut segments = prefix.to_vec();
    while let Some(TokenTree::Ident(word)) = tokens.get(at) {
        segments.push(word.to_string());
        at += 1;
        if !(is_mark(tokens.get(at), ':') && is_mark(tokens.get(at + 1), ':')) {
            break;
        }
        at += 2;
        match tokens.get(at) {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                let mut next = 0;
                while next < inner.len() {
                    next = match inner[next] {
                        TokenTree::Ident(_) => path(&inner, next, &segments, place, found),
                        _ => next + 1,
                    };
                }
                return at + 1;
            }
            Some(TokenTree::Ident(_)) => {}
            _ => break,
        }
    }
    let mut imported_as = None;
    if place.in_use && !is_mark(tokens.get(at), '*') {
        // `use a::{self}` imports `a`.
        segments.pop_if(|last| last == "self");
        imported_as = segments.last().cloned();
        if is_word(tokens.get(at), "as") {
            imported_as = tokens.get(at + 1).map(ToString::to_string);
            at += 2;
        }
    }
    if segments.len() > 1 {
        found.push(Named {
            segments: resolve(&segments, place.module),
            in_tests: place.in_tests,
            imported_as,
        });
    }
    at
}

fn is_word(token: Option<&TokenTree>, word: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(found)) if found == word)
}

fn is_mark(token: Option<&TokenTree>, mark: char) -> bool {
    matches!(token, Some(TokenTree::Punct(found)) if found.as_char() == mark)
}

/// Resolves `self::` and `super::` in a path that `module` names.
fn resolve(segments: &[String], module: &[String]) -> Vec<String> {
    let ups = segments.iter().take_while(|s| *s == "super").count();
    let rest = match segments.first().map(String::as_str) {
        Some("self") => &segments[1..],
        Some("super") => &segments[ups..],
        _ => return segments.to_vec(),
    };
    [&module[..module.len().saturating_sub(ups).max(1)], rest].concat()
}

/// The module path of a file under `src/`.
pub(crate) fn module_of(file: &Path) -> Vec<String> {
    let mut module = vec!["crate".to_owned()];
    module.extend(
        file.with_extension("")
            .iter()
            .map(|part| part.to_string_lossy().into_owned()),
    );
    if matches!(
        module.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    ) {
        module.pop();
    }
    module
}
