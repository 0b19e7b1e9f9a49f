//! Files of the project that are generated from its declarations, and committed.

use std::fs;
use std::path::Path;

/// Compares a committed file with its expected content. With `HEADSPACE_BLESS=1`, writes the file first.
/// `bless` is the command that does so.
pub(crate) fn assert_is(file: &str, expected: &str, bless: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    if std::env::var_os("HEADSPACE_BLESS").is_some_and(|value| value == "1") {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, expected).unwrap();
    }

    let committed = fs::read_to_string(&path).unwrap_or_default();

    assert!(
        committed == expected,
        "{file} is out of date; run `{bless}`"
    );
}
