//! Records of a log that a slave gets from its master, or that a start reads again, as entries of
//! queues and items of the index.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::entry::Entry;
use crate::hash;
use crate::layout::*;
use crate::properties::Properties;
use crate::record;

/// Its entries have a time in the place of a tag.
const DELAYED: &str = "SCHEDULE_TOPIC_XXXX";
/// Queues that one call serves; records of more wait for the next.
const MOST_QUEUES: usize = 256;

/// Topic, queue id, queue offset of the first record, how many, their entries, and their bytes.
type Touched<'py> = (String, i32, i64, usize, Bound<'py, PyBytes>, usize);

/// How many bytes were read; of each queue what it gets; items for the index; how many records, and
/// the store timestamp of the last.
type Read<'py> = (usize, Vec<Touched<'py>>, Bound<'py, PyBytes>, usize, i64);

struct Target<'a> {
    topic: &'a str,
    topic_hash: i32,
    queue_id: i32,
    first: i64,
    count: usize,
    entries: Vec<u8>,
    bytes: usize,
}

/// What is needed of a record.
struct Record<'a> {
    queue_id: i32,
    queue_offset: i64,
    timestamp: i64,
    topic: &'a str,
    properties: Properties<'a>,
}

/// Reads the records of `data` from `start` on, as many as are whole and as they usually are, of one
/// second since `origin` (ms), and have `room`. The first belongs to the physical offset `begin`.
#[pyfunction]
pub fn read_records<'py>(
    py: Python<'py>,
    data: &[u8],
    start: usize,
    begin: i64,
    room: usize,
    origin: i64,
) -> Read<'py> {
    let second_of = |timestamp: i64| timestamp.wrapping_sub(origin).div_euclid(1000);
    let data = data.get(start..).unwrap_or_default();
    let data = &data[..data.len().min(room)];
    let mut targets: Vec<Target> = Vec::new();
    let mut items = Vec::new();
    let (mut at, mut messages, mut timestamp) = (0, 0, 0);
    while let Some(size) = size_of(&data[at..]) {
        let physical = begin + at as i64;
        let Some(record) = read(&data[at..at + size], physical) else { break };
        if messages > 0 && second_of(record.timestamp) != second_of(timestamp) {
            break;
        }
        let Some(target) = target_of(&mut targets, &record) else { break };
        let tags = record.properties.tags;
        let code = if tags.is_empty() { 0 } else { hash::java_hash(tags) };
        let entry =
            Entry { physical_offset: physical, size: size as i32, tags_code: i64::from(code) };
        target.entries.extend_from_slice(&entry.packed());
        target.count += 1;
        target.bytes += size;
        let keys = record.properties.keys.split(' ');
        for key in
            std::iter::once(record.properties.unique).chain(keys).filter(|key| !key.is_empty())
        {
            items.extend_from_slice(&hash::key_hash(target.topic_hash, key).to_be_bytes());
            items.extend_from_slice(&physical.to_be_bytes());
        }
        timestamp = record.timestamp;
        messages += 1;
        at += size;
    }
    let touched = targets
        .into_iter()
        .map(|one| {
            let entries = PyBytes::new(py, &one.entries);
            (one.topic.to_owned(), one.queue_id, one.first, one.count, entries, one.bytes)
        })
        .collect();
    (at, touched, PyBytes::new(py, &items), messages, timestamp)
}

/// The size of the record at the start of bytes; `None` if it is incomplete or not a record.
fn size_of(data: &[u8]) -> Option<usize> {
    let size = usize::try_from(int(data, AT_SIZE)?).ok()?;
    (int(data, AT_MAGIC)? == MAGIC && size >= SMALLEST_RECORD && size <= data.len()).then_some(size)
}

/// What a record says. `None` if Python must process it.
fn read(data: &[u8], physical: i64) -> Option<Record<'_>> {
    let sys_flag = int(data, AT_SYS_FLAG)?;
    let kind = sys_flag & TRANSACTION_MASK;
    if long(data, AT_PHYSICAL_OFFSET)? != physical
        || sys_flag & IPV6_HOSTS != 0
        || (kind != 0 && kind != TRANSACTION_COMMIT)
    {
        return None;
    }
    let body_size = usize::try_from(int(data, AT_BODY_LENGTH)?).ok()?;
    let behind_body = HEAD_SIZE.checked_add(body_size)?;
    let body = data.get(HEAD_SIZE..behind_body)?;
    if record::checksum(body) != int(data, AT_BODY_CRC)? as u32 {
        return None;
    }
    let topic_size = usize::from(*data.get(behind_body)?);
    let behind_topic = behind_body + 1 + topic_size;
    let topic = std::str::from_utf8(data.get(behind_body + 1..behind_topic)?).ok()?;
    let length = data.get(behind_topic..behind_topic + 2)?;
    let length = usize::try_from(i16::from_be_bytes([length[0], length[1]])).ok()?;
    if behind_topic + 2 + length != data.len() || topic == DELAYED {
        return None;
    }
    let text = std::str::from_utf8(&data[behind_topic + 2..]).ok()?;
    let (queue_id, queue_offset) = (int(data, AT_QUEUE_ID)?, long(data, AT_QUEUE_OFFSET)?);
    if queue_id < 0 || queue_offset < 0 {
        return None;
    }
    Some(Record {
        queue_id,
        queue_offset,
        timestamp: long(data, AT_STORE_TIMESTAMP)?,
        topic,
        properties: Properties::read(text, &[])?,
    })
}

/// The queue of a record, if the record is its next one; `None` if Python must look.
fn target_of<'t, 'a>(
    targets: &'t mut Vec<Target<'a>>,
    record: &Record<'a>,
) -> Option<&'t mut Target<'a>> {
    let known =
        targets.iter().position(|one| one.queue_id == record.queue_id && one.topic == record.topic);
    if let Some(known) = known {
        let target = &mut targets[known];
        return (target.first + target.count as i64 == record.queue_offset).then_some(target);
    }
    if targets.len() == MOST_QUEUES {
        return None;
    }
    targets.push(Target {
        topic: record.topic,
        topic_hash: hash::topic_hash(record.topic),
        queue_id: record.queue_id,
        first: record.queue_offset,
        count: 0,
        entries: Vec::new(),
        bytes: 0,
    });
    targets.last_mut()
}

fn int(data: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(data.get(at..at + 4)?.try_into().ok()?))
}

fn long(data: &[u8], at: usize) -> Option<i64> {
    Some(i64::from_be_bytes(data.get(at..at + 8)?.try_into().ok()?))
}
