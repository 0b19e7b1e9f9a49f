//! The committed JSON Schema is the one that the record types make.
//!
//! `make schema` runs this test with `HEADSPACE_WRITE_SCHEMA=1`, which writes the file first.

use std::path::Path;

use headspace_exporters::encode::schema::json_schema_text;

#[test]
fn the_committed_schema_is_the_one_of_the_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/schema/headspace-1.schema.json");
    let generated = json_schema_text().unwrap();
    if std::env::var_os("HEADSPACE_WRITE_SCHEMA").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &generated).unwrap();
    }

    let committed = std::fs::read_to_string(&path).unwrap_or_default();

    assert!(
        committed == generated,
        "`docs/schema/headspace-1.schema.json` differs from the record types: run `make schema`"
    );
}
