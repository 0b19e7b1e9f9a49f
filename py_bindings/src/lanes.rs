//! Which loop of the records an iteration is told as.
//!
//! Iterations of one wrapped loader that go on at the same time each have a lane, so that their
//! steps do not mix. An iteration takes its lane when its first batch is asked for and not when it
//! is made: whoever makes the next epoch's iterator first and lets go of the last one's then
//! (`it = iter(loader)` does, and so do frameworks) is in one loop throughout.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use headspace_agent::model::record::LoaderRecord;
use headspace_agent::model::{Mode, OptionsFrom};
use headspace_agent::pipeline::LoopEntry;
use headspace_agent::port::ConsumerThread;
use headspace_agent::record::{Event, Recorder};
use headspace_agent::runtime::Agent;
use headspace_agent::runtime::fork::Owner;

use crate::session::clock;

/// One loop of the records.
#[derive(Clone)]
pub(crate) struct Lane {
    pub(crate) entry: Arc<LoopEntry>,
    /// The session's number.
    session: u64,
    /// An iteration goes on in it.
    busy: Arc<AtomicBool>,
}

/// The lanes of one wrapped loader.
#[derive(Default)]
pub(crate) struct Lanes(Mutex<Vec<Lane>>);

impl Lanes {
    /// A lane of that session in which no iteration goes on; a new one where all are busy.
    pub(crate) fn free(
        &self,
        session: u64,
        agent: &Agent,
        loader: &LoaderRecord,
        mode: Mode,
    ) -> Lane {
        let mut lanes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Numbers of sessions grow. What began in an earlier one may ask late.
        lanes.retain(|lane| lane.session >= session);
        let of_session = || lanes.iter().filter(|lane| lane.session == session);
        if let Some(lane) = of_session().find(|lane| !lane.busy.load(Ordering::Relaxed)) {
            return lane.clone();
        }
        let mut loader = loader.clone();
        match of_session().count() {
            0 => {}
            others => loader.name = format!("{}#{}", loader.name, others + 1),
        }
        let lane = Lane::new(agent.add_loop(loader, mode), session);
        lanes.push(lane.clone());
        lane
    }
}

impl Lane {
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

/// How an iteration gets its lane.
pub(crate) enum Choice {
    /// Among those of a session, told by its number.
    Of(Arc<Lanes>, u64, Agent),
    /// Nothing of it is recorded.
    Unwatched,
}

/// An iteration that was made.
pub(crate) struct Epoch {
    lane: OnceLock<Lane>,
    choice: Choice,
    loader: LoaderRecord,
    mode: Mode,
    /// When it was made, as a time stamp of the clock.
    begun: u64,
    /// The process that made it: in another one its session is nobody's.
    owner: Owner,
}

impl Epoch {
    /// Its lane is chosen at its first batch.
    pub(crate) fn new(choice: Choice, loader: LoaderRecord, mode: Mode, begun: u64) -> Self {
        Self {
            lane: OnceLock::new(),
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
        self.lane
            .get()
            .map_or(&self.loader, |lane| &lane.entry.loader)
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
        match self.lane.get() {
            Some(lane) => &lane.entry,
            None => self.begin(),
        }
    }

    #[cold]
    fn begin(&self) -> &LoopEntry {
        let lane = self.lane.get_or_init(|| {
            let lane = match &self.choice {
                // In a forked child a lock may be held by a thread that did not come along.
                Choice::Of(lanes, session, agent) if self.owner.is_here() => {
                    lanes.free(*session, agent, &self.loader, self.mode)
                }
                _ => Lane::unwatched(&self.loader, self.mode),
            };
            lane.busy.store(true, Ordering::Relaxed);
            let recorder = &lane.entry.recorder;
            if let Some(size) = self.loader.batch_size {
                recorder.mark(Event::BatchSize(size));
            }
            recorder.mark(Event::EpochBegin { at: self.begun });
            lane
        });
        &lane.entry
    }

    /// It goes on after all.
    pub(crate) fn reopen(&self) {
        if let Some(lane) = self.lane.get() {
            lane.busy.store(true, Ordering::Relaxed);
        }
    }

    /// It ends, unless it is [reopened](Self::reopen).
    pub(crate) fn end(&self, exhausted: bool) {
        if let Some(lane) = self.lane.get() {
            lane.entry.recorder.mark(Event::EpochEnd { exhausted });
            lane.busy.store(false, Ordering::Relaxed);
        }
    }
}
