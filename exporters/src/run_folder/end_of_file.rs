//! Reads whether a rank has ended, from the end of its file.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use headspace_agent::model::RecordBody;
use headspace_agent::model::record::RunState;

use super::open_file::open_file;
use crate::encode::reader::Records;

/// Bytes at the end of a file that contain the last summary. It has about 8 KiB.
const END_BYTES: u64 = 1 << 20;

/// Whether the last record of this file is the summary of a run that has ended. `false` if the file cannot be read.
pub fn has_ended(path: &Path) -> bool {
    read_end(path).is_ok_and(|end| {
        let last = Records::new(end.as_slice()).filter_map(Result::ok).last();
        last.is_some_and(|record| match record.body {
            RecordBody::Summary(summary) => summary.state != RunState::Running,
            _ => false,
        })
    })
}

/// The last line of a file, with its end. Empty if the line is incomplete or too long.
fn read_end(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = open_file(path)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(END_BYTES)))?;
    let mut end = Vec::new();
    file.take(END_BYTES).read_to_end(&mut end)?;
    let Some(line) = end.strip_suffix(b"\n") else {
        return Ok(Vec::new());
    };
    let begin = line.iter().rposition(|byte| *byte == b'\n');
    match begin {
        Some(at) => Ok(end.split_off(at + 1)),
        None if size <= END_BYTES => Ok(end),
        None => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use headspace_agent::model::record::SummaryRecord;

    use super::*;
    use crate::encode::test_records;

    fn summary(state: RunState) -> String {
        let body = RecordBody::Summary(Box::new(SummaryRecord {
            state,
            ..SummaryRecord::default()
        }));
        test_records::line(&test_records::record(1, body))
    }

    #[test]
    fn a_rank_has_ended_if_its_last_record_is_the_summary_of_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rank0.jsonl");
        let (running, finished) = (summary(RunState::Running), summary(RunState::Finished));
        let cases = [
            (running.clone() + &finished, true),
            (finished.clone(), true),
            (finished.clone() + &running, false),
            (finished.clone() + "{\"schema", false),
            (String::new(), false),
        ];
        for (text, expected) in cases {
            std::fs::write(&path, &text).unwrap();
            assert_eq!(has_ended(&path), expected, "{text}");
        }
        assert!(!has_ended(&folder.path().join("rank1.jsonl")));
    }
}
