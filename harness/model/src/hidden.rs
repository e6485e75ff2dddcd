//! Characters that say nothing and change what is shown.

/// Whether a character is not shown itself and does something to what is: it moves the cursor, rings the bell, or turns the
/// direction of text, so that a line reads as another one.
pub fn is_hidden(c: char) -> bool {
    let turns = ['\u{61c}', '\u{200e}', '\u{200f}'].contains(&c)
        || ('\u{202a}'..='\u{202e}').contains(&c)
        || ('\u{2066}'..='\u{2069}').contains(&c);
    turns || c.is_control()
}
