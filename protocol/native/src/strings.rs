//! Strings of JSON: how far they go, and what they say without their escapes.

/// How many bytes stand before the first that is a quote, a backslash or a control character.
pub fn plain_bytes(bytes: &[u8]) -> usize {
    let mut eights = bytes.chunks_exact(8);
    for (number, eight) in eights.by_ref().enumerate() {
        let [a, b, c, d, e, f, g, h] = *eight else { break };
        let marks = special_bytes(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
        if marks != 0 {
            return number * 8 + marks.trailing_zeros() as usize / 8;
        }
    }
    let rest = eights.remainder();
    let is_plain = |byte: &&u8| !matches!(**byte, b'"' | b'\\' | ..=0x1F);
    bytes.len() - rest.len() + rest.iter().take_while(is_plain).count()
}

/// The highest bit of the lowest of eight bytes that is such a one; higher ones need not be right.
fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHEST: u64 = 0x8080_8080_8080_8080;
    let below = |word: u64, least: u8| word.wrapping_sub(ONES * u64::from(least)) & !word;
    let equal = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    (below(word, 0x20) | equal(b'"') | equal(b'\\')) & HIGHEST
}

/// A string without its escapes. `None` for escapes that JSON does not have, and halves of pairs.
pub fn unescaped(raw: &str) -> Option<String> {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        text.push_str(&rest[..at]);
        let letter = *rest.as_bytes().get(at + 1)?;
        let mut used = at + 2;
        text.push(match letter {
            b'"' | b'\\' | b'/' => letter as char,
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                used += 4;
                let digits = rest.get(at + 2..used)?;
                if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                    return None;
                }
                char::from_u32(u32::from_str_radix(digits, 16).ok()?)?
            }
            _ => return None,
        });
        rest = rest.get(used..)?;
    }
    text.push_str(rest);
    Some(text)
}
