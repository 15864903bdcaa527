//! The answer of a TubeMQ broker to a get: its fields, and its messages, checked and taken apart
//! (client/tube/decoding.py says what each check is for, and does the same).

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use std::collections::HashSet;

use crate::tube_wire::{Reader, Value};

const HAS_ATTRIBUTES: i32 = 1;
const MESSAGE_TYPE: &[u8] = b"$msgType$";

/// What stands for a field that is not there.
const UNDEFINED: i64 = -2;

/// A `TransferedMessage`.
struct Message<'a> {
    id: i64,
    checksum: i32,
    payload: &'a [u8],
    flag: i32,
}

fn message(data: &[u8]) -> Option<Message<'_>> {
    let (mut id, mut checksum, mut payload, mut flag) = (None, None, None, None);
    let mut reader = Reader::new(data);
    while !reader.is_done() {
        match reader.field()? {
            (1, Value::Number(value)) => id = Some(value as i64),
            (2, Value::Number(value)) => checksum = Some(value as i32),
            (3, Value::Bytes(value)) => payload = Some(value),
            (4, Value::Number(value)) => flag = Some(value as i32),
            (1..=4, _) => return None,
            _ => {}
        }
    }
    Some(Message { id: id?, checksum: checksum?, payload: payload?, flag: flag? })
}

impl<'a> Message<'a> {
    /// The attributes, empty where there are none, and the body. `None` if the payload is damaged.
    fn parts(&self) -> Option<(&'a [u8], &'a [u8])> {
        if crc32fast::hash(self.payload) & 0x7fff_ffff != self.checksum as u32 {
            return None;
        }
        if self.flag & HAS_ATTRIBUTES == 0 {
            return Some((&[], self.payload));
        }
        let head = self.payload.get(..4)?;
        let length = i32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let length = usize::try_from(length).ok()?;
        let rest = &self.payload[4..];
        if length > rest.len() {
            return None;
        }
        Some(rest.split_at(length))
    }
}

/// Whether the attributes have a selected message type; the first type counts.
fn is_wanted(attributes: &[u8], wanted: &HashSet<Vec<u8>>) -> bool {
    let kind = attributes.split(|byte| *byte == b',').find_map(|item| {
        let value = item.strip_prefix(MESSAGE_TYPE)?.strip_prefix(b"=")?;
        (!value.is_empty()).then_some(value)
    });
    kind.and_then(|value| value.split(|byte| *byte == b'=').next())
        .is_some_and(|value| wanted.contains(value))
}

/// Take apart a `GetMessageResponseB2C`.
///
/// `wanted` are the types of messages that are, as UTF-8; `None` for all. Returns three tuples: the
/// fields of the answer in the order of their numbers, but for the messages; the messages in a list,
/// each as `(topic, body, id, flag, attributes)`, alone in its place; and the bytes of their bodies,
/// how many were damaged, and how many not wanted. `None` for what Python should process: what
/// lacks a field, or cannot be read.
#[pyfunction]
#[pyo3(signature = (data, topic, wanted))]
pub fn read_tube_messages<'py>(
    data: &[u8],
    topic: &Bound<'py, PyString>,
    wanted: Option<HashSet<Vec<u8>>>,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let py = topic.py();
    let mut taken = Taken { topic, wanted, messages: PyList::empty(py), totals: [0; 3] };
    let Some(fields) = read(data, &mut taken)? else {
        return Ok(None);
    };
    let Some((success, code)) = fields.success.zip(fields.code) else {
        return Ok(None);
    };
    let Fields { text, offset, wait, escapes, lag, slow, most, .. } = fields;
    let fields = (success, code, text, offset, wait, escapes, lag, slow, most);
    (fields, taken.messages, PyTuple::new(py, taken.totals)?).into_pyobject(py).map(Some)
}

struct Fields<'a> {
    success: Option<bool>,
    code: Option<i32>,
    text: &'a str,
    offset: i64,
    wait: i64,
    escapes: bool,
    lag: i64,
    slow: bool,
    most: i64,
}

/// Messages, and what became of all of them.
struct Taken<'py, 'a> {
    topic: &'a Bound<'py, PyString>,
    wanted: Option<HashSet<Vec<u8>>>,
    messages: Bound<'py, PyList>,
    /// Bytes of bodies, messages that were damaged, messages that were not wanted.
    totals: [usize; 3],
}

fn read<'a>(data: &'a [u8], taken: &mut Taken) -> PyResult<Option<Fields<'a>>> {
    let mut fields = Fields {
        success: None,
        code: None,
        text: "",
        offset: UNDEFINED,
        wait: UNDEFINED,
        escapes: false,
        lag: UNDEFINED,
        slow: false,
        most: UNDEFINED,
    };
    let mut reader = Reader::new(data);
    while !reader.is_done() {
        let Some((number, value)) = reader.field() else {
            return Ok(None);
        };
        match (number, value) {
            (4, Value::Bytes(value)) => {
                let Some(message) = message(value) else {
                    return Ok(None);
                };
                taken.take(&message)?;
            }
            (3, Value::Bytes(value)) => match std::str::from_utf8(value) {
                Ok(text) => fields.text = text,
                Err(_) => return Ok(None),
            },
            (1, Value::Number(value)) => fields.success = Some(value != 0),
            (2, Value::Number(value)) => fields.code = Some(value as i32),
            (5, Value::Number(value)) => fields.offset = value as i64,
            (6, Value::Number(value)) => fields.wait = i64::from(value as i32),
            (7, Value::Number(value)) => fields.escapes = value != 0,
            (8, Value::Number(value)) => fields.lag = value as i64,
            (9, Value::Number(value)) => fields.slow = value != 0,
            (10, Value::Number(value)) => fields.most = value as i64,
            (1..=10, _) => return Ok(None),
            _ => {}
        }
    }
    Ok(Some(fields))
}

impl Taken<'_, '_> {
    fn take(&mut self, message: &Message) -> PyResult<()> {
        let Some((attributes, body)) = message.parts() else {
            self.totals[1] += 1;
            return Ok(());
        };
        if self.wanted.as_ref().is_some_and(|wanted| !is_wanted(attributes, wanted)) {
            self.totals[2] += 1;
            return Ok(());
        }
        self.totals[0] += body.len();
        let py = self.topic.py();
        let text = String::from_utf8_lossy(attributes);
        self.messages.append((self.topic, PyBytes::new(py, body), message.id, message.flag, text))
    }
}
