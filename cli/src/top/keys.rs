//! Maps keys to what the user chose to see.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::view::{Choice, Shown};

/// The action for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Quit,
    Pause,
    Up(usize),
    Down(usize),
    First,
    Last,
    NextRank,
    Rank(u32),
    All,
    Whole,
    Verdict,
    Help,
    /// Return from a page to the run.
    Back,
}

/// The action for a key, where a page is `page` lines. `None` if the key has no meaning.
pub(super) fn act(key: KeyEvent, page: usize) -> Option<Act> {
    let page = page.max(1);
    Some(match key.code {
        KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => Act::Quit,
        KeyCode::Char('q') => Act::Quit,
        KeyCode::Char('p' | ' ') => Act::Pause,
        KeyCode::Up | KeyCode::Char('k') => Act::Up(1),
        KeyCode::Down | KeyCode::Char('j') => Act::Down(1),
        KeyCode::PageUp => Act::Up(page),
        KeyCode::PageDown => Act::Down(page),
        KeyCode::Home => Act::First,
        KeyCode::End => Act::Last,
        KeyCode::Tab => Act::NextRank,
        KeyCode::Char('a') => Act::All,
        KeyCode::Char('w') => Act::Whole,
        KeyCode::Char('v') => Act::Verdict,
        KeyCode::Char('?' | 'h') => Act::Help,
        KeyCode::Esc => Act::Back,
        KeyCode::Char(c) => Act::Rank(c.to_digit(10)?),
        _ => return None,
    })
}

/// The choice after an action other than quitting and pausing. The list can be scrolled by `scrolls`
/// lines.
pub(super) fn chosen(before: Choice, act: Act, ranks: &[u32], scrolls: usize) -> Choice {
    let mut choice = before;
    let scroll = choice.scroll.min(scrolls);
    choice.scroll = match act {
        Act::Up(lines) => scroll.saturating_sub(lines),
        Act::Down(lines) => (scroll + lines).min(scrolls),
        Act::Last => scrolls,
        _ => 0,
    };
    match act {
        Act::Whole => choice.whole = !choice.whole,
        Act::Help => choice.help = !choice.help,
        Act::Verdict => choice.verdict = !choice.verdict,
        Act::Back => (choice.help, choice.verdict) = (false, false),
        Act::All => choice.shown = Shown::All,
        Act::Rank(rank) if ranks.contains(&rank) => choice.shown = Shown::Rank(rank),
        Act::NextRank if ranks.len() > 1 => {
            choice.shown = match choice.shown {
                Shown::All => Shown::Rank(ranks.first().copied().unwrap_or(0)),
                Shown::Rank(shown) => match ranks.iter().find(|rank| **rank > shown) {
                    Some(next) => Shown::Rank(*next),
                    None => Shown::All,
                },
            };
        }
        _ => {}
    }
    choice
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(acts: &[Act], ranks: &[u32], scrolls: usize) -> Choice {
        let start = Choice::default();
        acts.iter()
            .fold(start, |c, act| chosen(c, *act, ranks, scrolls))
    }

    #[test]
    fn tab_cycles_through_the_ranks_and_the_view_of_all_ranks() {
        let ranks = [0, 2, 5];
        let shown = |tabs: usize| after(&vec![Act::NextRank; tabs], &ranks, 0).shown;
        assert_eq!(
            (0..5).map(shown).collect::<Vec<_>>(),
            [
                Shown::Rank(0),
                Shown::Rank(2),
                Shown::Rank(5),
                Shown::All,
                Shown::Rank(0)
            ]
        );
        assert_eq!(after(&[Act::Rank(5)], &ranks, 0).shown, Shown::Rank(5));
        assert_eq!(after(&[Act::Rank(4)], &ranks, 0).shown, Shown::Rank(0));
        assert_eq!(after(&[Act::NextRank], &[0], 0).shown, Shown::Rank(0));
    }

    #[test]
    fn scrolling_ends_where_the_list_does_and_begins_anew_on_another_page() {
        assert_eq!(after(&[Act::Down(9)], &[], 4).scroll, 4);
        assert_eq!(after(&[Act::Down(9), Act::Up(1)], &[], 4).scroll, 3);
        assert_eq!(after(&[Act::Last, Act::Help], &[], 4).scroll, 0);
        assert!(!after(&[Act::Help, Act::Verdict, Act::Back], &[], 4).help);
    }

    #[test]
    fn control_c_quits_and_keys_without_meaning_do_nothing() {
        let key = |code, with| act(KeyEvent::new(code, with), 10);
        assert_eq!(
            key(KeyCode::Char('c'), KeyModifiers::CONTROL),
            Some(Act::Quit)
        );
        assert_eq!(key(KeyCode::Char('x'), KeyModifiers::NONE), None);
        assert_eq!(
            key(KeyCode::Char('7'), KeyModifiers::NONE),
            Some(Act::Rank(7))
        );
    }
}
