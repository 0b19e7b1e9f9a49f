use super::*;

/// Many rounds, no pauses, and a deadline that only a source that hangs reaches.
const QUICK: Patience = Patience {
    rounds: 5,
    pause: Duration::ZERO,
    reads: 2,
    window: Duration::from_secs(20),
    deadline: Duration::from_secs(20),
};

struct Fake<F> {
    pace: Pace,
    read: F,
}

impl<F> Collector for Fake<F>
where
    F: FnMut() -> Result<(), CollectError> + Send + 'static,
{
    fn name(&self) -> &'static str {
        "fake"
    }

    fn pace(&self) -> Pace {
        self.pace
    }

    fn collect(&mut self, _: Duration, _: &mut Vec<Reading>) -> Result<(), CollectError> {
        (self.read)()
    }
}

fn source(
    pace: Pace,
    read: impl FnMut() -> Result<(), CollectError> + Send + 'static,
) -> Vec<Entry> {
    vec![Entry::new("fake", "nothing", Ok(Fake { pace, read }))]
}

fn only(entries: Vec<Entry>, patience: Patience) -> Examined {
    let mut examined = examine(entries, patience);
    assert_eq!(examined.len(), 1);
    examined.remove(0)
}

const PACES: [Pace; 2] = [Pace::Tick, Pace::Background(Duration::ZERO)];

fn fails_at_first(times: usize) -> impl FnMut() -> Result<(), CollectError> + Send {
    let mut calls = 0;
    move || {
        calls += 1;
        if calls <= times {
            Err(CollectError::Transient("it is busy".to_owned()))
        } else {
            Ok(())
        }
    }
}

#[test]
fn a_source_that_works_is_on_and_has_the_cost_of_its_kind() {
    let tick = only(source(Pace::Tick, || Ok(())), QUICK);
    let apart = only(source(PACES[1], || Ok(())), QUICK);

    assert_eq!(tick.record.state, SourceState::On);
    assert!(tick.tick_us.is_some() && tick.own_cpu_us_per_s.is_none());
    assert_eq!(apart.record.state, SourceState::On);
    assert!(apart.tick_us.is_none() && apart.own_cpu_us_per_s.is_some());
}

#[test]
fn a_source_that_opens_but_cannot_be_read_is_off_with_that_reason() {
    for pace in PACES {
        let fails = || Err(CollectError::remediable("no permission", "be root"));
        let found = only(source(pace, fails), QUICK);

        assert_eq!(found.record.state, SourceState::Off);
        assert_eq!(found.record.reason.as_deref(), Some("no permission"));
        assert_eq!(found.record.remedy.as_deref(), Some("be root"));
        assert!(found.tick_us.is_none() && found.own_cpu_us_per_s.is_none());
    }
}

#[test]
fn a_source_that_did_not_open_keeps_its_reason_and_is_not_read() {
    let error = Err::<Fake<fn() -> _>, _>(CollectError::unsupported("no such kernel"));
    let found = only(vec![Entry::new("fake", "nothing", error)], QUICK);

    assert_eq!(found.record.reason.as_deref(), Some("no such kernel"));
    assert!(found.record.remedy.is_none());
}

#[test]
fn a_source_that_is_busy_at_first_is_on_and_one_that_stays_so_is_off() {
    for pace in PACES {
        let busy = Patience { reads: 5, ..QUICK };
        let soon = only(source(pace, fails_at_first(2)), busy);
        let never = only(source(pace, fails_at_first(99)), busy);

        assert_eq!(soon.record.state, SourceState::On);
        assert_eq!(never.record.state, SourceState::Off);
        assert_eq!(never.record.reason.as_deref(), Some("it is busy"));
    }
}

#[test]
fn a_source_that_panics_is_off_and_stops_nothing() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    for pace in PACES {
        let found = only(source(pace, || panic!("gone")), QUICK);

        let text = "internal error in headspace: gone. Please report it";
        assert_eq!(found.record.reason.as_deref(), Some(text));
    }
    std::panic::set_hook(hook);
}

#[test]
fn a_source_that_never_answers_holds_up_nobody() {
    let (_never, wait) = std::sync::mpsc::channel::<()>();
    let stuck = move || wait.recv().map_err(|_| CollectError::unsupported("let go"));
    let mut entries = source(PACES[1], stuck);
    entries.append(&mut source(Pace::Tick, || Ok(())));
    entries.append(&mut source(PACES[1], || Ok(())));
    let deadline = Duration::from_millis(500);

    let examined = examine(entries, Patience { deadline, ..QUICK });

    assert_eq!(
        examined[0].record.reason.as_deref(),
        Some("it did not answer within 0.5 s")
    );
    assert_eq!(examined[1].record.state, SourceState::On);
    assert_eq!(examined[2].record.state, SourceState::On);
}
