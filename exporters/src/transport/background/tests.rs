use std::sync::mpsc::{Receiver, Sender, channel};

use headspace_agent::testing::record;

use super::*;

/// Long enough for anything: it only ends what hangs.
const DEADLINE: Duration = Duration::from_secs(30);

/// Counts records.
struct Count(usize);

impl State for Count {
    fn add_record(&mut self, _: &Record) {
        self.0 += 1;
    }
}

/// Sends the number of records that it received, and returns prepared outcomes.
struct Scripted {
    seen: Sender<usize>,
    answers: Receiver<Result<(), Failure>>,
}

impl Deliver<Count> for Scripted {
    fn deliver(&mut self, state: &Shared<Count>, _: Duration) -> Result<(), Failure> {
        let count = state.lock().0;
        let _ = self.seen.send(count);
        self.answers.recv().unwrap_or(Ok(()))
    }
}

type Started = (
    BackgroundExporter<Count>,
    Receiver<usize>,
    Sender<Result<(), Failure>>,
);

fn start(interval: Duration) -> Started {
    let (seen, counts) = channel();
    let (answer, answers) = channel();
    let pace = Pace {
        interval,
        timeout: DEADLINE,
    };
    let deliver = Scripted { seen, answers };
    (
        BackgroundExporter::start("scripted", Count(0), deliver, pace).unwrap(),
        counts,
        answer,
    )
}

fn refused(retry: Retry) -> Failure {
    Failure::passing("it is closed", retry)
}

fn until(condition: impl Fn() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < end, "not in time");
        std::thread::yield_now();
    }
}

#[test]
fn the_first_records_are_delivered_at_once_and_the_last_ones_at_the_end() {
    let (mut exporter, counts, answer) = start(Duration::from_secs(3600));
    exporter.export(&[record(0)]).unwrap();
    assert_eq!(counts.recv_timeout(DEADLINE), Ok(1));
    answer.send(Ok(())).unwrap();

    exporter.export(&[record(1), record(2)]).unwrap();
    answer.send(Ok(())).unwrap();
    exporter.close();
    exporter.finish();
    assert_eq!(counts.recv_timeout(DEADLINE), Ok(3));
    assert_eq!(
        (exporter.lost(), exporter.take_notices().len()),
        (Lost::default(), 0)
    );
}

#[test]
fn a_slow_delivery_delays_nothing_and_the_next_one_has_all_records() {
    let (mut exporter, counts, answer) = start(Duration::from_millis(1));
    exporter.export(&[record(0)]).unwrap();
    assert_eq!(counts.recv_timeout(DEADLINE), Ok(1));
    for time in 1..100 {
        exporter.export(&[record(time)]).unwrap(); // Returns, though the delivery goes on.
    }
    answer.send(Ok(())).unwrap();
    assert_eq!(counts.recv_timeout(DEADLINE), Ok(100));
    answer.send(Ok(())).unwrap();
}

#[test]
fn one_notice_reports_failing_deliveries_and_one_their_recovery_and_loss() {
    let (mut exporter, counts, answer) = start(Duration::from_millis(1));
    exporter.export(&[record(0)]).unwrap();
    for _ in 0..3 {
        counts.recv_timeout(DEADLINE).unwrap();
        answer.send(Err(refused(Retry::No))).unwrap();
    }
    counts.recv_timeout(DEADLINE).unwrap();
    answer.send(Ok(())).unwrap();
    counts.recv_timeout(DEADLINE).unwrap();

    let notices = exporter.take_notices();
    assert_eq!(exporter.lost().exports, 3);
    assert_eq!(
        notices,
        [
            Notice::ExportFailing {
                exporter: "scripted",
                reason: "it is closed".to_owned()
            },
            Notice::ExportResumed {
                exporter: "scripted",
                lost: 3
            }
        ]
    );
    answer.send(Ok(())).unwrap();
}

#[test]
fn finish_does_not_wait_for_a_destination_that_never_answers() {
    let (mut exporter, counts, answer) = start(Duration::from_secs(3600));
    exporter.export(&[record(0)]).unwrap();
    counts.recv_timeout(DEADLINE).unwrap();
    exporter.close();
    exporter.finish(); // The answer has not come, and is not waited for any longer.
    assert_eq!(exporter.lost().exports, 1);
    assert!(matches!(
        exporter.take_notices()[..],
        [Notice::LastExportDropped { reason: None, .. }]
    ));
    drop(answer);
}

#[test]
fn a_panic_ends_the_destination_and_is_reported() {
    struct Panics;
    impl Deliver<Count> for Panics {
        fn deliver(&mut self, _: &Shared<Count>, _: Duration) -> Result<(), Failure> {
            panic!("the engine is gone")
        }
    }
    let pace = Pace {
        interval: DEADLINE,
        timeout: DEADLINE,
    };
    let mut exporter = BackgroundExporter::start("panics", Count(0), Panics, pace).unwrap();
    exporter.export(&[record(0)]).unwrap();
    until(|| exporter.inner.status().ended);
    assert!(matches!(
        exporter.take_notices()[..],
        [Notice::ExporterOff { .. }]
    ));
    exporter.close();
    exporter.finish();
}

#[test]
fn a_retry_precedes_the_next_regular_delivery_or_the_delivery_is_given_up() {
    let now = Instant::now();
    let mut plan = Plan::new(now, Duration::from_secs(10));
    assert!(!plan.after(&Err(refused(Retry::Soon)), now));
    assert_eq!(plan.next, now + FIRST_RETRY);
    // Doubled each time.
    assert!(!plan.after(&Err(refused(Retry::Soon)), now));
    assert_eq!(plan.next, now + FIRST_RETRY * 2);
    // The destination requests a wait; the longest wait is five minutes.
    assert!(!plan.after(&Err(refused(Retry::After(Duration::from_secs(7)))), now));
    assert_eq!(plan.next, now + Duration::from_secs(7));
    assert!(plan.after(&Err(refused(Retry::After(Duration::MAX))), now));
    assert_eq!(plan.next, now + LONGEST_RETRY);
    // After a success the grid holds.
    assert!(!plan.after(&Ok(()), now));
    assert_eq!(plan.next, now + Duration::from_secs(10));
}
