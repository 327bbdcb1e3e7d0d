//! Colour, where a person is looking: standard output is a terminal and NO_COLOR is unset.

use std::io::IsTerminal;

/// Whether to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint(bool);

impl Paint {
    /// No colour.
    pub const PLAIN: Paint = Paint(false);

    /// As standard output and the environment ask.
    pub fn stdout() -> Paint {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Paint(!refused && std::io::stdout().is_terminal())
    }

    /// What failed.
    pub fn bad(self, text: &str) -> String {
        self.wrap("\x1b[1;31m", text)
    }

    /// What a reader looks for first.
    pub fn strong(self, text: &str) -> String {
        self.wrap("\x1b[1m", text)
    }

    /// What only frames the rest.
    pub fn faint(self, text: &str) -> String {
        self.wrap("\x1b[2m", text)
    }

    fn wrap(self, start: &str, text: &str) -> String {
        if self.0 { format!("{start}{text}\x1b[0m") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_stays_and_colour_ends_where_it_began() {
        assert_eq!(Paint::PLAIN.bad("x"), "x");
        assert_eq!(Paint(true).strong("x"), "\x1b[1mx\x1b[0m");
    }
}
