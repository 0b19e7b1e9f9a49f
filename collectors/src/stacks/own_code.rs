//! Tells the user's code from libraries, and keeps the names of files and functions between readings.

use std::collections::HashMap;
use std::sync::Arc;

use headspace_agent::model::stack::{Frame, Origin};

/// Maximum number of names of files and functions that are kept. Programs that generate code can have any
/// number of them.
const MAX_NAMES: usize = 16_384;

/// Ends of the folders of installed packages.
const PACKAGES: [&str; 2] = ["site-packages/", "dist-packages/"];

/// The names that were seen, and the folders of libraries.
pub(super) struct OwnCode {
    /// Folders of the standard library and of installed packages. Code below them is not the user's own.
    libraries: Vec<String>,
    /// Each file, and whose code it is.
    files: HashMap<String, (Arc<str>, Origin)>,
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
        let (file, origin) = self.file(&frame.filename);
        if !self.functions.contains_key(&frame.name) {
            // Python's qualified names say `outer.<locals>.inner`.
            let name = frame.name.replace(".<locals>", "").into();
            self.functions.insert(frame.name.clone(), name);
        }
        Frame {
            file,
            line: u32::try_from(frame.line).unwrap_or(0),
            function: Arc::clone(&self.functions[&frame.name]),
            origin,
        }
    }

    /// The path of a file as a shared name, and whose code the file is.
    pub(super) fn file(&mut self, path: &str) -> (Arc<str>, Origin) {
        if self.files.len() + self.functions.len() > MAX_NAMES {
            self.files.clear();
            self.functions.clear();
        }
        if let Some(known) = self.files.get(path) {
            return known.clone();
        }
        let known = (path.into(), self.origin(path));
        self.files.insert(path.to_owned(), known.clone());
        known
    }

    /// Whose code a file is. The innermost folder of libraries decides: packages are installed in a folder of the
    /// standard library, and headspace in a folder of packages. Generated code is in no file, such as `<string>`, or in
    /// the cache of `torch.compile`.
    fn origin(&self, file: &str) -> Origin {
        let folders = self.libraries.iter();
        let folders = folders.filter(|folder| file.starts_with(folder.as_str()));
        match folders.max_by_key(|folder| folder.len()) {
            None if file.starts_with('<') || file.contains("/torchinductor_") => Origin::Other,
            None => Origin::Own,
            Some(folder) if PACKAGES.iter().any(|end| folder.ends_with(end)) => Origin::Package,
            Some(_) => Origin::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_folder_of_libraries_tells_whose_code_a_file_is() {
        let libraries = [
            "/usr/lib/python3.11/",
            "/usr/lib/python3.11/site-packages/",
            "/usr/lib/python3.11/site-packages/headspace/",
        ];
        let code = OwnCode::new(libraries.map(str::to_owned).to_vec());
        for (file, origin) in [
            ("/home/me/train.py", Origin::Own),
            ("/usr/lib/python3.11/json/decoder.py", Origin::Other),
            (
                "/usr/lib/python3.11/site-packages/torch/utils.py",
                Origin::Package,
            ),
            (
                "/usr/lib/python3.11/site-packages/headspace/_loops.py",
                Origin::Other,
            ),
            ("<frozen importlib._bootstrap>", Origin::Other),
            ("/tmp/torchinductor_me/b7/cb77qk.py", Origin::Other),
        ] {
            assert_eq!(code.origin(file), origin, "{file}");
        }
    }
}
