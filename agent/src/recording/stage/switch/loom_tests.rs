//! Models of a stage that is called for the first time while the trainer changes all stages.
//!
//! The words of the futexes stay the standard library's, because the kernel reads them.

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::recording::stage::slot::loom_tests::empty_name;
use crate::sync::check;

fn free_switch() -> Switch {
    Switch {
        claimed: sync::AtomicU32::new(0),
        name: empty_name(),
        not_replaceable: AtomicU32::new(0),
        not_delayable: AtomicU32::new(0),
        word: sync::AtomicU64::new(0),
        active: AtomicU32::new(0),
        most_active: AtomicU32::new(0),
        watched_calls: AtomicU64::new(0),
        watched_ns: AtomicU64::new(0),
        kept: AtomicU64::new(0),
        replaced_calls: AtomicU64::new(0),
        worked_calls: AtomicU64::new(0),
        timed_out_calls: AtomicU64::new(0),
        opened_gate: AtomicU64::new(0),
    }
}

fn free_switches() -> Arc<Switches> {
    Arc::new(Switches {
        first_word: sync::AtomicU64::new(0),
        valid_until_ns: AtomicU64::new(0),
        requests: free_switch(),
        by_stage: std::array::from_fn(|_| free_switch()),
    })
}

#[test]
fn a_stage_that_is_first_called_during_a_change_gets_the_new_setting() {
    check("switch", || {
        let switches = free_switches();
        let worker = {
            let switches = Arc::clone(&switches);
            thread::spawn(move || assert!(switches.claim("a").is_some()))
        };
        switches.set_all(Setting::Watch);
        worker.join().unwrap();

        let word = switches.claim("a").unwrap().word();
        assert_eq!(Setting::decode(word), Setting::Watch);
    });
}
