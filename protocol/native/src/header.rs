//! The header of a request in JSON, as far as the hot path reads it.
//!
//! Only what every client writes is understood: one object of numbers and strings, with one object
//! of strings in it. For all else there is `None`, and Python reads the request again with care. So
//! what is accepted here must mean the same there: no name twice, no number but whole ones, no
//! escape that is half of a pair.

use std::borrow::Cow;
use std::ops::Range;

/// Most extension fields that are looked at: a send has fourteen.
const MOST_FIELDS: usize = 32;
/// So many take less than a kilobyte, which the allocator keeps at hand.
const USUAL_FIELDS: usize = 24;

/// A header, its strings without their escapes.
pub struct Header<'a> {
    pub flag: i64,
    pub opaque: i64,
    fields: Vec<(&'a str, Cow<'a, str>)>,
}

impl<'a> Header<'a> {
    /// Reads a header. `None` for one that is not as every client writes it, or of another code.
    pub fn read(data: &'a [u8], is_wanted: fn(i64) -> bool) -> Option<Header<'a>> {
        let text = std::str::from_utf8(data).ok()?;
        let mut reader = Reader { text, at: 0 };
        let header = reader.header(is_wanted)?;
        reader.skip_blanks();
        (reader.at == text.len()).then_some(header)
    }

    /// The value of an extension field. `None` if there is no such field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_ref())
    }

    /// The value of a field that is a whole number as Java writes one.
    pub fn number(&self, name: &str) -> Option<i64> {
        whole_number(self.field(name)?)
    }
}

/// A header for who passes it on with another opaque: what it says, and where that stands.
pub struct Outline<'a> {
    pub code: i64,
    pub flag: i64,
    pub opaque: i64,
    pub opaque_at: Range<usize>,
    /// Where the first extension field begins; there is one at least.
    pub fields_at: Option<usize>,
    fields: Vec<(&'a str, Cow<'a, str>)>,
}

impl<'a> Outline<'a> {
    /// Reads a header. `None` for one that is not as every peer writes it.
    pub fn read(data: &'a [u8]) -> Option<Outline<'a>> {
        let text = std::str::from_utf8(data).ok()?;
        let mut reader = Reader { text, at: 0 };
        let outline = reader.outline()?;
        reader.skip_blanks();
        (reader.at == text.len()).then_some(outline)
    }

    /// The value of an extension field. `None` if there is no such field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_ref())
    }
}

/// A number in its shortest form: no sign but a minus, no zero before others.
pub fn whole_number(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = !digits.is_empty()
        && digits.len() <= 18
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits.len() == 1 || !digits.starts_with('0'))
        && text != "-0";
    if plain {
        text.parse().ok()
    } else {
        None
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn header(&mut self, is_wanted: fn(i64) -> bool) -> Option<Header<'a>> {
        let mut header = Header { flag: 0, opaque: 0, fields: Vec::with_capacity(USUAL_FIELDS) };
        let mut seen = 0u8;
        self.expect(b'{')?;
        loop {
            let name = self.plain_string()?;
            self.expect(b':')?;
            let bit = match name {
                "code" => {
                    if !is_wanted(self.number()?) {
                        return None;
                    }
                    1
                }
                "flag" => {
                    header.flag = self.number()?;
                    2
                }
                "opaque" => {
                    header.opaque = self.number()?;
                    4
                }
                "extFields" => {
                    self.fields(&mut header)?;
                    8
                }
                _ => {
                    self.skip_scalar()?;
                    0
                }
            };
            if seen & bit != 0 {
                return None;
            }
            seen |= bit;
            match self.next()? {
                b',' => continue,
                b'}' => break,
                _ => return None,
            }
        }
        (seen == 15).then_some(header)
    }

    fn outline(&mut self) -> Option<Outline<'a>> {
        let (mut code, mut flag, mut opaque) = (None, None, None);
        let (mut opaque_at, mut fields_at) = (0..0, None);
        let mut fields = Header { flag: 0, opaque: 0, fields: Vec::with_capacity(USUAL_FIELDS) };
        self.expect(b'{')?;
        loop {
            let name = self.plain_string()?;
            self.expect(b':')?;
            let is_new = match name {
                "code" => code.replace(self.number()?).is_none(),
                "flag" => flag.replace(self.number()?).is_none(),
                "opaque" => {
                    self.skip_blanks();
                    let begin = self.at;
                    let is_new = opaque.replace(self.number()?).is_none();
                    opaque_at = begin..self.at;
                    is_new
                }
                "extFields" => {
                    self.skip_blanks();
                    let is_new = fields_at.replace(self.at + 1).is_none();
                    self.fields(&mut fields)?;
                    is_new
                }
                _ => {
                    self.skip_scalar()?;
                    true
                }
            };
            if !is_new {
                return None;
            }
            match self.next()? {
                b',' => continue,
                b'}' => break,
                _ => return None,
            }
        }
        let (code, flag, opaque) = (code?, flag?, opaque?);
        let fields = fields.fields;
        Some(Outline { code, flag, opaque, opaque_at, fields_at, fields })
    }

    fn fields(&mut self, header: &mut Header<'a>) -> Option<()> {
        self.expect(b'{')?;
        loop {
            let name = self.plain_string()?;
            self.expect(b':')?;
            let value = self.string()?;
            let fields = &mut header.fields;
            if fields.len() == MOST_FIELDS || fields.iter().any(|(key, _)| *key == name) {
                return None;
            }
            fields.push((name, value));
            match self.next()? {
                b',' => continue,
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    fn skip_blanks(&mut self) {
        let rest = &self.text.as_bytes()[self.at..];
        self.at +=
            rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
    }

    /// The next byte that is no blank.
    fn next(&mut self) -> Option<u8> {
        self.skip_blanks();
        let byte = *self.text.as_bytes().get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn expect(&mut self, wanted: u8) -> Option<()> {
        (self.next()? == wanted).then_some(())
    }

    /// A string without escapes: the names that every client writes.
    fn plain_string(&mut self) -> Option<&'a str> {
        match self.string()? {
            Cow::Borrowed(text) => Some(text),
            Cow::Owned(_) => None,
        }
    }

    /// A string without its escapes: what is not used must be right, too, for Python refuses the
    /// whole header otherwise.
    fn string(&mut self) -> Option<Cow<'a, str>> {
        self.expect(b'"')?;
        let bytes = self.text.as_bytes();
        let start = self.at;
        let mut escaped = false;
        loop {
            match *bytes.get(self.at)? {
                b'"' => break,
                b'\\' => {
                    escaped = true;
                    self.at += 2;
                }
                byte if byte < 0x20 => return None,
                _ => self.at += 1,
            }
        }
        let raw = self.text.get(start..self.at)?;
        self.at += 1;
        if escaped {
            unescaped(raw).map(Cow::Owned)
        } else {
            Some(Cow::Borrowed(raw))
        }
    }

    fn number(&mut self) -> Option<i64> {
        self.skip_blanks();
        let rest = &self.text[self.at..];
        let length = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'-').count();
        self.at += length;
        whole_number(&rest[..length])
    }

    fn skip_scalar(&mut self) -> Option<()> {
        self.skip_blanks();
        match self.text.as_bytes().get(self.at)? {
            b'"' => self.string().map(drop),
            b'-' | b'0'..=b'9' => self.number().map(drop),
            _ => None,
        }
    }
}

/// A string without its escapes. `None` for escapes that JSON does not have, and halves of pairs.
fn unescaped(raw: &str) -> Option<String> {
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
