//! Values made of bytes, for what is no text.

/// Takes values from the front; when the bytes are used up, all that comes is 0 or empty.
pub struct Dice<'a>(pub &'a [u8]);

impl<'a> Dice<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or_default()
    }

    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n
    }

    pub fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Its length comes first.
    pub fn some(&mut self) -> &'a [u8] {
        let n = usize::from(self.byte());
        self.bytes(n)
    }

    pub fn text(&mut self) -> String {
        String::from_utf8_lossy(self.some()).into_owned()
    }

    /// Small ones and those at the borders of 64 bits come more often than others.
    pub fn int(&mut self) -> i64 {
        match self.byte() {
            0xFF => i64::MAX,
            0xFE => i64::MIN,
            0xFD => self.bytes(8).iter().fold(0, |n, byte| n << 8 | i64::from(*byte)),
            small => i64::from(small as i8),
        }
    }
}
