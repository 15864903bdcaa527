//! A `SendMessageRequestP2B`: what a TubeMQ broker is sent, and the checksum of it.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::hash::java_hash;
use crate::tube_wire::{Reader, Value};

/// Without a type there is nothing to filter by.
const NO_KEY: i32 = -1;

/// What Python is given, in this order.
#[derive(Default)]
struct Send<'a> {
    client: Option<&'a str>,
    topic: Option<&'a str>,
    partition: Option<i32>,
    data: Option<&'a [u8]>,
    flag: Option<i32>,
    checksum: Option<i32>,
    address: Option<i32>,
    kind: Option<&'a str>,
    visit_token: Option<i64>,
    auth_token: Option<&'a str>,
}

/// Take apart a `SendMessageRequestP2B` as every client writes it: each field once, its strings
/// UTF-8, none that is not in the .proto.
///
/// Returns client id, topic, partition, payload, its checksum, the one that was said, the sender's
/// address, the key code of the type, the flag, the visit token and the other one; None for what
/// protobuf is to read.
#[pyfunction]
pub fn read_send<'py>(
    py: Python<'py>,
    body: &Bound<'py, PyBytes>,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let Some(send) = Send::read(body.as_bytes()) else { return Ok(None) };
    let (Some(client), Some(topic), Some(data)) = (send.client, send.topic, send.data) else {
        return Ok(None);
    };
    let (Some(partition), Some(flag)) = (send.partition, send.flag) else { return Ok(None) };
    let (Some(said), Some(address)) = (send.checksum, send.address) else { return Ok(None) };
    let checksum = crc32fast::hash(data) & 0x7fff_ffff;
    let kind = send.kind.map(|kind| kind.trim_matches(' ')).filter(|kind| !kind.is_empty());
    let key = kind.map_or(NO_KEY, java_hash);
    let tokens = (send.visit_token.unwrap_or(0), send.auth_token.unwrap_or(""));
    let payload = PyBytes::new(py, data);
    (client, topic, partition, payload, checksum, said, address, key, flag, tokens)
        .into_pyobject(py)
        .map(Some)
}

impl<'a> Send<'a> {
    fn read(body: &'a [u8]) -> Option<Self> {
        let mut send = Send::default();
        let mut reader = Reader::new(body);
        let mut seen = 0u16;
        while !reader.is_done() {
            let (number, value) = reader.field()?;
            let bit = 1u16.checked_shl(u32::try_from(number).ok()?)?;
            if seen & bit != 0 {
                return None;
            }
            seen |= bit;
            match (number, value) {
                (1, Value::Bytes(value)) => send.client = Some(text(value)?),
                (2, Value::Bytes(value)) => send.topic = Some(text(value)?),
                (3, Value::Number(value)) => send.partition = Some(value as i32),
                (4, Value::Bytes(value)) => send.data = Some(value),
                (5, Value::Number(value)) => send.flag = Some(value as i32),
                (6, Value::Number(value)) => send.checksum = Some(value as i32),
                (7, Value::Number(value)) => send.address = Some(value as i32),
                (8, Value::Bytes(value)) => send.kind = Some(plain(value)?),
                (9, Value::Bytes(value)) => drop(text(value)?), // the time, which is in the payload, too
                (10, Value::Bytes(value)) => send.read_tokens(value)?,
                _ => return None,
            }
        }
        Some(send)
    }

    fn read_tokens(&mut self, body: &'a [u8]) -> Option<()> {
        let mut reader = Reader::new(body);
        while !reader.is_done() {
            match reader.field()? {
                (1, Value::Number(value)) if self.visit_token.is_none() => {
                    self.visit_token = Some(value as i64);
                }
                (2, Value::Bytes(value)) if self.auth_token.is_none() => {
                    self.auth_token = Some(text(value)?);
                }
                _ => return None,
            }
        }
        // Protobuf refuses it without.
        self.visit_token.map(drop)
    }
}

/// A text in ASCII without control characters and without blanks except spaces: of other characters
/// Python takes more for blank.
fn plain(bytes: &[u8]) -> Option<&str> {
    text(bytes).filter(|text| text.bytes().all(|byte| (0x20..0x7f).contains(&byte)))
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}
