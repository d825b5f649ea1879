//! What was promised of files: the versions of each since the one that was promised last.

/// A file's versions, the oldest one promised.
#[derive(Debug)]
pub struct Versions(Vec<Vec<u8>>);

impl Versions {
    /// A file with these bytes, durably.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(vec![bytes])
    }

    /// As all see it now.
    #[must_use]
    pub fn now(&self) -> &[u8] {
        self.0.last().expect("there is one")
    }

    /// Bytes are written.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        let mut next = self.now().to_vec();
        next.resize(next.len().max(offset + bytes.len()), 0);
        next[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.0.push(next);
    }

    /// It gets another size.
    pub fn cut(&mut self, size: usize) {
        let mut next = self.now().to_vec();
        next.resize(size, 0);
        self.0.push(next);
    }

    /// What there is now is promised.
    pub fn promise(&mut self) {
        self.0.drain(..self.0.len() - 1);
    }

    /// A crash left this: each byte is as it was when it was promised, or as it was since.
    ///
    /// # Errors
    /// What is not.
    pub fn judge(&self, found: &[u8]) -> Result<(), String> {
        if !self.0.iter().any(|version| version.len() == found.len()) {
            let sizes: Vec<_> = self.0.iter().map(Vec::len).collect();
            return Err(format!("{} bytes, and it had {sizes:?} since the promise", found.len()));
        }
        // Most of a file is as it is now.
        let now = self.now();
        for (at, byte) in found.iter().enumerate().filter(|(at, byte)| now.get(*at) != Some(byte)) {
            let had = |version: &Vec<u8>| version.get(at).copied().unwrap_or(0);
            if !self.0.iter().any(|version| had(version) == *byte) {
                let all: Vec<u8> = self.0.iter().map(had).collect();
                return Err(format!("byte {at} is {byte}, and it was {all:?} since the promise"));
            }
        }
        Ok(())
    }
}

/// Something that has one value after the other, such as a name: the last one, and the one that was
/// promised last.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// The last value.
    pub now: u32,
    promised: u32,
}

impl Counted {
    /// What there is now is promised.
    pub fn promise(&mut self) {
        self.promised = self.now;
    }

    /// A crash left this value.
    ///
    /// # Errors
    /// It is older than what was promised, or none.
    pub fn judge(&self, found: Option<u32>) -> Result<(), String> {
        match found {
            Some(found) if (self.promised..=self.now).contains(&found) => Ok(()),
            other => Err(format!("it is {other:?}, and {self:?}")),
        }
    }
}
