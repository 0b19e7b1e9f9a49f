//! Draws a run as `top` does, without a terminal.

use std::path::Path;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;

use super::source::Source;
use super::state::State;
use super::view::{Choice, Palette, Scene, Shown, draw};

/// Sizes of screens: one and two columns of lists, and one that is too small.
const SIZES: [(u16, u16); 3] = [(80, 24), (160, 50), (12, 5)];

/// The screens of the run at `path`: each size, with each choice of what is shown. A screen is the text of its cells.
pub fn screens(path: &Path) -> Vec<String> {
    let mut state = State::default();
    let Ok((mut source, place)) = Source::open(Some(path), path) else {
        return Vec::new();
    };
    let trouble = loop {
        match source.poll(&mut state) {
            Ok(polled) if polled.more => {}
            Ok(_) => break None,
            Err(error) => break Some(error),
        }
    };
    let one = Choice::default();
    let choices = [
        one,
        Choice {
            shown: Shown::All,
            ..one
        },
        Choice {
            verdict: true,
            ..one
        },
        Choice {
            shown: Shown::Rank(1),
            whole: true,
            scroll: 3,
            ..one
        },
    ];
    let drawn = choices.iter().flat_map(|choice| {
        let scene = Scene {
            state: &state,
            choice: *choice,
            palette: Palette::new(false),
            place: &place,
            trouble: trouble.as_deref(),
            now_unix_nano: 1_795_253_461_000_000_000,
        };
        SIZES.map(|size| screen(&scene, size))
    });
    drawn.collect()
}

fn screen(scene: &Scene<'_>, (columns, lines): (u16, u16)) -> String {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(columns, lines));
    let Ok(_) = terminal.draw(|frame| {
        draw(frame, scene);
    });
    let cells = terminal.backend().buffer().content();
    cells.iter().map(Cell::symbol).collect()
}
