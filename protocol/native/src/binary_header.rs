//! The header of a request in RocketMQ's binary form, as far as the hot path reads it.
//!
//! It says the same as one in JSON (header.rs). Input that Python would refuse, or read otherwise than
//! other readers may (a duplicate name, bytes after the fields) is `None`.

use crate::fields::Fields;
use crate::header::Header;

/// Reads a header. `None` for one that is not as every client writes it, or of another code.
pub fn read<'a>(data: &'a [u8], is_wanted: fn(i64) -> bool) -> Option<Header<'a>> {
    let mut reader = Reader { rest: data };
    let code = i64::from(i16::from_be_bytes(reader.array()?));
    if !is_wanted(code) {
        return None;
    }
    let [_language] = reader.array()?;
    let _version: [u8; 2] = reader.array()?;
    let opaque = i64::from(i32::from_be_bytes(reader.array()?));
    let flag = i64::from(i32::from_be_bytes(reader.array()?));
    let length = reader.length()?;
    let _remark = reader.text(length)?;
    if reader.length()? != reader.rest.len() {
        return None;
    }
    let mut fields = Fields::new();
    while !reader.rest.is_empty() {
        let length = usize::try_from(i16::from_be_bytes(reader.array()?)).ok()?;
        let name = reader.text(length)?;
        let length = reader.length()?;
        fields.push(name, reader.text(length)?.into())?;
    }
    Some(Header { code, flag, opaque, is_sound: true, fields })
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    /// A length of 32 bits.
    fn length(&mut self) -> Option<usize> {
        usize::try_from(i32::from_be_bytes(self.array()?)).ok()
    }

    fn text(&mut self, length: usize) -> Option<&'a str> {
        std::str::from_utf8(self.bytes(length)?).ok()
    }

    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let bytes = self.rest.get(..length)?;
        self.rest = &self.rest[length..];
        Some(bytes)
    }
}
