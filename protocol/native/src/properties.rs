//! Properties of a message that is sent: `name 0x01 value 0x02 name 0x01 value`.

use crate::room::Room;

const MOST: usize = 32;

/// The properties that a broker reads; empty if missing.
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
        let (mut at, mut name_end) = (0, None);
        let separators = memchr::memchr2_iter(1, 2, text.as_bytes());
        for end in separators.chain([text.len()]) {
            if text.as_bytes().get(end) == Some(&1) {
                if name_end.replace(end).is_some() {
                    return None;
                }
                continue;
            }
            let behind_name = name_end.take()?;
            let (name, value) = (text.get(at..behind_name)?, text.get(behind_name + 1..end)?);
            if name.is_empty()
                || value.is_empty()
                || found.count == MOST
                || names[..found.count].iter().any(|one| are_equal(one, name))
                || is_unusual(name, unusual)
            {
                return None;
            }
            names[found.count] = name;
            found.count += 1;
            match name {
                "TAGS" => found.tags = value,
                "KEYS" => found.keys = value,
                "UNIQ_KEY" => found.unique = value,
                "WAIT" => {
                    found.wait = value;
                    // The separator after the first one, or that before any other.
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

/// Whether a name makes Python process a message; others are stored as they are.
fn is_unusual(name: &str, unusual: &[String]) -> bool {
    name.starts_with("TIMER_D") || unusual.iter().any(|one| are_equal(one, name))
}

/// Lengths or prefixes usually differ, which costs less than a comparison.
fn are_equal(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.as_bytes().first() == other.as_bytes().first() && one == other
}
