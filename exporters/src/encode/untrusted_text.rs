//! Characters that must not reach a terminal or a page in a name, a path or a notice.

/// Whether the character moves the cursor, or reverses the direction of text.
pub fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
