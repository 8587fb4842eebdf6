//! Lines of text made without allocation, for handlers.

/// A line in place; what does not fit is cut off. Small, and never copied: signal stacks are.
pub(super) struct Line {
    bytes: [u8; 400],
    len: usize,
}

impl Line {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; 400], len: 0 }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        let count = bytes.len().min(self.bytes.len() - self.len);
        self.bytes[self.len..self.len + count].copy_from_slice(&bytes[..count]);
        self.len += count;
        self
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.raw(text.as_bytes())
    }

    pub(super) fn number(&mut self, number: impl Into<i64>) -> &mut Self {
        let number = number.into();
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut rest = number.unsigned_abs();
        loop {
            at -= 1;
            digits[at] = b"0123456789"[(rest % 10) as usize];
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if number < 0 {
            self.text("-");
        }
        self.raw(&digits[at..])
    }

    /// Writes it to standard error with a newline, in one call.
    pub(super) fn print(&mut self) {
        self.len = self.len.min(self.bytes.len() - 1);
        super::signals::write_stderr(self.text("\n").bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_text() {
        let mut line = Line::new();
        line.text("a ").number(0).text(" ").number(-17).text(" ").number(i64::MIN);
        assert_eq!(line.bytes(), b"a 0 -17 -9223372036854775808");
    }

    #[test]
    fn too_much_is_cut_off() {
        let mut line = Line::new();
        line.raw(&[b'x'; 600]).number(1);
        assert_eq!(line.bytes(), [b'x'; 400]);
    }
}
