//! The hashes that Java's `String.hashCode` gives: of tags, and of keys in the index.

/// h = 31 * h + unit over the UTF-16 units, as a signed number of 32 bits.
pub fn java_hash(text: &str) -> i32 {
    more(0, text)
}

/// The hash of a longer text, of whose beginning the hash is known.
fn more(start: i32, text: &str) -> i32 {
    if text.is_ascii() {
        return text.bytes().fold(start, |hash, byte| step(hash, u16::from(byte)));
    }
    text.encode_utf16().fold(start, step)
}

fn step(hash: i32, unit: u16) -> i32 {
    hash.wrapping_mul(31).wrapping_add(i32::from(unit))
}

/// The hash of `topic#` to which that of a key is added.
pub fn topic_hash(topic: &str) -> i32 {
    step(java_hash(topic), u16::from(b'#'))
}

/// The hash of topic#key as the index holds it: without its sign, 0 for the one that has none.
pub fn key_hash(topic: i32, key: &str) -> i32 {
    more(topic, key).checked_abs().unwrap_or(0)
}
