//! Extension fields of a header, found by their names.

use std::borrow::Cow;

/// Maximum number of fields: a send has fourteen.
const MOST: usize = 32;
/// So many take less than a kilobyte, which the allocator keeps at hand.
const USUAL: usize = 24;

/// Names and values as a header says them.
pub struct Fields<'a> {
    all: Vec<(&'a str, Cow<'a, str>)>,
    /// Behind which of them one is whose name is a letter, as all of a send are; 0 for none.
    letters: [u8; 128],
}

impl<'a> Fields<'a> {
    pub fn new() -> Self {
        Fields { all: Vec::with_capacity(USUAL), letters: [0; 128] }
    }

    /// Adds one. `None` if there is one of that name, or no room for more.
    pub fn push(&mut self, name: &'a str, value: Cow<'a, str>) -> Option<()> {
        if self.all.len() == MOST || self.get(name).is_some() {
            return None;
        }
        self.all.push((name, value));
        if let [letter @ ..=127] = name.as_bytes() {
            self.letters[usize::from(*letter)] = self.all.len() as u8;
        }
        Some(())
    }

    /// The value of one. `None` if there is no such field.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = match name.as_bytes() {
            [letter @ ..=127] => {
                let behind = usize::from(self.letters[usize::from(*letter)]);
                self.all.get(behind.checked_sub(1)?)
            }
            _ => self.all.iter().find(|(key, _)| *key == name),
        };
        found.map(|(_, value)| value.as_ref())
    }
}
