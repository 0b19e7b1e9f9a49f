//! Generates the JSON Schemas of a record and of a comparison from the Rust types.
//!
//! A schema describes the output: a field that is always present is required, and one that may be
//! absent or null is marked as such. Programs outside the project validate their input with it.

use headspace_agent::model::Record;
use headspace_agent::model::comparison::{self, ComparisonRecord};
use headspace_agent::model::record::SCHEMA;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

/// The schema of one line.
pub fn json_schema() -> Value {
    schema_of::<Record>("A record of headspace: one line of a run's file", SCHEMA)
}

/// The schema of what `headspace compare --json` prints.
pub fn comparison_json_schema() -> Value {
    let title = "How two sides of runs differ: the output of `headspace compare --json`";
    schema_of::<ComparisonRecord>(title, comparison::SCHEMA)
}

fn schema_of<T: JsonSchema>(title: &str, version: &str) -> Value {
    let generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    let mut schema = generator.into_root_schema_for::<T>();
    schema.insert("title".to_owned(), json!(title));
    let mut schema = schema.to_value();
    // The only value in this version, which the Rust type does not express.
    if let Some(field) = schema.pointer_mut("/properties/schema") {
        field["const"] = json!(version);
    }
    schema
}

/// A schema as the text of its file.
///
/// # Errors
///
/// Returns an error if serde cannot serialize the schema, which does not happen for any schema.
pub fn schema_text(schema: &Value) -> serde_json::Result<String> {
    serde_json::to_string_pretty(schema).map(|text| text + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_names_its_version_and_has_one_of_the_kinds() {
        let schema = json_schema();

        assert_eq!(schema["properties"]["schema"]["const"], "headspace/1.1");
        let kinds: Vec<_> = schema["oneOf"]
            .as_array()
            .unwrap()
            .iter()
            .map(|kind| kind["properties"]["kind"]["const"].as_str().unwrap())
            .collect();
        assert_eq!(
            kinds,
            [
                "run", "tick", "epoch", "probe", "notice", "stacks", "summary"
            ]
        );
    }

    #[test]
    fn a_summary_has_every_field_and_null_where_nothing_was_measured() {
        let summary = &json_schema()["$defs"]["SummaryRecord"];

        let required = summary["required"].as_array().unwrap();
        for field in [
            "throughput_samples_per_s",
            "headspace_pct",
            "remedies",
            "overhead_pct",
        ] {
            assert!(required.contains(&json!(field)), "{field}");
        }
        assert_eq!(
            summary["properties"]["headspace_pct"]["type"],
            json!(["number", "null"])
        );
    }
}
