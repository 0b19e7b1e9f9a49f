use std::sync::mpsc::{Receiver, Sender, channel};

use headspace_agent::testing::record;

use super::*;

/// Long enough for anything: it only ends what hangs.
const DEADLINE: Duration = Duration::from_secs(30);

/// Counts records.
struct Count(usize);

impl State for Count {
    fn take(&mut self, _: &Record) {
        self.0 += 1;
    }
}

/// Says what it was given and answers as it is told.
struct Told {
    seen: Sender<usize>,
    answers: Receiver<Result<(), Failure>>,
}

impl Deliver<Count> for Told {
    fn deliver(&mut self, state: &Shared<Count>, _: Duration) -> Result<(), Failure> {
        let count = state.lock().0;
        let _ = self.seen.send(count);
        self.answers.recv().unwrap_or(Ok(()))
    }
}

type Ends = (
    BackgroundExporter<Count>,
    Receiver<usize>,
    Sender<Result<(), Failure>>,
);

fn start(interval: Duration) -> Ends {
    let (seen, counts) = channel();
    let (answer, answers) = channel();
    let pace = Pace {
        interval,
        timeout: DEADLINE,
    };
    let told = Told { seen, answers };
    (
        BackgroundExporter::start("told", Count(0), told, pace).unwrap(),
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
fn the_first_records_are_delivered_at_once_and_the_last_at_the_end() {
    let (mut apart, counts, answer) = start(Duration::from_secs(3600));
    apart.export(&[record(0)]).unwrap();
    assert_eq!(counts.recv_timeout(DEADLINE), Ok(1));
    answer.send(Ok(())).unwrap();

    apart.export(&[record(1), record(2)]).unwrap();
    answer.send(Ok(())).unwrap();
    apart.close();
    apart.finish();
    assert_eq!(counts.recv_timeout(DEADLINE), Ok(3));
    assert_eq!(
        (apart.lost(), apart.take_notices().len()),
        (Lost::default(), 0)
    );
}

#[test]
fn a_slow_delivery_holds_nobody_up_and_the_next_one_says_all() {
    let (mut apart, counts, answer) = start(Duration::from_millis(1));
    apart.export(&[record(0)]).unwrap();
    assert_eq!(counts.recv_timeout(DEADLINE), Ok(1));
    for time in 1..100 {
        apart.export(&[record(time)]).unwrap(); // Returns, though the delivery goes on.
    }
    answer.send(Ok(())).unwrap();
    assert_eq!(counts.recv_timeout(DEADLINE), Ok(100));
    answer.send(Ok(())).unwrap();
}

#[test]
fn failing_is_told_once_and_so_is_recovery_with_what_was_given_up() {
    let (mut apart, counts, answer) = start(Duration::from_millis(1));
    apart.export(&[record(0)]).unwrap();
    for _ in 0..3 {
        counts.recv_timeout(DEADLINE).unwrap();
        answer.send(Err(refused(Retry::No))).unwrap();
    }
    counts.recv_timeout(DEADLINE).unwrap();
    answer.send(Ok(())).unwrap();
    counts.recv_timeout(DEADLINE).unwrap();

    let told = apart.take_notices();
    assert_eq!(apart.lost().exports, 3);
    assert_eq!(
        told,
        [
            Notice::ExportFailing {
                exporter: "told",
                reason: "it is closed".to_owned()
            },
            Notice::ExportResumed {
                exporter: "told",
                lost: 3
            }
        ]
    );
    answer.send(Ok(())).unwrap();
}

#[test]
fn an_end_does_not_wait_for_one_that_never_answers() {
    let (mut apart, counts, answer) = start(Duration::from_secs(3600));
    apart.export(&[record(0)]).unwrap();
    counts.recv_timeout(DEADLINE).unwrap();
    apart.close();
    apart.finish(); // The answer has not come, and is not waited for any longer.
    assert_eq!(apart.lost().exports, 1);
    assert!(matches!(
        apart.take_notices()[..],
        [Notice::ExportFailing { .. }]
    ));
    drop(answer);
}

#[test]
fn a_panic_ends_the_destination_and_is_told() {
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
    let mut apart = BackgroundExporter::start("panics", Count(0), Panics, pace).unwrap();
    apart.export(&[record(0)]).unwrap();
    until(|| apart.inner.status().ended);
    assert!(matches!(
        apart.take_notices()[..],
        [Notice::ExporterOff { .. }]
    ));
    apart.close();
    apart.finish();
}

#[test]
fn a_retry_comes_before_the_next_delivery_or_counts_as_given_up() {
    let now = Instant::now();
    let mut plan = Plan::new(now, Duration::from_secs(10));
    assert!(!plan.after(&Err(refused(Retry::Soon)), now));
    assert_eq!(plan.next, now + FIRST_RETRY);
    // Doubled each time.
    assert!(!plan.after(&Err(refused(Retry::Soon)), now));
    assert_eq!(plan.next, now + FIRST_RETRY * 2);
    // As long as it was asked for, and no longer than five minutes.
    assert!(!plan.after(&Err(refused(Retry::After(Duration::from_secs(7)))), now));
    assert_eq!(plan.next, now + Duration::from_secs(7));
    assert!(plan.after(&Err(refused(Retry::After(Duration::MAX))), now));
    assert_eq!(plan.next, now + LONGEST_RETRY);
    // After a success the grid holds.
    assert!(!plan.after(&Ok(()), now));
    assert_eq!(plan.next, now + Duration::from_secs(10));
}
