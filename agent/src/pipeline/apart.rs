//! A source with a thread of its own, seen from the tick: asked, and answered when it can.
//!
//! The tick asks and goes on. Whatever the source does (wait for a driver, walk a table of
//! processes), no tick waits longer than a few milliseconds for it, and a source that never
//! answers costs its own readings and nothing else. A dear source is asked more rarely, so that
//! its share of a core stays small.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::model::Reading;
use crate::port::clock::thread_cpu_time;
use crate::port::contain::contain;
use crate::port::{Clock, CollectError, Collector};

/// The same for the time that it took, CPU or not: a driver that is slow is not pestered.
const WALL_REST: u32 = 20;

/// How long a source rests after an answer that took the CPU time `cpu` and the time `took`. `cpu_rest`
/// is the source's own factor for CPU time ([`Collector::cpu_rest`]).
#[must_use]
pub fn rest(cpu: Duration, took: Duration, cpu_rest: u32) -> Duration {
    (cpu * cpu_rest).max(took * WALL_REST)
}

/// What a source answers: its readings, or why there are none.
pub(crate) type Answer = Result<Vec<Reading>, CollectError>;

/// The tick's end.
#[derive(Debug)]
pub struct Apart {
    name: &'static str,
    pace: Duration,
    /// When its pace allows the next question.
    due: Duration,
    /// When it has rested from the last one.
    rested: Duration,
    /// When it was asked what it has not answered yet.
    asked: Option<Duration>,
    desk: Arc<Desk>,
}

/// The thread's end.
#[derive(Debug)]
pub struct Attendant {
    desk: Arc<Desk>,
}

#[derive(Debug, Default)]
struct Desk {
    state: Mutex<State>,
    asked: Condvar,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct State {
    question: Option<Duration>,
    answer: Option<Answer>,
    /// How long it rests after the last answer.
    rest: Duration,
    cpu: Duration,
    closed: bool,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Both ends for a source of that name, which is read no more often than every `pace`.
#[must_use]
pub fn apart(name: &'static str, pace: Duration) -> (Apart, Attendant) {
    let desk = Arc::<Desk>::default();
    let tick = Apart {
        name,
        pace,
        due: Duration::ZERO,
        rested: Duration::ZERO,
        asked: None,
        desk: Arc::clone(&desk),
    };
    (tick, Attendant { desk })
}

impl Apart {
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Asks for the readings of this moment, if it is time and nothing is outstanding. For the last
    /// time, it may not have rested yet.
    pub(crate) fn ask(&mut self, at: Duration, last: bool) {
        let early = at < self.due || (at < self.rested && !last);
        if self.asked.is_some() || early {
            return;
        }
        self.asked = Some(at);
        self.desk.lock().question = Some(at);
        self.desk.asked.notify_one();
    }

    /// Takes what was answered, waiting for it for at most `grace`; `None` where nothing was asked
    /// or the answer is not there yet.
    pub(crate) fn take(&mut self, grace: Duration) -> Option<Answer> {
        let asked = self.asked?;
        let (mut state, _) = self
            .desk
            .answered
            .wait_timeout_while(self.desk.lock(), grace, |state| state.answer.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        let answer = state.answer.take()?;
        self.asked = None;
        self.due = asked + self.pace;
        self.rested = asked + state.rest;
        Some(answer)
    }

    /// How long the answer has been outstanding at `at`.
    pub(crate) fn outstanding(&self, at: Duration) -> Option<Duration> {
        Some(at.saturating_sub(self.asked?))
    }

    /// CPU time of its thread.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.desk.lock().cpu
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.desk.lock().closed = true;
        self.desk.asked.notify_one();
    }
}

impl Attendant {
    /// Serves until the tick's end is gone or the source is retired.
    pub fn run(self, mut collector: Box<dyn Collector>, clock: &dyn Clock) {
        loop {
            let question = {
                let idle = |state: &mut State| state.question.is_none() && !state.closed;
                let mut state = self
                    .desk
                    .asked
                    .wait_while(self.desk.lock(), idle)
                    .unwrap_or_else(PoisonError::into_inner);
                if state.closed {
                    break;
                }
                state.question.take()
            };
            let Some(at) = question else { continue };
            let (begin, cpu_before) = (clock.now(), thread_cpu_time());
            let mut readings = Vec::new();
            let answer = match contain(|| collector.collect(at, &mut readings)) {
                Ok(Ok(())) => Ok(readings),
                Ok(Err(error)) => Err(error),
                Err(panic) => Err(CollectError::unsupported(panic)),
            };
            let retired = matches!(answer, Err(CollectError::Unsupported { .. }));
            let took = clock.now().saturating_sub(begin);
            let cpu = thread_cpu_time();
            let used = cpu
                .zip(cpu_before)
                .map_or(took, |(now, then)| now.saturating_sub(then));
            {
                let mut state = self.desk.lock();
                state.answer = Some(answer);
                state.rest = rest(used, took, collector.cpu_rest());
                state.cpu = cpu.unwrap_or_default() + collector.cpu_time();
            }
            self.desk.answered.notify_one();
            if retired {
                break;
            }
        }
        // A collector that panicked may panic again when it is dropped.
        let _ = contain(|| drop(collector));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::model::{Scope, metric};
    use crate::testing::{CollectWith, ManualClock};

    /// Long enough for any thread to be scheduled; no test waits for it to pass.
    const GRACE: Duration = Duration::from_secs(30);

    fn served(
        pace: Duration,
        collect: impl FnMut(Duration, &mut Vec<Reading>) -> Result<(), CollectError> + Send + 'static,
    ) -> (Apart, thread::JoinHandle<()>) {
        let (tick, attendant) = apart("test", pace);
        let thread = thread::spawn(move || {
            attendant.run(Box::new(CollectWith(collect)), &ManualClock::default());
        });
        (tick, thread)
    }

    fn one(at: Duration, out: &mut Vec<Reading>) {
        out.push(Reading::new(
            &metric::PROCESS_THREAD_COUNT,
            Scope::Process,
            at.as_secs_f64(),
        ));
    }

    #[test]
    fn the_answer_to_a_question_is_taken_once() {
        let (mut tick, _) = served(Duration::ZERO, |at, out| {
            one(at, out);
            Ok(())
        });
        tick.ask(Duration::from_secs(1), false);

        let readings = tick.take(GRACE).unwrap().unwrap();

        assert!((readings[0].value - 1.0).abs() < 1e-9);
        assert!(tick.take(Duration::ZERO).is_none());
    }

    #[test]
    fn a_source_that_does_not_answer_holds_up_no_tick() {
        let (go, wait) = mpsc::channel::<()>();
        let (mut tick, _) = served(Duration::ZERO, move |at, out| {
            wait.recv().unwrap();
            one(at, out);
            Ok(())
        });
        tick.ask(Duration::from_secs(1), false);
        assert!(tick.take(Duration::ZERO).is_none());
        tick.ask(Duration::from_secs(9), false);
        assert_eq!(
            tick.outstanding(Duration::from_secs(9)),
            Some(Duration::from_secs(8))
        );

        go.send(()).unwrap();

        assert_eq!(tick.take(GRACE).unwrap().unwrap().len(), 1);
    }

    #[test]
    fn it_is_not_asked_before_its_pace_allows() {
        let (mut tick, _) = served(Duration::from_secs(10), |at, out| {
            one(at, out);
            Ok(())
        });
        tick.ask(Duration::from_secs(1), false);
        tick.take(GRACE).unwrap().unwrap();

        tick.ask(Duration::from_secs(5), true);
        assert!(tick.outstanding(Duration::from_secs(5)).is_none());
        tick.ask(Duration::from_secs(11), false);
        assert!(tick.outstanding(Duration::from_secs(11)).is_some());
    }

    #[test]
    fn a_dear_source_rests_but_not_from_the_last_question() {
        let (mut tick, _) = served(Duration::from_secs(1), |at, out| {
            let begin = thread_cpu_time().unwrap();
            while thread_cpu_time().unwrap() < begin + Duration::from_millis(5) {}
            one(at, out);
            Ok(())
        });
        tick.ask(Duration::ZERO, false);
        tick.take(GRACE).unwrap().unwrap();

        tick.ask(Duration::from_secs(4), false);
        assert!(tick.outstanding(Duration::from_secs(4)).is_none());
        tick.ask(Duration::from_secs(4), true);
        assert!(tick.outstanding(Duration::from_secs(4)).is_some());
    }

    #[test]
    fn a_panic_is_an_answer_and_ends_the_thread() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let (mut tick, thread) = served(Duration::ZERO, |_, _| panic!("gone"));
        tick.ask(Duration::ZERO, false);

        let answer = tick.take(GRACE).unwrap();
        thread.join().unwrap();
        std::panic::set_hook(hook);

        assert!(matches!(answer, Err(CollectError::Unsupported { .. })));
    }

    #[test]
    fn the_thread_ends_with_the_ticks_end() {
        let (tick, thread) = served(Duration::ZERO, |_, _| Ok(()));

        drop(tick);

        thread.join().unwrap();
    }
}
