//! Records each epoch of a wrapped loader in a loop of the records. Concurrent epochs get separate loops, so
//! that their steps do not mix.
//!
//! An epoch gets its loop at the request of its first batch, not when its iterator is created. Some programs
//! create the iterator of the next epoch before they drop the last one (`it = iter(loader)`, and frameworks).
//! Their epochs stay in one loop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use headspace_agent::lock::lock;
use headspace_agent::model::record::LoaderRecord;
use headspace_agent::model::{Mode, OptionsFrom};
use headspace_agent::port::ConsumerThread;
use headspace_agent::recording::{Event, Recorder};
use headspace_agent::runtime::Agent;
use headspace_agent::runtime::fork::Owner;
use headspace_agent::sampling::LoopEntry;

use crate::clock::clock;

/// One loop of the records.
#[derive(Clone)]
pub(crate) struct RecordedLoop {
    pub(crate) entry: Arc<LoopEntry>,
    /// The session's number.
    session: u64,
    /// Whether an epoch is in progress in it.
    busy: Arc<AtomicBool>,
}

/// The loops of one wrapped loader.
#[derive(Default)]
pub(crate) struct RecordedLoops(Mutex<Vec<RecordedLoop>>);

impl RecordedLoops {
    /// A loop of the session in which no epoch is in progress; a new one if all are busy.
    pub(crate) fn free(
        &self,
        session: u64,
        agent: &Agent,
        loader: &LoaderRecord,
        mode: Mode,
    ) -> RecordedLoop {
        let mut loops = lock(&self.0);
        // Session numbers grow. An epoch of an earlier session may begin late.
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

    /// A loop that no session reads.
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

/// The session that records an epoch.
pub(crate) struct RecordingSession {
    pub(crate) loops: Arc<RecordedLoops>,
    pub(crate) number: u64,
    pub(crate) agent: Agent,
}

/// One epoch: an iterator of the loader, from its creation to its end.
pub(crate) struct Epoch {
    recorded: OnceLock<RecordedLoop>,
    /// None if nothing is recorded.
    session: Option<RecordingSession>,
    loader: LoaderRecord,
    mode: Mode,
    /// Time stamp of its creation.
    begun: u64,
    /// The process that created it. In a forked child, its session does not record.
    owner: Owner,
}

impl Epoch {
    pub(crate) fn new(
        session: Option<RecordingSession>,
        loader: LoaderRecord,
        mode: Mode,
        begun: u64,
    ) -> Self {
        Self {
            recorded: OnceLock::new(),
            session,
            loader,
            mode,
            begun,
            owner: Owner::here(),
        }
    }

    /// The agent that records it.
    pub(crate) fn agent(&self) -> Option<&Agent> {
        self.session.as_ref().map(|session| &session.agent)
    }

    /// The name of its loop in the records.
    pub(crate) fn loop_name(&self) -> String {
        let recorded = self.recorded.get();
        let loader = recorded.map_or(&self.loader, |recorded| &recorded.entry.loader);
        loader.name.clone()
    }

    /// Where the user sets the loop's options.
    pub(crate) fn options_from(&self) -> OptionsFrom {
        self.loader.options_from.unwrap_or_default()
    }

    /// The loop that records its steps. The first call records that the epoch begins.
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
            let new = match &self.session {
                // In a forked child, a thread of the parent may hold a lock for ever.
                Some(session) if self.owner.is_here() => {
                    session
                        .loops
                        .free(session.number, &session.agent, &self.loader, self.mode)
                }
                _ => RecordedLoop::unwatched(&self.loader, self.mode),
            };
            new.busy.store(true, Ordering::Relaxed);
            let recorder = &new.entry.recorder;
            if let Some(size) = self.loader.batch_size {
                recorder.mark(Event::BatchSize(size));
            }
            recorder.mark(Event::EpochBegin { at: self.begun });
            new
        });
        &recorded.entry
    }

    /// The epoch continues after an error that the loop caught.
    pub(crate) fn reopen(&self) {
        if let Some(recorded) = self.recorded.get() {
            recorded.busy.store(true, Ordering::Relaxed);
        }
    }

    /// The epoch ends, unless it is [reopened](Self::reopen).
    pub(crate) fn end(&self, exhausted: bool) {
        if let Some(recorded) = self.recorded.get() {
            recorded.entry.recorder.mark(Event::EpochEnd { exhausted });
            recorded.busy.store(false, Ordering::Relaxed);
        }
    }
}
