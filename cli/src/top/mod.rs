//! Runs `headspace top`, which shows a run live in a terminal, from another process.
//!
//! ```text
//! source ─ records ─▶ state ─▶ view ─▶ terminal
//!   files, a pipe      a fold    pure    raw mode, keys, signals
//! ```
//!
//! Read-only: the training process is not affected.

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod keys;
mod source;
mod state;
mod terminal;
#[cfg(test)]
mod testing;
mod view;

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use self::keys::{Act, act};
use self::source::Source;
use self::state::State;
use self::terminal::{Input, Terminal};
use self::view::{Choice, Palette, Scene};
use crate::args::TopArgs;
use crate::{Context, EXIT_OK, EXIT_UNREADABLE, EXIT_USAGE};

/// Interval between two reads of the files. Records come once a second.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Interval between two draws while no records come: the screen shows how long that has been.
const IDLE_DRAW: Duration = Duration::from_secs(1);

/// Longest time for which reading a long history delays drawing.
const READ_AT_ONCE: Duration = Duration::from_millis(100);

/// Runs the command.
pub(crate) fn top(args: &TopArgs, context: &mut Context<'_>) -> io::Result<i32> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        let message = "`top` needs a terminal for its input and output (use `headspace report` to \
                       print the verdict once, also during a run)";
        return context.fail(message, EXIT_USAGE);
    }
    match Source::open(args.path.as_deref(), &context.runs) {
        Ok((source, place)) => {
            let app = App {
                source,
                place,
                palette: Palette::from_environment(),
                state: State::default(),
                frozen: None,
                choice: Choice::default(),
                trouble: None,
                scrolls: 0,
            };
            app.run(&mut Terminal::enter()?)
        }
        Err(error) => context.fail(error, EXIT_UNREADABLE),
    }
}

/// The main loop, which connects state and view.
struct App {
    source: Source,
    place: String,
    palette: Palette,
    state: State,
    /// The state shown while the view is paused, and its time.
    frozen: Option<(State, u64)>,
    choice: Choice,
    trouble: Option<String>,
    /// How many lines the list could be scrolled by when it was last drawn.
    scrolls: usize,
}

impl App {
    fn run(mut self, terminal: &mut Terminal) -> io::Result<i32> {
        let mut drawn: Option<Instant> = None;
        loop {
            let (came, more) = self.read_new_records();
            if came || drawn.is_none_or(|time| time.elapsed() >= IDLE_DRAW) {
                self.draw(terminal)?;
                drawn = Some(Instant::now());
            }
            let wait = if more { Duration::ZERO } else { POLL_INTERVAL };
            match terminal.wait(wait)? {
                Input::Nothing => {}
                Input::Signal(number) => return Ok(128 + number),
                Input::Resized => drawn = None,
                Input::Key(key) => {
                    let page = usize::from(terminal.height() / 2);
                    match act(key, page) {
                        Some(Act::Quit) => return Ok(EXIT_OK),
                        Some(act) => self.choose(act),
                        None => continue,
                    }
                    drawn = None;
                }
            }
        }
    }

    /// Reads new records. Returns whether there were any, and whether more are available already.
    fn read_new_records(&mut self) -> (bool, bool) {
        let began = Instant::now();
        let mut came = false;
        loop {
            match self.source.poll(&mut self.state) {
                Ok(polled) => {
                    came |= polled.came || self.trouble.take().is_some();
                    if !polled.more || began.elapsed() >= READ_AT_ONCE {
                        return (came, polled.more);
                    }
                }
                Err(error) => {
                    self.trouble = Some(error);
                    return (true, false);
                }
            }
        }
    }

    fn choose(&mut self, act: Act) {
        if act == Act::Pause {
            self.choice.paused = self.frozen.is_none();
            self.frozen = (self.choice.paused).then(|| (self.state.clone(), now()));
        } else {
            let ranks: Vec<u32> = self.shown().0.ranks.keys().copied().collect();
            self.choice = keys::chosen(self.choice, act, &ranks, self.scrolls);
        }
    }

    fn shown(&self) -> (&State, u64) {
        match &self.frozen {
            Some((state, at)) => (state, *at),
            None => (&self.state, now()),
        }
    }

    fn draw(&mut self, terminal: &mut Terminal) -> io::Result<()> {
        let (state, now_unix_nano) = self.shown();
        let scene = Scene {
            state,
            choice: self.choice,
            palette: self.palette,
            place: &self.place,
            trouble: self.trouble.as_deref(),
            now_unix_nano,
        };
        self.scrolls = terminal.draw(|frame| view::draw(frame, &scene))?;
        Ok(())
    }
}

/// The current time in nanoseconds since 1970-01-01 UTC.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}
