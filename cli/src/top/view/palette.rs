//! Defines the styles of the screen: colours that are readable on a dark and on a light background, or none.

use ratatui::style::{Color, Modifier, Style};

/// The styles of the screen, by meaning. With `NO_COLOR` only weight and inversion are used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Palette {
    pub(crate) plain: Style,
    pub(crate) strong: Style,
    /// Labels and headings.
    pub(crate) label: Style,
    /// Compute time.
    pub(crate) compute: Style,
    /// Wait time.
    pub(crate) wait: Style,
    /// The floor.
    pub(crate) floor: Style,
    /// How full or busy something is.
    pub(crate) level: Style,
    pub(crate) warning: Style,
    /// The bars at the top and the bottom.
    pub(crate) bar: Style,
}

impl Palette {
    pub(crate) fn new(colour: bool) -> Self {
        let plain = Style::new();
        // Colours of the 256-colour palette with a lightness halfway between black and white.
        let coloured = |index| Style {
            fg: colour.then_some(Color::Indexed(index)),
            ..plain
        };
        Self {
            plain,
            strong: plain.add_modifier(Modifier::BOLD),
            label: coloured(244),
            compute: coloured(32),
            wait: coloured(166),
            floor: coloured(35).add_modifier(Modifier::BOLD),
            level: coloured(67),
            warning: coloured(166).add_modifier(Modifier::BOLD),
            bar: plain.add_modifier(Modifier::REVERSED),
        }
    }

    /// The palette for this environment: without colours if `NO_COLOR` is set to a non-empty value
    /// (no-color.org).
    pub(crate) fn from_environment() -> Self {
        Self::new(std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()))
    }
}
