//! Tells the user's code from libraries, and keeps the names of files and functions between readings.

use std::collections::HashMap;
use std::sync::Arc;

use headspace_agent::model::stack::Frame;

/// Maximum number of names of files and functions that are kept. Programs that generate code can have any
/// number of them.
const MAX_NAMES: usize = 16_384;

/// The names that were seen, and the folders of libraries.
pub(super) struct OwnCode {
    /// Folders of the standard library and of installed packages. Code below them is not the user's own.
    libraries: Vec<String>,
    /// Each file, and whether it is the user's own.
    files: HashMap<String, (Arc<str>, bool)>,
    functions: HashMap<String, Arc<str>>,
}

impl OwnCode {
    pub(super) fn new(libraries: Vec<String>) -> Self {
        Self {
            libraries,
            files: HashMap::new(),
            functions: HashMap::new(),
        }
    }

    /// The frame with shared names.
    pub(super) fn frame(&mut self, frame: &py_spy::Frame) -> Frame {
        let (file, is_own) = self.file(&frame.filename);
        if !self.functions.contains_key(&frame.name) {
            // Python's qualified names say `outer.<locals>.inner`.
            let name = frame.name.replace(".<locals>", "").into();
            self.functions.insert(frame.name.clone(), name);
        }
        Frame {
            file,
            line: u32::try_from(frame.line).unwrap_or(0),
            function: Arc::clone(&self.functions[&frame.name]),
            is_own,
        }
    }

    /// The path of a file as a shared name, and whether the file is the user's own.
    pub(super) fn file(&mut self, path: &str) -> (Arc<str>, bool) {
        if self.files.len() + self.functions.len() > MAX_NAMES {
            self.files.clear();
            self.functions.clear();
        }
        if let Some(known) = self.files.get(path) {
            return known.clone();
        }
        let known = (path.into(), self.is_own(path));
        self.files.insert(path.to_owned(), known.clone());
        known
    }

    /// Whether a file is the user's own. Generated code, such as `<string>`, is not.
    fn is_own(&self, file: &str) -> bool {
        let is_library = |folder: &String| file.starts_with(folder.as_str());
        !file.starts_with('<') && !self.libraries.iter().any(is_library)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_generated_code_are_not_the_users() {
        let code = OwnCode::new(vec!["/usr/lib/python3.11/".to_owned()]);
        assert!(code.is_own("/home/me/train.py"));
        assert!(!code.is_own("/usr/lib/python3.11/json/decoder.py"));
        assert!(!code.is_own("<frozen importlib._bootstrap>"));
    }
}
