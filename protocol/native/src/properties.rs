//! Properties of a message that is sent: `name 0x01 value 0x02 name 0x01 value`.

use crate::room::Room;

const MOST: usize = 32;

/// What a broker looks at, empty where it is not there.
#[derive(Default)]
pub struct Properties<'a> {
    pub tags: &'a str,
    pub keys: &'a str,
    pub unique: &'a str,
    pub wait: &'a str,
    /// Where WAIT is with the separator that goes with it.
    wait_at: (usize, usize),
    /// What is not stored.
    cut: (usize, usize),
    length: usize,
    count: usize,
}

impl<'a> Properties<'a> {
    /// Reads a text. `None` for one in which two names are equal, or a name or value is missing or
    /// has a separator or a zero in it, or that has an unusual name: Python reads that.
    pub fn read(text: &'a str, unusual: &[String]) -> Option<Properties<'a>> {
        if text.is_empty() {
            return Some(Properties::default());
        }
        // A long row of them, in a name as well, would look to a recovery as if it were not written.
        if memchr::memchr(0, text.as_bytes()).is_some() {
            return None;
        }
        let text = text.strip_suffix('\u{2}').unwrap_or(text);
        let mut found = Properties { length: text.len(), ..Properties::default() };
        let mut names = [""; MOST];
        let mut at = 0;
        for segment in text.split('\u{2}') {
            let (name, value) = segment.split_once('\u{1}')?;
            if name.is_empty()
                || value.is_empty()
                || value.contains('\u{1}')
                || found.count == MOST
                || names[..found.count].contains(&name)
                || is_unusual(name, unusual)
            {
                return None;
            }
            names[found.count] = name;
            found.count += 1;
            let end = at + segment.len();
            match name {
                "TAGS" => found.tags = value,
                "KEYS" => found.keys = value,
                "UNIQ_KEY" => found.unique = value,
                "WAIT" => {
                    found.wait = value;
                    // The separator behind the first one, or that before any other.
                    found.wait_at =
                        if at == 0 { (0, (end + 1).min(text.len())) } else { (at - 1, end) };
                }
                _ => {}
            }
            at = end + 1;
        }
        Some(found)
    }

    /// The same, to be stored without WAIT.
    pub fn without_wait(mut self) -> Self {
        self.cut = self.wait_at;
        self
    }

    pub fn has_only_wait_and_id(&self) -> bool {
        self.count == usize::from(!self.wait.is_empty()) + usize::from(!self.unique.is_empty())
    }

    /// How long what is stored is.
    pub fn stored_length(&self) -> usize {
        self.length - (self.cut.1 - self.cut.0)
    }

    /// Puts what is stored of the text that this was read from.
    pub fn store(&self, text: &str, room: &mut Room) {
        let raw = text.as_bytes();
        room.put(&raw[..self.cut.0]);
        room.put(&raw[self.cut.1..self.length]);
    }
}

/// Whether a name makes a message one for Python to look at; others are stored as they are.
fn is_unusual(name: &str, unusual: &[String]) -> bool {
    name.starts_with("TIMER_D") || unusual.iter().any(|one| one == name)
}
