//! The loops in the records that the iterations of one wrapped loader write to.
//!
//! Iterations that go on at the same time each have a loop of their own, so that their steps do not mix. An
//! iteration takes its loop when its first batch is requested, and not when the iterator is made: a program
//! that makes the next epoch's iterator before it drops the last one (`it = iter(loader)` does, and so do
//! frameworks) stays in one loop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use headspace_agent::model::record::LoaderRecord;
use headspace_agent::model::{Mode, OptionsFrom};
use headspace_agent::port::ConsumerThread;
use headspace_agent::record::{Event, Recorder};
use headspace_agent::runtime::Agent;
use headspace_agent::runtime::fork::Owner;
use headspace_agent::sampling::LoopEntry;

use crate::session::clock;

/// One loop of the records.
#[derive(Clone)]
pub(crate) struct RecordedLoop {
    pub(crate) entry: Arc<LoopEntry>,
    /// The session's number.
    session: u64,
    /// An iteration goes on in it.
    busy: Arc<AtomicBool>,
}

/// The loops of one wrapped loader.
#[derive(Default)]
pub(crate) struct RecordedLoops(Mutex<Vec<RecordedLoop>>);

impl RecordedLoops {
    /// A loop of that session in which no iteration goes on; a new one if all are busy.
    pub(crate) fn free(
        &self,
        session: u64,
        agent: &Agent,
        loader: &LoaderRecord,
        mode: Mode,
    ) -> RecordedLoop {
        let mut loops = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Numbers of sessions grow. What began in an earlier one may ask late.
        loops.retain(|recorded| recorded.session >= session);
        let of_session = || loops.iter().filter(|recorded| recorded.session == session);
        if let Some(recorded) = of_session().find(|recorded| !recorded.busy.load(Ordering::Relaxed))
        {
            return recorded.clone();
        }
        let mut loader = loader.clone();
        match of_session().count() {
            0 => {}
            others => loader.name = format!("{}#{}", loader.name, others + 1),
        }
        let recorded = RecordedLoop::new(agent.add_loop(loader, mode), session);
        loops.push(recorded.clone());
        recorded
    }
}

impl RecordedLoop {
    fn new(entry: Arc<LoopEntry>, session: u64) -> Self {
        Self {
            entry,
            session,
            busy: Arc::default(),
        }
    }

    /// One that nobody reads.
    fn unwatched(loader: &LoaderRecord, mode: Mode) -> Self {
        let recorder = Recorder::new(
            loader.name.clone(),
            clock().clone(),
            Arc::default(),
            ConsumerThread::default(),
            Arc::new(|| ()),
        );
        Self::new(LoopEntry::new(recorder, loader.clone(), mode), u64::MAX)
    }
}

/// How an iteration gets its loop.
pub(crate) enum Choice {
    /// Among those of a session, told by its number.
    Of(Arc<RecordedLoops>, u64, Agent),
    /// Nothing of it is recorded.
    Unwatched,
}

/// An iteration that was made.
pub(crate) struct Epoch {
    recorded: OnceLock<RecordedLoop>,
    choice: Choice,
    loader: LoaderRecord,
    mode: Mode,
    /// When it was made, as a time stamp of the clock.
    begun: u64,
    /// The process that made it: in another one its session is nobody's.
    owner: Owner,
}

impl Epoch {
    /// Its loop is chosen at its first batch.
    pub(crate) fn new(choice: Choice, loader: LoaderRecord, mode: Mode, begun: u64) -> Self {
        Self {
            recorded: OnceLock::new(),
            choice,
            loader,
            mode,
            begun,
            owner: Owner::here(),
        }
    }

    /// The agent that it is told to.
    pub(crate) fn agent(&self) -> Option<&Agent> {
        match &self.choice {
            Choice::Of(_, _, agent) => Some(agent),
            Choice::Unwatched => None,
        }
    }

    /// What the records call it.
    pub(crate) fn loop_name(&self) -> String {
        self.recorded
            .get()
            .map_or(&self.loader, |recorded| &recorded.entry.loader)
            .name
            .clone()
    }

    /// Where the user sets the loop's options.
    pub(crate) fn options_from(&self) -> OptionsFrom {
        self.loader.options_from.unwrap_or_default()
    }

    /// Where its steps go. The first call says that it begins.
    #[inline]
    pub(crate) fn entry(&self) -> &LoopEntry {
        match self.recorded.get() {
            Some(recorded) => &recorded.entry,
            None => self.begin(),
        }
    }

    #[cold]
    fn begin(&self) -> &LoopEntry {
        let recorded = self.recorded.get_or_init(|| {
            let taken = match &self.choice {
                // In a forked child a lock may be held by a thread that did not come along.
                Choice::Of(loops, session, agent) if self.owner.is_here() => {
                    loops.free(*session, agent, &self.loader, self.mode)
                }
                _ => RecordedLoop::unwatched(&self.loader, self.mode),
            };
            taken.busy.store(true, Ordering::Relaxed);
            let recorder = &taken.entry.recorder;
            if let Some(size) = self.loader.batch_size {
                recorder.mark(Event::BatchSize(size));
            }
            recorder.mark(Event::EpochBegin { at: self.begun });
            taken
        });
        &recorded.entry
    }

    /// It goes on after all.
    pub(crate) fn reopen(&self) {
        if let Some(recorded) = self.recorded.get() {
            recorded.busy.store(true, Ordering::Relaxed);
        }
    }

    /// It ends, unless it is [reopened](Self::reopen).
    pub(crate) fn end(&self, exhausted: bool) {
        if let Some(recorded) = self.recorded.get() {
            recorded.entry.recorder.mark(Event::EpochEnd { exhausted });
            recorded.busy.store(false, Ordering::Relaxed);
        }
    }
}
