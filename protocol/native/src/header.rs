//! The header of a request in JSON, as far as the hot path reads it.
//!
//! Only what every client writes is understood: one object of numbers and strings, with one object
//! of strings in it. For all else there is `None`, and Python reads the request again with care. So
//! what is accepted here must mean the same there: no name twice, no number but whole ones, no
//! escape that is half of a pair.

use std::borrow::Cow;
use std::ops::Range;

use crate::fields::Fields;
use crate::strings::{plain_bytes, unescaped};

/// A header, its strings without their escapes.
pub struct Header<'a> {
    pub code: i64,
    pub flag: i64,
    pub opaque: i64,
    /// Whether what the hot path does not read is as it must be in a command, too.
    pub is_sound: bool,
    pub fields: Fields<'a>,
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
        self.fields.get(name)
    }

    /// The value of a field that is a whole number as Java writes one.
    pub fn number(&self, name: &str) -> Option<i64> {
        whole_number(self.field(name)?)
    }
}

/// A header that is forwarded with another opaque: its values and their positions.
pub struct Outline<'a> {
    pub code: i64,
    pub flag: i64,
    pub opaque: i64,
    pub opaque_at: Range<usize>,
    /// Where the first extension field begins; there is one at least.
    pub fields_at: Option<usize>,
    fields: Fields<'a>,
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
        self.fields.get(name)
    }
}

/// A number in its shortest form: no sign but a minus, no zero before others.
pub fn whole_number(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    let is_negative = digits.len() < text.len();
    let plain = match digits {
        [b'0'] => !is_negative,
        [first, ..] => *first != b'0' && digits.len() <= 18,
        [] => false,
    };
    if !plain {
        return None;
    }
    let mut number = 0;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + i64::from(digit);
    }
    Some(if is_negative { -number } else { number })
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn header(&mut self, is_wanted: fn(i64) -> bool) -> Option<Header<'a>> {
        let fields = Fields::new();
        let mut header = Header { code: 0, flag: 0, opaque: 0, is_sound: true, fields };
        let mut seen = 0u8;
        self.expect(b'{')?;
        loop {
            let name = self.name()?;
            let bit = match name {
                "code" => {
                    header.code = self.number()?;
                    if !is_wanted(header.code) {
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
                    self.fields(&mut header.fields)?;
                    8
                }
                name => {
                    let is_text = self.skip_scalar()?;
                    header.is_sound &= match name {
                        "version" => !is_text,
                        "remark" => is_text,
                        _ => true,
                    };
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
        let mut fields = Fields::new();
        self.expect(b'{')?;
        loop {
            let name = self.name()?;
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
        Some(Outline { code, flag, opaque, opaque_at, fields_at, fields })
    }

    fn fields(&mut self, fields: &mut Fields<'a>) -> Option<()> {
        self.expect(b'{')?;
        loop {
            let name = self.name()?;
            let value = self.string()?;
            fields.push(name, value)?;
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

    /// The next byte that is not a blank.
    fn next(&mut self) -> Option<u8> {
        self.skip_blanks();
        let byte = *self.text.as_bytes().get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn expect(&mut self, wanted: u8) -> Option<()> {
        (self.next()? == wanted).then_some(())
    }

    /// A name, without escapes as every client writes it, and the colon after it.
    fn name(&mut self) -> Option<&'a str> {
        let rest = self.text.as_bytes().get(self.at..self.at + 4);
        if let Some([b'"', b'a'..=b'z', b'"', b':']) = rest {
            self.at += 4; // as all names of a send
            return self.text.get(self.at - 3..self.at - 2);
        }
        let Cow::Borrowed(name) = self.string()? else { return None };
        self.expect(b':')?;
        Some(name)
    }

    /// A string without its escapes: what is not used must be right, too, for Python refuses the
    /// whole header otherwise.
    fn string(&mut self) -> Option<Cow<'a, str>> {
        self.expect(b'"')?;
        let bytes = self.text.as_bytes();
        let start = self.at;
        let mut escaped = false;
        loop {
            self.at += plain_bytes(bytes.get(self.at..)?);
            match *bytes.get(self.at)? {
                b'"' => break,
                b'\\' => {
                    escaped = true;
                    self.at += 2;
                }
                _ => return None, // a control character
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

    /// Skips a string or a number; returns whether it is a string.
    fn skip_scalar(&mut self) -> Option<bool> {
        self.skip_blanks();
        match self.text.as_bytes().get(self.at)? {
            b'"' => self.string().map(|_| true),
            b'-' | b'0'..=b'9' => self.number().map(|_| false),
            _ => None,
        }
    }
}
