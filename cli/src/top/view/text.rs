//! Formats cells, bars and lines of text with a fixed width.

use headspace_agent::wording::units::{duration_ms, percent};
use headspace_exporters::encode::terminal_text::{self as text, keep_beginning};
use ratatui::text::Span;

use super::Palette;

const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The block character whose lower part is filled by `share`, in `[0, 1]`.
pub(super) fn eighth(share: f64) -> char {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and 8"
    )]
    let index = (share.clamp(0.0, 1.0) * 8.0).round() as usize;
    EIGHTHS.get(index).copied().unwrap_or(' ')
}

/// `share` (in `[0, 1]`) of `width` cells, rounded; at least one cell if the share is above zero.
pub(super) fn cells(share: f64, width: usize) -> usize {
    if share.is_nan() || share <= 0.0 {
        return 0;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and as wide as a screen"
    )]
    let filled = (share.min(1.0) * width as f64).round() as usize;
    filled.max(1)
}

/// Width of a bar, in columns.
pub(super) const BAR: usize = 10;

/// A bar such as `████······`, filled to `share` (in `[0, 1]`).
pub(super) fn bar(share: f64, palette: Palette) -> [Span<'static>; 2] {
    let filled = cells(share, BAR).min(BAR);
    [
        Span::styled("█".repeat(filled), palette.level),
        Span::styled("·".repeat(BAR - filled), palette.label),
    ]
}

/// A share in percent without decimals: `42 %`.
pub(super) fn share_pct(share: f64) -> String {
    format!("{} %", percent(share * 100.0, 0))
}

/// A duration, or `-` if it was not measured.
pub(super) fn ms_or_dash(ms: Option<f64>) -> String {
    ms.map_or_else(|| "-".to_owned(), duration_ms)
}

/// A sparkline of values between 0 and `most`, newest last, right-aligned in `width` cells.
pub(super) fn spark(values: &[f64], most: f64, width: usize) -> String {
    let skip = values.len().saturating_sub(width);
    let shown = values.iter().skip(skip);
    let levels: String = shown
        .map(|value| match value / most.max(f64::MIN_POSITIVE) {
            share if share > 0.0 => eighth(share.max(0.125)),
            _ => '▁',
        })
        .collect();
    format!("{levels:>width$}")
}

/// Left-aligns text in exactly `width` columns. Text that is too long keeps its beginning.
pub(super) fn left(text: &str, width: usize) -> String {
    text::left(&keep_beginning(text, width), width)
}

/// Wraps words into lines of at most `width` columns.
pub(super) fn wrapped(words: &str, width: usize) -> impl Iterator<Item = String> {
    let lines = text::wrap("", words, width);
    lines
        .into_iter()
        .map(move |line| keep_beginning(&line, width))
}

/// Seconds as a clock time: `0:07`, `12:05`, `3:20:00`.
pub(super) fn clock(seconds: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` saturates, and a run began at 0"
    )]
    let all = seconds as u64;
    let (hours, minutes, seconds) = (all / 3600, all / 60 % 60, all % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_a_fixed_width_and_shows_the_smallest_share() {
        for (share, filled) in [(0.0, 0), (0.001, 1), (0.5, 5), (1.0, 10), (7.0, 10)] {
            let spans = bar(share, Palette::new(false));
            assert_eq!(spans[0].content.chars().count(), filled, "{share}");
            assert_eq!(spans[0].width() + spans[1].width(), BAR);
        }
    }

    #[test]
    fn text_keeps_its_columns_also_where_characters_are_wide() {
        assert_eq!(left("解码解码", 5), "解码…");
        assert_eq!(left("ab\ncd", 6), "ab cd ");
        assert_eq!(spark(&[0.0, 4.0, 8.0], 8.0, 4), " ▁▄█");
        assert_eq!(clock(7.9), "0:07");
        assert_eq!(clock(12_000.0), "3:20:00");
    }
}
