//! Defines the styles of the screen: colours that are readable on a dark and on a light background, or none.

use ratatui::style::{Color, Modifier, Style};

/// The styles of the screen, by meaning. With `NO_COLOR` only weight and inversion are used.
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

    /// The palette for this environment: without colours if `NO_COLOR` is set to a non-empty value
    /// (no-color.org).
    pub(crate) fn from_environment() -> Self {
        Self::new(std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()))
    }

    /// Colours of the 256-colour palette with a lightness halfway between black and white.
    fn colour(self, index: u8) -> Style {
        let colour = self.colour.then_some(Color::Indexed(index));
        Style {
            fg: colour,
            ..Style::new()
        }
    }

    pub(crate) fn plain(self) -> Style {
        Style::new()
    }

    pub(crate) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Labels and headings.
    pub(crate) fn label(self) -> Style {
        self.colour(244)
    }

    /// Compute time.
    pub(crate) fn compute(self) -> Style {
        self.colour(32)
    }

    /// Wait time.
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
