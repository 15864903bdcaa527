//! Numbers in the text of a property, read as `daemons/broker/filters/numbers.py` reads them.

/// Why an evaluation ends without a result.
pub enum Stop {
    /// Java cannot compare these values: the message is not wanted.
    NotComparable,
    /// Python must process it.
    Unknown,
}

const INTEGER_LIMIT: i64 = 1 << 31;

/// Integer.valueOf.
pub fn integer(text: &[u8]) -> Result<i64, Stop> {
    let number = long(text)?;
    (-INTEGER_LIMIT..INTEGER_LIMIT).contains(&number).then_some(number).ok_or(Stop::NotComparable)
}

/// Long.valueOf.
pub fn long(text: &[u8]) -> Result<i64, Stop> {
    // Digits of other scripts count as well; Python knows them.
    let text = ascii(text).ok_or(Stop::Unknown)?;
    // In Rust's eyes, too, a sign and digits are a number, and nothing else is.
    text.parse().map_err(|_| Stop::NotComparable)
}

/// Double.valueOf.
pub fn double(text: &[u8]) -> Result<f64, Stop> {
    let text = ascii(text).ok_or(Stop::NotComparable)?.trim_matches(|one| one <= ' ');
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.starts_with("0x") || digits.starts_with("0X") {
        return Err(Stop::Unknown); // hexadecimal, which is rare
    }
    if digits == "NaN" || digits == "Infinity" {
        return text.parse().map_err(|_| Stop::NotComparable);
    }
    // Rust knows names, "inf" for one, that are none in Java.
    if !digits.starts_with(|one: char| one == '.' || one.is_ascii_digit()) {
        return Err(Stop::NotComparable);
    }
    text.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(text).parse().map_err(|_| Stop::NotComparable)
}

fn ascii(text: &[u8]) -> Option<&str> {
    if text.is_ascii() {
        std::str::from_utf8(text).ok()
    } else {
        None
    }
}
