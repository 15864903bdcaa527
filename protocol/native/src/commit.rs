//! Commits: of halves to the messages that consumers see, each with the note that its half
//! has ended (daemons/broker/transactions/service.py).

use pyo3::buffer::{PyBuffer, ReadOnlyCell};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::entry::Entry;
use crate::layout::*;
use crate::packing::{self, Output, Packed, Target};
use crate::properties::Properties;
use crate::record::{self, Message, Place};
use crate::room::Room;
use crate::stored::Record;

/// Of a half, as `commit` gets them: physical offset and that in the queue of halves.
const PLACE: usize = 16;
/// The property of a message that was committed that has the id of its transaction.
const TRANSACTION_ID: &str = "__transactionId__\u{1}";
/// Unique ids are mostly this long, or shorter.
const LONGEST_ID: usize = 64;

/// What commits become, as a broker is set up.
#[pyclass(frozen)]
pub struct CommitPath {
    store_host: Vec<u8>,
    /// The topic of halves, its length before it.
    half_topic: Vec<u8>,
    /// The properties of a note, their length before them, and its tags code.
    note_properties: Vec<u8>,
    note_code: i64,
    /// Names of properties for which Python must process a half.
    unusual: Vec<String>,
    /// So many bytes more than body and properties of a half there has to be room for.
    spare: usize,
}

/// How many halves are committed, the bytes of their records, and what is to be appended.
type Committed<'py> = (usize, usize, Packed<'py>);

/// Part of the log, as a file has it mapped.
struct Log<'a> {
    bytes: &'a [ReadOnlyCell<u8>],
    start: i64,
}

/// Entries of the queue of halves.
struct Entries<'a> {
    bytes: &'a [u8],
    first: i64,
}

/// A half as nearly all are.
struct Half<'a> {
    record: Record<'a>,
    /// The properties that consumers see.
    text: String,
    properties: Properties<'a>,
    group: &'a str,
    topic: &'a str,
    queue_text: &'a str,
}

/// The queues that messages of a call go to. Several names may mean the same queue.
struct Targets<'a, 'py> {
    queues: &'a Bound<'py, PyDict>,
    all: Vec<(Bound<'py, PyAny>, Target<'py>)>,
    named: Vec<(String, String, usize)>,
}

#[pymethods]
impl CommitPath {
    #[new]
    fn new(
        store_host: Vec<u8>,
        half_topic: Vec<u8>,
        note_properties: Vec<u8>,
        note_code: i64,
        unusual: Vec<String>,
        spare: usize,
    ) -> PyResult<Self> {
        record::check_host(&store_host)?;
        Ok(CommitPath { store_host, half_topic, note_properties, note_code, unusual, spare })
    }

    /// Commit halves of a producer group, up to the first that Python must process. None if that
    /// is the first.
    ///
    /// `halves` has of each, big-endian, the physical offset and that in the queue of halves, of
    /// which `entries` are some, with the offset of the first. `part` is what a file of the log has
    /// mapped, of which so many bytes may be read, with the physical offset of its first byte.
    /// `queues` has the queues that halves may be for, by topic and queue id as properties name them,
    /// and `notes` is that of the notes. `place` is the physical offset of the first record, the
    /// memory where records are put, and the time. Halves after `most_bytes` are not processed.
    ///
    /// What is said of the mapping at `PullPath.answer` goes for this one.
    #[allow(clippy::too_many_arguments)]
    fn commit<'py>(
        &self,
        py: Python<'py>,
        halves: &[u8],
        group: &[u8],
        entries: (Bound<'py, PyBytes>, i64),
        part: (PyBuffer<u8>, usize, i64),
        queues: &Bound<'py, PyDict>,
        notes: Bound<'py, PyAny>,
        place: (i64, PyBuffer<u8>, i64),
        most_bytes: usize,
    ) -> PyResult<Option<Committed<'py>>> {
        let (map, readable, base) = part;
        let Some(bytes) = map.as_slice(py).and_then(|all| all.get(..readable)) else {
            return Ok(None);
        };
        let log = Log { bytes, start: base };
        let entries = Entries { bytes: entries.0.as_bytes(), first: entries.1 };
        let (start, memory, store_timestamp) = place;
        let place = Place { store_host: &self.store_host, store_timestamp };
        let Some(mut room) = Room::of(py, &memory, start) else { return Ok(None) };
        let mut notes = Target::of(notes, "")?;
        let mut targets = Targets { queues, all: Vec::new(), named: Vec::new() };
        let (mut output, mut count, mut taken) = (Output::default(), 0, 0);
        let mut copy = Vec::new();
        for half in halves.chunks_exact(PLACE) {
            let [physical, offset] = [0, 8].map(|at| long(&half[at..]));
            if taken > most_bytes || log.copy(physical, offset, &entries, &mut copy).is_none() {
                break;
            }
            let Some(half) = self.half(&copy, physical, offset) else { break };
            let needed = half.record.body.len() + 2 + half.text.len() + self.spare;
            if half.group.as_bytes() != group || needed > room.left() {
                break;
            }
            let Some(target) = targets.find(py, half.topic, half.queue_text)? else { break };
            append_final(&half, target, &place, &mut room, &mut output);
            self.append_note(offset, &mut notes, &place, &mut room, &mut output);
            count += 1;
            taken += copy.len();
        }
        if count == 0 {
            return Ok(None);
        }
        let touched = targets.all.iter().map(|(_, target)| target);
        Ok(Some((count, taken, output.packed(py, &room, touched.chain(std::iter::once(&notes)))?)))
    }
}

impl CommitPath {
    /// The half that is in a record. `None` if Python must process it.
    fn half<'a>(&self, bytes: &'a [u8], physical: i64, offset: i64) -> Option<Half<'a>> {
        let record = Record::read(bytes)?;
        let is_it = record.queue_id == 0
            && record.queue_offset == offset
            && record.physical_offset == physical
            && record.sys_flag & TRANSACTION_MASK == 0;
        let field = record.rest.strip_prefix(self.half_topic.as_slice()).filter(|_| is_it)?;
        let (length, text) = (field.get(..2)?, &field[2..]);
        let text = std::str::from_utf8(text).ok()?;
        if usize::from(u16::from_be_bytes([length[0], length[1]])) != text.len()
            // It would be stored, and is not read: Python says how.
            || text.ends_with('\u{2}')
            || record::checksum(record.body) != record.crc
        {
            return None;
        }
        let properties = Properties::read(text, &self.unusual)?;
        let (mut group, mut topic, mut queue_text) = ("", "", "");
        let mut shown = String::with_capacity(text.len() + TRANSACTION_ID.len() + LONGEST_ID);
        for property in text.split('\u{2}') {
            let (name, value) = property.split_once('\u{1}')?;
            match name {
                "REAL_TOPIC" => topic = value,
                "REAL_QID" => queue_text = value,
                _ if name.starts_with("TIMER_") => return None,
                _ => {
                    if name == "PGROUP" {
                        group = value;
                    }
                    add_property(&mut shown, &[property]);
                }
            }
        }
        if !properties.unique.is_empty() {
            add_property(&mut shown, &[TRANSACTION_ID, properties.unique]);
        }
        // What does not fit Python leaves out.
        if shown.len() > packing::LONGEST_PROPERTIES {
            return None;
        }
        let text = shown;
        Some(Half { record, text, properties, group, topic, queue_text })
    }

    /// Adds the note that the half with this offset has ended.
    fn append_note(
        &self,
        half: i64,
        notes: &mut Target,
        place: &Place,
        room: &mut Room,
        output: &mut Output,
    ) {
        let body = half.to_string();
        let (physical_offset, field) = (room.position(), &notes.topic_field);
        let properties = &self.note_properties;
        let size = HEAD_SIZE + body.len() + field.len() + properties.len();
        let note = Message {
            crc: record::checksum(body.as_bytes()),
            queue_id: notes.queue_id,
            flag: 0,
            queue_offset: notes.next,
            sys_flag: 0,
            born_timestamp: place.store_timestamp,
            born_host: place.store_host,
            reconsume_times: 0,
            prepared_offset: 0,
            body: body.as_bytes(),
        };
        record::pack(&note, size, place, room);
        room.put(field);
        room.put(properties);
        notes.enter(output, physical_offset, size, self.note_code);
    }
}

/// Adds a property to others.
fn add_property(text: &mut String, parts: &[&str]) {
    if !text.is_empty() {
        text.push('\u{2}');
    }
    parts.iter().for_each(|part| text.push_str(part));
}

/// Adds what consumers see of a half.
fn append_final(
    half: &Half,
    target: &mut Target,
    place: &Place,
    room: &mut Room,
    output: &mut Output,
) {
    let physical_offset = room.position();
    let (record, text) = (&half.record, half.text.as_bytes());
    let size = HEAD_SIZE + record.body.len() + target.topic_field.len() + 2 + text.len();
    let message = Message {
        crc: record.crc,
        queue_id: target.queue_id,
        flag: record.flag,
        queue_offset: target.next,
        sys_flag: record.sys_flag | TRANSACTION_COMMIT,
        born_timestamp: record.born_timestamp,
        born_host: record.born_host,
        reconsume_times: record.reconsume_times,
        prepared_offset: record.physical_offset,
        body: record.body,
    };
    record::pack(&message, size, place, room);
    room.put(&target.topic_field);
    room.put(&(text.len() as u16).to_be_bytes());
    room.put(text);
    target.enter(output, physical_offset, size, packing::tags_code(&half.properties));
    target.index(output, &half.properties, physical_offset);
}

impl Log<'_> {
    /// Copies the record that both a producer and the queue of halves say is at a place.
    fn copy(&self, physical: i64, offset: i64, entries: &Entries, to: &mut Vec<u8>) -> Option<()> {
        let place =
            usize::try_from(offset.checked_sub(entries.first)?).ok()?.checked_mul(ENTRY_SIZE)?;
        let entry = Entry::read(entries.bytes.get(place..place.checked_add(ENTRY_SIZE)?)?);
        let size = usize::try_from(entry.size).ok().filter(|size| *size >= SMALLEST_RECORD)?;
        let at = usize::try_from(physical.checked_sub(self.start)?).ok()?;
        let record = self.bytes.get(at..at.checked_add(size)?)?;
        if entry.physical_offset != physical {
            return None;
        }
        // The checked and the stored bytes must be the same.
        to.clear();
        to.extend(record.iter().map(ReadOnlyCell::get));
        Some(())
    }
}

impl<'py> Targets<'_, 'py> {
    /// The queue that a half is for. `None` if Python has to find it, and whether it may be sent to.
    fn find(
        &mut self,
        py: Python<'py>,
        topic: &str,
        queue_text: &str,
    ) -> PyResult<Option<&mut Target<'py>>> {
        let known = self.named.iter().find(|one| one.1 == queue_text && one.0 == topic);
        if let Some((_, _, known)) = known {
            return Ok(Some(&mut self.all[*known].1));
        }
        let key = (PyString::new(py, topic), PyString::new(py, queue_text));
        let Some(queue) = self.queues.get_item(key)? else { return Ok(None) };
        let known = self.all.iter().position(|(other, _)| other.is(&queue));
        let place = known.unwrap_or(self.all.len());
        if known.is_none() {
            let name: String = queue.getattr("topic")?.extract()?;
            self.all.push((queue.clone(), Target::of(queue, &name)?));
        }
        self.named.push((topic.to_owned(), queue_text.to_owned(), place));
        Ok(Some(&mut self.all[place].1))
    }
}

/// The number that bytes begin with.
fn long(bytes: &[u8]) -> i64 {
    i64::from_be_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|at| bytes[at]))
}
