//! What a new process needs, around the sentence of a remedy that starts one.

use super::units::{bytes, duration_ms};
use super::verdict::place_in_file;
use crate::analysis::attribution::ProcessStart;
use crate::model::record::{StartObstacle, StartObstacleRecord};

/// Fewer bytes are not named, nor is a shorter start.
const MIN_NAMED_BYTES: f64 = (64 << 20) as f64;
const MIN_NAMED_MS: f64 = 1000.0;

/// The sentence of a remedy, with what must be changed first, and with the price of a start.
pub(super) fn with_process_start(sentence: String, start: Option<&ProcessStart>) -> String {
    let Some(ProcessStart { sent, ms }) = start else {
        return sentence;
    };
    let sentence = match &sent.obstacle {
        Some(obstacle) => {
            let others = others(&sent.other_obstacles);
            format!(
                "{}{others} Then {}",
                first(obstacle),
                in_sentence(&sentence)
            )
        }
        None => sentence,
    };
    let size = (sent.bytes.zip(*ms)).and_then(|(count, ms)| size(count as f64, ms, sent.at_least));
    let size = size.map_or_else(String::new, |size| format!(" {size}"));
    format!("{sentence}{size}")
}

/// What must be changed first.
fn first(obstacle: &StartObstacleRecord) -> String {
    let StartObstacleRecord {
        part, type_name, ..
    } = obstacle;
    let place = obstacle.file.as_deref().zip(obstacle.line);
    let place = place.map_or_else(String::new, |(file, line)| {
        format!(" (`{}`)", place_in_file(file, line))
    });
    let new_process = "a new process gets it by pickling";
    match obstacle.kind {
        StartObstacle::Lock => format!(
            "First create `{part}` in each process: {new_process}, and a lock (`{type_name}`) cannot be pickled."
        ),
        StartObstacle::OpenFile => format!(
            "First open `{part}` in each process, when it is first used: {new_process}, and an open file \
             (`{type_name}`) cannot be pickled."
        ),
        StartObstacle::SharedFile => format!(
            "First open `{part}` in each process, when it is first used: forked processes share an open file or \
             database (`{type_name}`) and its state."
        ),
        StartObstacle::Threads => format!(
            "First create `{part}` in each process, when it is first used: forked processes do not get running \
             threads (`{type_name}`)."
        ),
        StartObstacle::Local => format!(
            "First define `{type_name}`{place} at the top level of a module: a new process gets `{part}` by pickling, \
             and finds functions and classes by their names."
        ),
        StartObstacle::Interactive => format!(
            "First move `{type_name}` into a module: a new process gets `{part}` by pickling, and cannot import it from \
             a notebook or an interactive session."
        ),
        StartObstacle::Refuses => format!(
            "First make `{part}` picklable: {new_process}, and the class `{type_name}` forbids that{place}."
        ),
        StartObstacle::Other => format!(
            "First create `{part}` in each process: {new_process}, and `{type_name}` cannot be pickled."
        ),
    }
}

/// What must be changed too.
fn others(parts: &[String]) -> String {
    let named: Vec<String> = parts.iter().map(|part| format!("`{part}`")).collect();
    match named.as_slice() {
        [] => String::new(),
        [one] => format!(" {one} must be changed too."),
        [before @ .., last] => format!(" {} and {last} must be changed too.", before.join(", ")),
    }
}

/// What each process gets, if it is much.
fn size(count: f64, ms: f64, at_least: bool) -> Option<String> {
    let about = if at_least { "at least" } else { "about" };
    (count >= MIN_NAMED_BYTES || ms >= MIN_NAMED_MS).then(|| {
        format!(
            "Each process gets {about} {} by pickling and keeps it in its memory. Its start takes {about} {} longer, \
             and the processes start one after the other.",
            bytes(count),
            duration_ms(ms)
        )
    })
}

/// A sentence after a word.
fn in_sentence(sentence: &str) -> String {
    let mut letters = sentence.chars();
    (letters.next()).map_or_else(String::new, |letter| {
        format!("{}{}", letter.to_lowercase(), letters.as_str())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::record::SentPartsRecord;

    fn sentence(bytes: u64, ms: f64, obstacle: Option<StartObstacleRecord>) -> String {
        let sent = SentPartsRecord {
            bytes: Some(bytes),
            at_least: obstacle.is_some(),
            obstacle,
            ..SentPartsRecord::default()
        };
        let start = ProcessStart { sent, ms: Some(ms) };
        with_process_start("Load in 2 worker processes.".to_owned(), Some(&start))
    }

    #[test]
    fn the_obstacle_comes_first() {
        let obstacle = StartObstacleRecord {
            part: "collate_fn".to_owned(),
            type_name: "main.<locals>.<lambda>".to_owned(),
            kind: StartObstacle::Local,
            file: Some("/home/me/train.py".to_owned()),
            line: Some(12),
        };
        assert_eq!(
            sentence(100, 0.0, Some(obstacle)),
            "First define `main.<locals>.<lambda>` (`train.py:12`) at the top level of a module: a new process gets \
             `collate_fn` by pickling, and finds functions and classes by their names. Then load in 2 worker processes."
        );
    }

    #[test]
    fn a_pool_with_threads_must_be_created_in_each_forked_process() {
        let obstacle = StartObstacleRecord {
            part: "dataset.reader.pool".to_owned(),
            type_name: "concurrent.futures.thread.ThreadPoolExecutor".to_owned(),
            kind: StartObstacle::Threads,
            file: None,
            line: None,
        };
        assert_eq!(
            sentence(100, 0.0, Some(obstacle)),
            "First create `dataset.reader.pool` in each process, when it is first used: forked processes do not get \
             running threads (`concurrent.futures.thread.ThreadPoolExecutor`). Then load in 2 worker processes."
        );
    }

    #[test]
    fn the_next_obstacles_are_named_too() {
        let obstacle = StartObstacleRecord {
            part: "dataset.file".to_owned(),
            type_name: "_io.BufferedReader".to_owned(),
            kind: StartObstacle::SharedFile,
            file: None,
            line: None,
        };
        let sent = SentPartsRecord {
            obstacle: Some(obstacle),
            other_obstacles: vec!["dataset.index".to_owned(), "dataset.log".to_owned()],
            ..SentPartsRecord::default()
        };
        let start = ProcessStart { sent, ms: None };
        assert_eq!(
            with_process_start("Load in 2 worker processes.".to_owned(), Some(&start)),
            "First open `dataset.file` in each process, when it is first used: forked processes share an open file or \
             database (`_io.BufferedReader`) and its state. `dataset.index` and `dataset.log` must be changed too. Then load in 2 \
             worker processes."
        );
        assert_eq!(others(&["a".to_owned()]), " `a` must be changed too.");
    }

    #[test]
    fn only_a_large_price_is_named() {
        assert_eq!(sentence(1 << 20, 4.0, None), "Load in 2 worker processes.");
        assert_eq!(
            sentence(1 << 30, 4096.0, None),
            "Load in 2 worker processes. Each process gets about 1.00 GiB by pickling and keeps it in its memory. Its \
             start takes about 4.10 s longer, and the processes start one after the other."
        );
    }

    #[test]
    fn a_remedy_that_starts_no_process_is_unchanged() {
        let before = "Load in 2 worker processes.";
        assert_eq!(with_process_start(before.to_owned(), None), before);
    }
}
