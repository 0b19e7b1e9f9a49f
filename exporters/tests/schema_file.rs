//! Checks that the committed JSON Schemas match the types.
//!
//! `make schema` runs this test with `HEADSPACE_WRITE_SCHEMA=1`, which writes the files first.

use std::path::Path;

use headspace_exporters::encode::schema::{comparison_json_schema, json_schema, schema_text};

#[test]
fn the_committed_schemas_match_the_types() {
    for (name, schema) in [
        ("headspace-1.schema.json", json_schema()),
        ("headspace-compare-1.schema.json", comparison_json_schema()),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../docs/schema")
            .join(name);
        let generated = schema_text(&schema).unwrap();
        if std::env::var_os("HEADSPACE_WRITE_SCHEMA").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &generated).unwrap();
        }

        let committed = std::fs::read_to_string(&path).unwrap_or_default();

        assert!(
            committed == generated,
            "`docs/schema/{name}` differs from the types: run `make schema`"
        );
    }
}
