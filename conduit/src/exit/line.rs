//! Lines of text made without allocation, for handlers.

use std::fmt::{self, Write};

/// A line in place; what does not fit is cut off. Small, and never copied: signal stacks are.
struct Line {
    bytes: [u8; 400],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let count = text.len().min(self.bytes.len() - self.len);
        self.bytes[self.len..self.len + count].copy_from_slice(&text.as_bytes()[..count]);
        self.len += count;
        Ok(())
    }
}

impl Line {
    fn of(text: fmt::Arguments<'_>) -> Self {
        let mut line = Self { bytes: [0; 400], len: 0 };
        let _ = line.write_fmt(text);
        line.len = line.len.min(line.bytes.len() - 1);
        let _ = line.write_str("\n");
        line
    }
}

/// Writes it to standard error with a newline, in one call.
pub(super) fn print_line(text: fmt::Arguments<'_>) {
    let line = Line::of(text);
    super::signals::write_stderr(&line.bytes[..line.len]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_text() {
        let line = Line::of(format_args!("a {} {} {}", 0, -17, i64::MIN));
        assert_eq!(&line.bytes[..line.len], b"a 0 -17 -9223372036854775808\n");
    }

    #[test]
    fn too_much_is_cut_off() {
        let line = Line::of(format_args!("{}{}", "x".repeat(600), 1));
        let (text, end) = line.bytes[..line.len].split_at(399);
        assert_eq!((text, end), ([b'x'; 399].as_slice(), b"\n".as_slice()));
    }
}
