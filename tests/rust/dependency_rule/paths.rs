//! The paths that a source file names, read from its tokens: comments and strings don't count,
//! `self::` and `super::` are resolved, and `{..}` groups are spread out.

use std::path::Path;
use std::str::FromStr;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A path of two segments or more that the source names, resolved.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Named {
    /// Starts at `crate` for a path within the crate, else at a crate or a local name.
    pub(crate) segments: Vec<String>,
    /// Inside a `mod tests`, or in a file of one.
    pub(crate) in_tests: bool,
}

/// Every path of two segments or more that `source` names. `module` is where the file stands,
/// `["crate", "batch_source", "replay"]`.
pub(crate) fn paths(source: &str, module: &[String]) -> Result<Vec<Named>, String> {
    let tokens = TokenStream::from_str(source).map_err(|e| e.to_string())?;
    let mut found = Vec::new();
    let in_tests = module
        .last()
        .is_some_and(|name| name == "tests" || name.ends_with("_tests"));
    walk(tokens, module, in_tests, &mut found);
    Ok(found)
}

fn walk(tokens: TokenStream, module: &[String], in_tests: bool, found: &mut Vec<Named>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match token {
            TokenTree::Ident(word) if word == "mod" => {
                if let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) =
                    (tokens.get(at + 1), tokens.get(at + 2))
                {
                    let inner = [module, &[name.to_string()]].concat();
                    walk(body.stream(), &inner, in_tests || name == "tests", found);
                    at += 3;
                } else {
                    at += 1;
                }
            }
            TokenTree::Ident(_) => at = path(&tokens, at, &[], module, in_tests, found),
            TokenTree::Group(group) => {
                walk(group.stream(), module, in_tests, found);
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
    module: &[String],
    in_tests: bool,
    found: &mut Vec<Named>,
) -> usize {
    let mut segments = prefix.to_vec();
    while let Some(TokenTree::Ident(word)) = tokens.get(at) {
        segments.push(word.to_string());
        at += 1;
        if !(is_colon(tokens.get(at)) && is_colon(tokens.get(at + 1))) {
            break;
        }
        at += 2;
        match tokens.get(at) {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                let mut next = 0;
                while next < inner.len() {
                    next = match inner[next] {
                        TokenTree::Ident(_) => {
                            path(&inner, next, &segments, module, in_tests, found)
                        }
                        _ => next + 1,
                    };
                }
                return at + 1;
            }
            Some(TokenTree::Ident(_)) => {}
            _ => break,
        }
    }
    if segments.len() > 1 {
        found.push(Named {
            segments: resolve(&segments, module),
            in_tests,
        });
    }
    at
}

fn is_colon(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Punct(mark)) if mark.as_char() == ':')
}

/// `self::` and `super::` as seen from `module`.
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
