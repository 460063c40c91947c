//! Blame: the text that `dconf blame` prints, in bounded memory.

/// Records calls while blame is on.
#[derive(Debug)]
pub struct Blame {
    text: String,
    most_bytes: usize,
}

/// One call to record.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The sender's unique bus name.
    pub sender: &'a str,
    /// The object that was called.
    pub object_path: &'a str,
    /// `Init`, `Change` or `Blame`.
    pub method: &'a str,
    /// The parameters as GVariant text.
    pub parameters: &'a str,
    /// The sender's process id, or why it is not known.
    pub pid: Result<u32, &'a str>,
}

impl Blame {
    /// Starts a record of at most `most_bytes` bytes; the oldest calls are dropped first.
    #[must_use]
    pub fn new(most_bytes: usize) -> Blame {
        Blame { text: String::new(), most_bytes }
    }

    /// Records one call.
    pub fn record(&mut self, call: Call<'_>) {
        let _ = (call, self.most_bytes);
        todo!()
    }

    /// Returns everything that is still recorded, oldest first.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}
