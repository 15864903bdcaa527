//! Properties of a message that is sent: `name 0x01 value 0x02 name 0x01 value`.

const MOST: usize = 32;

/// What a broker looks at.
#[derive(Default)]
pub struct Properties<'a> {
    pub tags: &'a str,
    pub keys: &'a str,
    pub unique: &'a str,
    pub wait: &'a str,
    /// Where WAIT is, which is not stored, with the separator that goes with it.
    cut: (usize, usize),
    length: usize,
}

/// Names that make a message one for Python to look at; other names are stored and not looked at.
pub fn is_unusual(name: &str, unusual: &[String]) -> bool {
    name.starts_with("TIMER_D") || unusual.iter().any(|one| one == name)
}

impl<'a> Properties<'a> {
    /// Reads a text. `None` for one in which two names are equal, or a name or value is missing or
    /// has a separator or a zero in it, or that has an unusual name: Python reads that.
    pub fn read(text: &'a str, unusual: &[String]) -> Option<Properties<'a>> {
        let text = text.strip_suffix('\u{2}').unwrap_or(text);
        let mut found = Properties { length: text.len(), ..Properties::default() };
        let mut names = [""; MOST];
        let mut at = 0;
        for (count, segment) in text.split('\u{2}').enumerate() {
            let (name, value) = segment.split_once('\u{1}')?;
            if name.is_empty()
                || value.is_empty()
                || value.contains(['\u{1}', '\0'])
                || count == MOST
                || names[..count].contains(&name)
                || is_unusual(name, unusual)
            {
                return None;
            }
            names[count] = name;
            match name {
                "TAGS" => found.tags = value,
                "KEYS" => found.keys = value,
                "UNIQ_KEY" => found.unique = value,
                "WAIT" => {
                    found.wait = value;
                    let end = at + segment.len();
                    // The separator behind the first one, or that before any other.
                    found.cut =
                        if at == 0 { (0, (end + 1).min(text.len())) } else { (at - 1, end) };
                }
                _ => {}
            }
            at += segment.len() + 1;
        }
        Some(found)
    }

    /// How long what is stored is.
    pub fn stored_length(&self) -> usize {
        self.length - (self.cut.1 - self.cut.0)
    }

    /// Appends what is stored of the text that this was read from.
    pub fn store(&self, text: &str, to: &mut Vec<u8>) {
        let raw = text.as_bytes();
        to.extend_from_slice(&raw[..self.cut.0]);
        to.extend_from_slice(&raw[self.cut.1..self.length]);
    }
}
