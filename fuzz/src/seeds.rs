//! Writes the first inputs of a target into its corpus, before the fuzzer reads that.

use std::fs;
use std::path::Path;

use crate::outputs::HOSTILE;
use crate::run_files::LAYOUTS;
use crate::schema_records::lines;

/// How often the codes of records change.
const VARIANTS: usize = 6;

/// Writes seeds for `target`.
pub fn write(target: &str, seeds: impl IntoIterator<Item = Vec<u8>>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target);
    let _ = fs::create_dir_all(&folder);
    for (number, seed) in seeds.into_iter().enumerate() {
        let _ = fs::write(folder.join(format!("seed-{number}")), seed);
    }
}

/// Runs whose records have every field and hostile texts. The first two bytes select the files ([`LAYOUTS`]).
pub fn runs() -> impl Iterator<Item = Vec<u8>> {
    let layouts = (0..=u8::MAX).zip(LAYOUTS).map(|(layout, _)| layout);
    layouts.flat_map(|layout| (0..VARIANTS).map(move |variant| run(layout, variant)))
}

fn run(layout: u8, variant: usize) -> Vec<u8> {
    let mut seed = vec![layout, 128];
    for rank in 0..2 {
        let records = lines(HOSTILE, rank, variant);
        seed.extend(records.concat().into_bytes());
    }
    seed
}
