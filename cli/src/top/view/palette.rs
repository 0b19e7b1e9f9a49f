//! Colours that can be read on a dark and on a light background, or none.

use ratatui::style::{Color, Modifier, Style};

/// The styles of the screen, asked for by meaning. With `NO_COLOR` set only weight and inversion are left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Palette {
    colour: bool,
}

#[expect(
    clippy::unused_self,
    reason = "which styles have a colour is the palette's to know"
)]
impl Palette {
    pub(crate) fn new(colour: bool) -> Self {
        Self { colour }
    }

    /// The palette that the environment asks for: without colours where `NO_COLOR` is set to
    /// anything (no-color.org).
    pub(crate) fn of_environment() -> Self {
        Self::new(std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()))
    }

    /// Colours of the 256 that lie in the middle between black and white.
    fn colour(self, index: u8) -> Style {
        if self.colour {
            Style::new().fg(Color::Indexed(index))
        } else {
            Style::new()
        }
    }

    pub(crate) fn plain(self) -> Style {
        Style::new()
    }

    pub(crate) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Labels and heads.
    pub(crate) fn label(self) -> Style {
        self.colour(244)
    }

    /// Time that the loop works.
    pub(crate) fn compute(self) -> Style {
        self.colour(32)
    }

    /// Time that the loop waits.
    pub(crate) fn wait(self) -> Style {
        self.colour(166)
    }

    /// The floor.
    pub(crate) fn floor(self) -> Style {
        self.colour(35).add_modifier(Modifier::BOLD)
    }

    /// How full or busy something is.
    pub(crate) fn level(self) -> Style {
        self.colour(67)
    }

    pub(crate) fn warning(self) -> Style {
        self.colour(166).add_modifier(Modifier::BOLD)
    }

    /// The bars at the top and the bottom.
    pub(crate) fn bar(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}
