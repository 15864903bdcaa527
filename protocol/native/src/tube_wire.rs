//! Protobuf's wire format, as far as TubeMQ's messages of the hot path need it.

pub struct Reader<'a> {
    data: &'a [u8],
    at: usize,
}

pub enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Other,
}

impl<'a> Reader<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Reader { data, at: 0 }
    }

    pub fn is_done(&self) -> bool {
        self.at >= self.data.len()
    }

    pub fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for place in 0..10 {
            let byte = *self.data.get(self.at)?;
            self.at += 1;
            if place == 9 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let found = self.data.get(self.at..end)?;
        self.at = end;
        Some(found)
    }

    /// The number of the next field, and its value. `None` for what Python should process.
    pub fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let tag = self.varint()?;
        let number = tag >> 3;
        if number == 0 || tag > u64::from(u32::MAX) {
            return None;
        }
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => {
                self.bytes(8)?;
                Value::Other
            }
            2 => {
                let count = usize::try_from(self.varint()?).ok()?;
                Value::Bytes(self.bytes(count)?)
            }
            5 => {
                self.bytes(4)?;
                Value::Other
            }
            _ => return None, // groups
        };
        Some((number, value))
    }
}
