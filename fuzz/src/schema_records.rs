//! Makes records that have every field of the schema, with one hostile text in all of them.
//!
//! The schema (`docs/schema`) is generated from the record types. So a new field is part of these records, too, and a
//! renderer that prints it without escaping it is found. `tests/rust/hostile_records.rs` uses this file as well.

use serde_json::{Map, Value, json};

const SCHEMA: &str = include_str!("../../docs/schema/headspace-1.schema.json");

/// Objects within objects. The schema has fewer levels.
const DEEPEST: usize = 16;

/// One line for each kind of record. Each text that is not one of several codes is `text`. `variant` selects codes
/// and numbers.
pub fn lines(text: &str, rank: u32, variant: usize) -> Vec<String> {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap_or_default();
    let maker = Maker {
        definitions: &schema["$defs"],
        text,
        variant,
    };
    let kinds = schema["oneOf"].as_array().map(Vec::as_slice);
    let kinds = kinds.unwrap_or_default().iter();
    kinds
        .map(|kind| {
            let mut record = maker.object(&schema, 0);
            record.append(&mut maker.object(kind, 0));
            record.insert("rank".to_owned(), json!(rank));
            record.insert(
                "time_unix_nano".to_owned(),
                json!(1_795_253_400_000_000_000_u64),
            );
            if record.contains_key("readings") {
                record.insert("readings".to_owned(), readings(text, variant));
            }
            Value::Object(record).to_string() + "\n"
        })
        .collect()
}

/// Readings with scopes and metrics that the reader knows.
fn readings(text: &str, variant: usize) -> Value {
    json!({
        "host": {"headspace.host.cpu.utilization": 0.5, "headspace.host.cpu.usable": 4},
        "process": {"process.memory.usage": 1e9 * variant as f64},
        "tree": {"process.memory.usage": 3e9, "headspace.process.count": 3},
        "gpu:0": {
            "hw.gpu.utilization{hw.gpu.task=general}": 0.5,
            "headspace.gpu.sm.utilization{source=gpm}": 0.4,
            "hw.gpu.memory.usage": 2e9,
        },
        "thread:consumer": {"headspace.thread.run_queue.time": variant},
        format!("thread:{text}"): {"process.context_switches": 7},
        format!("disk:{text}"): {"system.disk.io{disk.io.direction=read}": 1e9},
        format!("mount:{text}"): {text: 1},
    })
}

struct Maker<'a> {
    definitions: &'a Value,
    text: &'a str,
    variant: usize,
}

impl Maker<'_> {
    /// The fields of an object: those of the schema that it refers to, and its own.
    fn object(&self, schema: &Value, depth: usize) -> Map<String, Value> {
        let mut fields = match self.referred(schema) {
            Some(referred) => self.object(referred, depth),
            None => Map::new(),
        };
        if depth < DEEPEST
            && let Some(properties) = schema["properties"].as_object()
        {
            for (name, property) in properties {
                fields.insert(name.clone(), self.value(property, depth + 1));
            }
        }
        if schema["additionalProperties"].is_object() {
            let value = self.value(&schema["additionalProperties"], depth + 1);
            fields.insert(self.text.to_owned(), value);
        }
        // Such a record cannot be true. All other numbers of a variant are equal.
        if self.variant % 3 == 1
            && let Some(least) = fields.get_mut("min_ms")
        {
            *least = json!(1e9);
        }
        fields
    }

    fn referred(&self, schema: &Value) -> Option<&Value> {
        let name = schema["$ref"].as_str()?.strip_prefix("#/$defs/")?;
        Some(&self.definitions[name])
    }

    fn value(&self, schema: &Value, depth: usize) -> Value {
        if let Some(constant) = schema.get("const") {
            return constant.clone();
        }
        for choice in ["enum", "oneOf", "anyOf"] {
            if let Some(choices) = schema[choice].as_array() {
                return self.choose(choice, choices, depth);
            }
        }
        if let Some(referred) = self.referred(schema) {
            return self.value(referred, depth);
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => kinds.first().and_then(Value::as_str),
            kind => kind.as_str(),
        };
        match kind {
            Some("object") => Value::Object(self.object(schema, depth)),
            Some("array") => self.array(schema, depth),
            Some("integer") => json!(1 + self.variant),
            Some("number") => json!(1.5 * (1 + self.variant) as f64),
            Some("boolean") => json!(self.variant.is_multiple_of(2)),
            Some("string") => json!(self.text),
            _ => Value::Null,
        }
    }

    fn choose(&self, choice: &str, choices: &[Value], depth: usize) -> Value {
        let is_null = |schema: &&Value| schema["type"] == "null";
        let choices: Vec<&Value> = choices.iter().filter(|schema| !is_null(schema)).collect();
        match choices.get(self.variant % choices.len().max(1)) {
            Some(code) if choice == "enum" => (*code).clone(),
            Some(schema) => self.value(schema, depth),
            None => Value::Null,
        }
    }

    fn array(&self, schema: &Value, depth: usize) -> Value {
        if depth >= DEEPEST {
            return json!([]);
        }
        if let Some(items) = schema["prefixItems"].as_array() {
            return items
                .iter()
                .map(|item| self.value(item, depth + 1))
                .collect();
        }
        let item = self.value(&schema["items"], depth + 1);
        Value::Array(vec![item.clone(), item])
    }
}
