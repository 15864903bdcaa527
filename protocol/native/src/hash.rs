//! The hashes that Java's `String.hashCode` gives: of tags, and of keys in the index.

/// h = 31 * h + unit over the UTF-16 units, as a signed number of 32 bits.
pub fn java_hash(text: &str) -> i32 {
    more(0, text)
}

/// The hash of a longer text, of whose beginning the hash is known.
fn more(start: i32, text: &str) -> i32 {
    if text.is_ascii() {
        return ascii(start, text.as_bytes());
    }
    text.encode_utf16().fold(start, step)
}

/// Four at a time, for each sum has to wait for the one before it.
fn ascii(start: i32, text: &[u8]) -> i32 {
    let mut fours = text.chunks_exact(4);
    let hash = fours.by_ref().fold(start, |hash, four| {
        let [a, b, c, d] = [0, 1, 2, 3].map(|at: usize| i32::from(four[at]));
        hash.wrapping_mul(923_521).wrapping_add(29_791 * a + 961 * b + 31 * c + d)
    });
    fours.remainder().iter().fold(hash, |hash, byte| step(hash, u16::from(*byte)))
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
