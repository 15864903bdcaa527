//! What messages become: records, entries of their queues, items of the index, ids for their senders.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::entry::Entry;
use crate::hash;
use crate::layout::*;
use crate::properties::Properties;
use crate::record::{self, Message, Place};
use crate::room::Room;

pub const LONGEST_PROPERTIES: usize = 32767;

/// A message to send, with its stored properties.
pub struct Sent<'a> {
    pub body: &'a [u8],
    pub flag: i32,
    pub text: &'a str,
    pub properties: Properties<'a>,
}

/// The values common to the messages of a request.
pub struct Shared<'a> {
    pub sys_flag: i32,
    pub reconsume_times: i32,
    pub born_timestamp: i64,
    pub born_host: [u8; HOST_SIZE],
    /// Appended to the properties of each message, with a separator.
    pub added: &'a [u8],
}

/// A queue that messages of this call go to.
pub struct Target<'py> {
    pub queue_id: i32,
    /// The queue offset of the next message.
    pub next: i64,
    pub topic_field: Vec<u8>,
    topic_hash: i32,
    entries: Vec<u8>,
    bytes: usize,
    queue: Bound<'py, PyAny>,
}

/// What comes of one call.
#[derive(Default)]
pub struct Output {
    items: Vec<u8>,
    pub messages: usize,
}

/// As `Appender.append_packed` takes it.
pub type Packed<'py> = Bound<'py, PyTuple>;

impl<'a> Shared<'a> {
    fn added(&self, sent: &Sent) -> &'a [u8] {
        // Without properties there is no separator before it.
        if sent.text.is_empty() {
            &self.added[1..]
        } else {
            self.added
        }
    }
}

impl<'py> Target<'py> {
    pub fn of(queue: Bound<'py, PyAny>, topic: &str) -> PyResult<Self> {
        let py = queue.py();
        let topic_field = queue.getattr(intern!(py, "topic_field"))?;
        Ok(Target {
            // To extract a vector each byte would be asked for.
            topic_field: topic_field.downcast::<PyBytes>()?.as_bytes().to_vec(),
            queue_id: queue.getattr(intern!(py, "queue_id"))?.extract()?,
            next: queue.getattr(intern!(py, "appended"))?.extract()?,
            topic_hash: hash::topic_hash(topic),
            entries: Vec::new(),
            bytes: 0,
            queue,
        })
    }

    /// The size of the record of a message. `None` if its properties are longer than this.
    pub fn size(&self, sent: &Sent, shared: &Shared, longest: usize) -> Option<usize> {
        let length = sent.properties.stored_length() + shared.added(sent).len();
        (length <= longest.min(LONGEST_PROPERTIES))
            .then(|| HEAD_SIZE + sent.body.len() + self.topic_field.len() + 2 + length)
    }

    /// Enters the record of so many bytes that is at a physical offset.
    pub fn enter(&mut self, output: &mut Output, physical_offset: i64, size: usize, code: i64) {
        let entry = Entry { physical_offset, size: size as i32, tags_code: code };
        self.entries.extend_from_slice(&entry.packed());
        self.bytes += size;
        self.next += 1;
        output.messages += 1;
    }

    /// Lets a message be found by its id and its keys.
    pub fn index(&self, output: &mut Output, properties: &Properties, physical_offset: i64) {
        let keys = properties.keys.split(' ');
        for key in std::iter::once(properties.unique).chain(keys).filter(|key| !key.is_empty()) {
            output.items.extend_from_slice(&hash::key_hash(self.topic_hash, key).to_be_bytes());
            output.items.extend_from_slice(&physical_offset.to_be_bytes());
        }
    }

    /// Puts a message, for which there is room, and enters it.
    pub fn append(
        &mut self,
        sent: &Sent,
        shared: &Shared,
        place: &Place,
        room: &mut Room,
        output: &mut Output,
    ) {
        let physical_offset = room.position();
        let added = shared.added(sent);
        let length = sent.properties.stored_length() + added.len();
        let message = Message {
            crc: record::checksum(sent.body),
            queue_id: self.queue_id,
            flag: sent.flag,
            queue_offset: self.next,
            sys_flag: shared.sys_flag,
            born_timestamp: shared.born_timestamp,
            born_host: &shared.born_host,
            reconsume_times: shared.reconsume_times,
            prepared_offset: 0,
            body: sent.body,
        };
        let size = HEAD_SIZE + sent.body.len() + self.topic_field.len() + 2 + length;
        record::pack(&message, size, place, room);
        room.put(&self.topic_field);
        room.put(&(length as i16).to_be_bytes());
        sent.properties.store(sent.text, room);
        room.put(added);
        self.enter(output, physical_offset, size, tags_code(&sent.properties));
        self.index(output, &sent.properties, physical_offset);
    }
}

impl Output {
    /// How many bytes were put; of each queue itself, how many messages, their entries, the bytes of their
    /// records; the items of the index, i32 hash and i64 offset each; how many messages.
    pub fn packed<'a, 'py: 'a>(
        &self,
        py: Python<'py>,
        room: &Room,
        targets: impl Iterator<Item = &'a Target<'py>>,
    ) -> PyResult<Packed<'py>> {
        let touched = PyList::empty(py);
        for target in targets.filter(|target| !target.entries.is_empty()) {
            let entries = PyBytes::new(py, &target.entries);
            let number = target.entries.len() / ENTRY_SIZE;
            touched.append((&target.queue, number, entries, target.bytes))?;
        }
        (room.used, touched, PyBytes::new(py, &self.items), self.messages).into_pyobject(py)
    }
}

pub fn tags_code(properties: &Properties) -> i64 {
    match properties.tags {
        "" => 0,
        tags => i64::from(hash::java_hash(tags)),
    }
}

/// Adds the id of a message: its host and physical offset in hexadecimal.
pub fn push_id(ids: &mut Vec<u8>, host: &[u8], physical_offset: i64) {
    for byte in host.iter().chain(&physical_offset.to_be_bytes()) {
        let digits = [byte >> 4, byte & 15].map(|digit| b"0123456789ABCDEF"[usize::from(digit)]);
        ids.extend_from_slice(&digits);
    }
}

/// Puts messages, for which there is room, and enters them; returns their ids.
pub fn append_all(
    sent: &[Sent],
    shared: &Shared,
    target: &mut Target,
    place: &Place,
    room: &mut Room,
    output: &mut Output,
) -> Vec<u8> {
    let mut ids = Vec::with_capacity(33 * sent.len());
    for one in sent {
        if !ids.is_empty() {
            ids.push(b',');
        }
        push_id(&mut ids, place.store_host, room.position());
        target.append(one, shared, place, room, output);
    }
    ids
}
