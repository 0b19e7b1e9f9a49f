//! Sets up the terminal, and restores it however the command ends.

use std::io;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crossterm::cursor::Show;
use crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use crossterm::execute;
use crossterm::terminal::LeaveAlternateScreen;
use ratatui::{DefaultTerminal, Frame};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// What happened during the wait.
#[derive(Debug, Clone, Copy)]
pub(super) enum Input {
    /// The timeout has passed.
    Nothing,
    Key(KeyEvent),
    Resized,
    /// A signal that ends the command, with its number.
    Signal(i32),
}

/// A terminal in raw mode with the alternate screen.
pub(super) struct Terminal {
    inner: DefaultTerminal,
    /// The last signal that ends the command; 0 if there was none.
    signal: Arc<AtomicUsize>,
    handlers: Vec<signal_hook::SigId>,
}

impl Terminal {
    /// Enters raw mode and the alternate screen.
    pub(super) fn enter() -> io::Result<Self> {
        let signal = Arc::new(AtomicUsize::new(0));
        let mut handlers = Vec::new();
        for number in [SIGINT, SIGTERM, SIGHUP] {
            let stored = usize::try_from(number).unwrap_or(0);
            let flag = Arc::clone(&signal);
            handlers.push(signal_hook::flag::register_usize(number, flag, stored)?);
        }
        // `try_init` also sets a hook that prints the message of a panic on the normal screen.
        let inner = ratatui::try_init().inspect_err(|_| give_back())?;
        Ok(Self {
            inner,
            signal,
            handlers,
        })
    }

    /// Height of the screen in lines.
    pub(super) fn height(&self) -> u16 {
        self.inner.size().map_or(24, |size| size.height)
    }

    /// Draws the screen. Returns the result of `draw`.
    pub(super) fn draw<T: Default>(
        &mut self,
        draw: impl FnOnce(&mut Frame<'_>) -> T,
    ) -> io::Result<T> {
        let mut answer = T::default();
        self.inner.draw(|frame| answer = draw(frame))?;
        Ok(answer)
    }

    /// Waits for an event for at most `time`.
    pub(super) fn wait(&mut self, time: Duration) -> io::Result<Input> {
        let polled = event::poll(time);
        if let Ok(number @ 1..) = i32::try_from(self.signal.load(Ordering::Relaxed)) {
            return Ok(Input::Signal(number));
        }
        match polled {
            Ok(true) => {}
            Ok(false) => return Ok(Input::Nothing),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Input::Nothing),
            Err(error) => return Err(error),
        }
        Ok(match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => Input::Key(key),
            Event::Resize(..) => Input::Resized,
            _ => Input::Nothing,
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back();
        for handler in self.handlers.drain(..) {
            signal_hook::low_level::unregister(handler);
        }
        if !std::thread::panicking() {
            // Restore the hook that prints.
            drop(panic::take_hook());
        }
    }
}

/// Leaves raw mode and the alternate screen. Errors are ignored, because nothing can be done about
/// them.
fn give_back() {
    let _ = ratatui::try_restore();
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
}
