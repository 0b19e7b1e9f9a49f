//! Converts sampled stacks to profiles.
//!
//! OpenTelemetry's signal is in development (`v1development`), so it is sent only on request. A record of stacks
//! has the totals of the run. A profile has what was added since the last delivered one. So the next profile makes
//! up for one that could not be delivered, and a collector that is away costs no memory.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use headspace_agent::model::record::StacksRecord;
use headspace_agent::model::{Record, RecordBody};
use headspace_agent::wording::verdict::does;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value::Value};
use opentelemetry_proto::tonic::profiles::v1development::{
    Function, KeyValueAndUnit, Line, Link, Location, Mapping, Profile, ProfilesDictionary,
    ResourceProfiles, Sample, ScopeProfiles, Stack, ValueType,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::scope;

/// The totals of the run, and those that were delivered.
#[derive(Debug, Clone, Default)]
pub struct Profiles {
    now: Totals,
    delivered: Totals,
}

/// The time of each stack until a moment.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// In nanoseconds since 1970.
    until: u64,
    nanos: BTreeMap<StackKey, i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct StackKey {
    /// The stage, or `compute`.
    place: String,
    does: &'static str,
    /// File, line and function, the innermost first.
    frames: Vec<(String, u32, String)>,
}

impl Profiles {
    /// Takes the totals of a record.
    pub fn add_record(&mut self, record: &Record) {
        match &record.body {
            RecordBody::Stacks(stacks) => self.now = totals(stacks, record.time_unix_nano),
            // The first profile begins with the run.
            RecordBody::Run(_) if self.delivered.until == 0 => {
                self.delivered.until = record.time_unix_nano;
            }
            _ => {}
        }
    }

    /// The request for what was not delivered yet, and the totals after it. `None` if there is nothing new.
    pub fn request(&self, resource: Resource) -> Option<(ExportProfilesServiceRequest, Totals)> {
        let mut tables = Tables::new();
        let samples: Vec<Sample> = (self.now.nanos.iter())
            .filter_map(|(stack, nanos)| {
                let before = self.delivered.nanos.get(stack).copied().unwrap_or_default();
                let added = nanos.saturating_sub(before);
                (added > 0).then(|| tables.sample(stack, added))
            })
            .collect();
        if samples.is_empty() {
            return None;
        }
        let from = self.delivered.until;
        let profile = Profile {
            sample_type: Some(ValueType {
                type_strindex: tables.text("wall"),
                unit_strindex: tables.text("nanoseconds"),
            }),
            samples,
            time_unix_nano: from,
            duration_nano: self.now.until.saturating_sub(from),
            ..Profile::default()
        };
        let of_scope = ScopeProfiles {
            scope: Some(scope()),
            profiles: vec![profile],
            ..ScopeProfiles::default()
        };
        let of_resource = ResourceProfiles {
            resource: Some(resource),
            scope_profiles: vec![of_scope],
            ..ResourceProfiles::default()
        };
        let request = ExportProfilesServiceRequest {
            resource_profiles: vec![of_resource],
            dictionary: Some(tables.dictionary),
        };
        Some((request, self.now.clone()))
    }

    /// Notes that everything up to these totals was delivered, or refused for ever.
    pub fn done(&mut self, totals: Totals) {
        self.delivered = totals;
    }
}

fn totals(record: &StacksRecord, until: u64) -> Totals {
    let mut nanos: BTreeMap<StackKey, i64> = BTreeMap::new();
    for stack in &record.stacks {
        let frames = stack.frames.iter().rev();
        let frames = frames.filter_map(|number| record.frames.get(*number as usize));
        let key = StackKey {
            place: stack.place().to_owned(),
            does: does(stack.kind, stack.waits_for),
            frames: frames
                .map(|frame| (frame.file.clone(), frame.line, frame.function.clone()))
                .collect(),
        };
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a cast from a float saturates"
        )]
        let added = (1e9 * stack.seconds).round() as i64;
        let total = nanos.entry(key).or_default();
        *total = total.saturating_add(added);
    }
    Totals { until, nanos }
}

/// The tables of a request. The first entry of each is empty and stands for "none", as the protocol requires.
struct Tables {
    dictionary: ProfilesDictionary,
    texts: HashMap<String, i32>,
    functions: HashMap<(i32, i32), i32>,
    locations: HashMap<(i32, u32), i32>,
    attributes: HashMap<(i32, String), i32>,
}

impl Tables {
    fn new() -> Self {
        Self {
            dictionary: ProfilesDictionary {
                mapping_table: vec![Mapping::default()],
                location_table: vec![Location::default()],
                function_table: vec![Function::default()],
                link_table: vec![Link::default()],
                string_table: vec![String::new()],
                attribute_table: vec![KeyValueAndUnit::default()],
                stack_table: vec![Stack::default()],
            },
            texts: HashMap::from([(String::new(), 0)]),
            functions: HashMap::new(),
            locations: HashMap::new(),
            attributes: HashMap::new(),
        }
    }

    fn sample(&mut self, stack: &StackKey, nanos: i64) -> Sample {
        let frames = stack.frames.iter();
        let location_indices = frames
            .map(|(file, line, function)| self.location(file, *line, function))
            .collect();
        let stack_index = next(&self.dictionary.stack_table);
        self.dictionary.stack_table.push(Stack { location_indices });
        let attributes = [
            ("headspace.stage", &*stack.place),
            ("headspace.does", stack.does),
        ];
        Sample {
            stack_index,
            attribute_indices: attributes
                .map(|(key, value)| self.attribute(key, value))
                .to_vec(),
            values: vec![nanos],
            ..Sample::default()
        }
    }

    fn text(&mut self, text: &str) -> i32 {
        let (known, texts) = (text.to_owned(), &mut self.dictionary.string_table);
        intern(&mut self.texts, texts, known, || text.to_owned())
    }

    fn location(&mut self, file: &str, line: u32, function: &str) -> i32 {
        let (name, file) = (self.text(function), self.text(file));
        let functions = &mut self.dictionary.function_table;
        let function_index = intern(&mut self.functions, functions, (name, file), || Function {
            name_strindex: name,
            filename_strindex: file,
            ..Function::default()
        });
        let locations = &mut self.dictionary.location_table;
        let known = (function_index, line);
        intern(&mut self.locations, locations, known, || Location {
            lines: vec![Line {
                function_index,
                line: line.into(),
                column: 0,
            }],
            ..Location::default()
        })
    }

    fn attribute(&mut self, key: &str, value: &str) -> i32 {
        let key_strindex = self.text(key);
        let attributes = &mut self.dictionary.attribute_table;
        let known = (key_strindex, value.to_owned());
        intern(&mut self.attributes, attributes, known, || {
            KeyValueAndUnit {
                key_strindex,
                value: Some(AnyValue {
                    value: Some(Value::StringValue(value.to_owned())),
                }),
                unit_strindex: 0,
            }
        })
    }
}

/// The index of an entry, which is added if it is new.
fn intern<K: Eq + Hash, T>(
    known: &mut HashMap<K, i32>,
    table: &mut Vec<T>,
    key: K,
    entry: impl FnOnce() -> T,
) -> i32 {
    *known.entry(key).or_insert_with(|| {
        let index = next(table);
        table.push(entry());
        index
    })
}

fn next<T>(table: &[T]) -> i32 {
    i32::try_from(table.len()).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::super::stacks::tests::example;
    use super::super::super::test_records;
    use super::*;
    use headspace_agent::model::record::RunRecord;

    fn stacks(second: u64, stacks: StacksRecord) -> Record {
        test_records::record(1_000_000_000 * second, RecordBody::Stacks(Box::new(stacks)))
    }

    fn at(index: i32) -> usize {
        usize::try_from(index).unwrap()
    }

    /// Calls, place and nanoseconds of each sample.
    fn samples(request: &ExportProfilesServiceRequest) -> Vec<(Vec<&str>, String, i64)> {
        let tables = request.dictionary.as_ref().unwrap();
        let text = |index: i32| &*tables.string_table[at(index)];
        let profile = &request.resource_profiles[0].scope_profiles[0].profiles[0];
        let sample = |sample: &Sample| {
            let stack = &tables.stack_table[at(sample.stack_index)];
            let calls = stack.location_indices.iter().map(|index| {
                let line = &tables.location_table[at(*index)].lines[0];
                text(tables.function_table[at(line.function_index)].name_strindex)
            });
            let stage = &tables.attribute_table[at(sample.attribute_indices[0])];
            assert_eq!(text(stage.key_strindex), "headspace.stage");
            let Some(Value::StringValue(place)) = &stage.value.as_ref().unwrap().value else {
                panic!("{stage:?}")
            };
            (calls.collect(), place.clone(), sample.values[0])
        };
        profile.samples.iter().map(sample).collect()
    }

    #[test]
    fn a_profile_has_what_was_added_since_the_last_delivered_one() {
        let mut profiles = Profiles::default();
        let run = RecordBody::Run(RunRecord::default());
        profiles.add_record(&test_records::record(4_000_000_000, run));
        assert!(profiles.request(Resource::default()).is_none());

        profiles.add_record(&stacks(10, example()));
        let (first, totals) = profiles.request(Resource::default()).unwrap();
        let mut found = samples(&first);
        found.sort_by_key(|sample| sample.2);
        assert_eq!(
            found,
            [
                (vec!["load"], "fetch".to_owned(), 500_000_000),
                (vec!["train"], "compute".to_owned(), 750_000_000),
                (vec!["read; all", "load"], "fetch".to_owned(), 1_500_000_000),
            ],
            "the innermost call first"
        );
        let profile = &first.resource_profiles[0].scope_profiles[0].profiles[0];
        assert_eq!(
            (profile.time_unix_nano, profile.duration_nano),
            (4_000_000_000, 6_000_000_000)
        );

        profiles.done(totals);
        assert!(profiles.request(Resource::default()).is_none());
        let mut more = example();
        more.stacks[1].seconds = 1.0;
        profiles.add_record(&stacks(12, more));
        let (second, _) = profiles.request(Resource::default()).unwrap();
        assert_eq!(
            samples(&second),
            [(vec!["train"], "compute".to_owned(), 250_000_000)]
        );
    }
}
