//! Plain sends, from frames to records, queue entries, index items and replies.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use crate::hash;
use crate::header::Header;
use crate::properties::Properties;
use crate::record::{self, Message, Place};

const PREFIX: usize = 8;
const HEADER_LENGTH: u32 = 0x00FF_FFFF;
const RESPONSE: i64 = 1;
const ONE_WAY: i64 = 2;
const SEND_V2: i64 = 310;
const SEND_BATCH: i64 = 320;
const TRANSACTION_MASK: i64 = 12;
const HOST_FLAGS: i64 = 0x30;
const LONGEST_PROPERTIES: usize = 32767;
/// Queues that one call serves; messages to more wait for the next.
const MOST_QUEUES: usize = 64;

/// What sends become, as the settings say.
#[pyclass(frozen)]
pub struct SendPath {
    max_body: usize,
    most_frame: usize,
    /// Properties that each message gets, a separator before them.
    added: Vec<u8>,
    unusual: Vec<String>,
    store_host: Vec<u8>,
    /// A reply's header around physical offset, queue id, queue offset and opaque.
    reply: Vec<Vec<u8>>,
}

/// A queue that messages of this call go to.
struct Target<'py> {
    topic: String,
    queue_text: String,
    queue: Bound<'py, PyAny>,
    topic_field: Vec<u8>,
    topic_hash: i32,
    queue_id: i32,
    next: i64,
    entries: Vec<u8>,
    bytes: usize,
}

/// What comes of one call.
#[derive(Default)]
struct Output {
    records: Vec<u8>,
    items: Vec<u8>,
    replies: Vec<u8>,
    prompt_replies: Vec<u8>,
    messages: usize,
}

/// One send, read and found to be plain.
struct Send<'a> {
    header: Header<'a>,
    body: &'a [u8],
    sys_flag: i32,
    flag: i32,
    reconsume_times: i32,
    born_timestamp: i64,
}

#[pymethods]
impl SendPath {
    #[new]
    fn new(
        max_body: usize,
        most_frame: usize,
        added: Vec<u8>,
        unusual: Vec<String>,
        store_host: Vec<u8>,
        reply: Vec<Vec<u8>>,
    ) -> PyResult<Self> {
        if store_host.len() != record::HOST_SIZE || reply.len() != 5 {
            return Err(pyo3::exceptions::PyValueError::new_err("an IPv4 host and four gaps"));
        }
        Ok(SendPath { max_body, most_frame, added, unusual, store_host, reply })
    }

    /// Take plain sends from `data`, from a position on, up to the first frame that is none.
    ///
    /// `queues` has the queues by topic and queue id, both as they stand in a header; `start` is the
    /// physical offset of the first record, of which there is room for so many bytes. Returns None
    /// if there is none, else: the position behind the last; what is to be appended; the replies, and
    /// those that do not wait for an fsync. What is appended: the records; of each queue itself, how
    /// many messages, their entries, the bytes of their records; the items of the index, i32 hash
    /// and i64 offset each; how many messages.
    #[pyo3(signature = (data, position, queues, born_host, start, room, timestamp))]
    #[allow(clippy::too_many_arguments)]
    fn take<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyBytes>,
        position: usize,
        queues: &Bound<'py, PyDict>,
        born_host: &[u8],
        start: i64,
        room: usize,
        timestamp: i64,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        if born_host.len() != record::HOST_SIZE {
            return Ok(None);
        }
        let data = data.as_bytes();
        let place = Place { born_host, store_host: &self.store_host, store_timestamp: timestamp };
        let mut targets: Vec<Target<'py>> = Vec::new();
        let mut output = Output::default();
        let mut at = position;
        while let Some((send, end)) = self.next_send(data, at) {
            let Some(target) = find_target(py, &mut targets, queues, &send)? else { break };
            if output.messages == 0 {
                output.records.reserve((data.len() - at).min(room));
            }
            if !self.append(&send, target, &place, start, room, &mut output) {
                break;
            }
            at = end;
        }
        if output.messages == 0 {
            return Ok(None);
        }
        let touched = PyList::empty(py);
        for target in &targets {
            let count = target.entries.len() / 20;
            if count > 0 {
                touched.append((
                    &target.queue,
                    count,
                    PyBytes::new(py, &target.entries),
                    target.bytes,
                ))?;
            }
        }
        let packed = (
            PyBytes::new(py, &output.records),
            touched,
            PyBytes::new(py, &output.items),
            output.messages,
        );
        let replies = PyBytes::new(py, &output.replies);
        let prompt_replies = PyBytes::new(py, &output.prompt_replies);
        (at, packed, replies, prompt_replies)
            .into_pyobject(py)
            .map(Some)
    }
}

impl SendPath {
    /// The frame at a position, if it is whole and a plain send, and where it ends.
    fn next_send<'a>(&self, data: &'a [u8], at: usize) -> Option<(Send<'a>, usize)> {
        let prefix = data.get(at..at + PREFIX)?;
        let length = i32::from_be_bytes(prefix[..4].try_into().ok()?);
        let word = u32::from_be_bytes(prefix[4..].try_into().ok()?);
        let length = usize::try_from(length).ok().filter(|length| *length <= self.most_frame)?;
        let end = at + 4 + length;
        let header_end = at + PREFIX + (word & HEADER_LENGTH) as usize;
        if word >> 24 != 0 || header_end > end || end > data.len() {
            return None;
        }
        let is_send = |code| matches!(code, SEND_V2 | SEND_BATCH);
        let header = Header::read(&data[at + PREFIX..header_end], is_send)?;
        let body = &data[header_end..end];
        if header.flag & RESPONSE != 0
            || body.len() > self.max_body
            || header.field("m") == Some("true")
        {
            return None;
        }
        let sys_flag = header.number("f")?;
        if sys_flag < 0 || sys_flag & TRANSACTION_MASK != 0 {
            return None;
        }
        let reconsume_times = match header.field("j") {
            None | Some("") => 0,
            Some(_) => i32::try_from(header.number("j")?).ok()?,
        };
        let send = Send {
            sys_flag: i32::try_from(sys_flag & !HOST_FLAGS & 0x7FFF_FFFF).ok()?,
            flag: i32::try_from(header.number("h")?).ok()?,
            born_timestamp: header.number("g")?,
            reconsume_times,
            header,
            body,
        };
        Some((send, end))
    }

    /// Adds a message to the output. False if it is not plain after all, or has no room.
    fn append(
        &self,
        send: &Send,
        target: &mut Target,
        place: &Place,
        start: i64,
        room: usize,
        output: &mut Output,
    ) -> bool {
        let text = send.header.field("i").unwrap_or("");
        let properties = if text.is_empty() {
            Properties::default()
        } else {
            match Properties::read(text, &self.unusual) {
                Some(properties) => properties,
                None => return false,
            }
        };
        // Without properties there is no separator before the one that is added.
        let added = if text.is_empty() { &self.added[1..] } else { &self.added };
        let length = properties.stored_length() + added.len();
        let size =
            record::HEAD_SIZE + send.body.len() + target.topic_field.len() + 2 + length;
        if length > LONGEST_PROPERTIES || output.records.len() + size > room {
            return false;
        }
        let physical_offset = start + output.records.len() as i64;
        let message = Message {
            size,
            queue_id: target.queue_id,
            flag: send.flag,
            queue_offset: target.next,
            physical_offset,
            sys_flag: send.sys_flag,
            born_timestamp: send.born_timestamp,
            reconsume_times: send.reconsume_times,
            body: send.body,
        };
        let records = &mut output.records;
        record::pack(&message, place, records);
        records.extend_from_slice(&target.topic_field);
        records.extend_from_slice(&(length as i16).to_be_bytes());
        properties.store(text, records);
        records.extend_from_slice(added);

        let code = if properties.tags.is_empty() { 0 } else { hash::java_hash(properties.tags) };
        target.entries.extend_from_slice(&physical_offset.to_be_bytes());
        target.entries.extend_from_slice(&(size as i32).to_be_bytes());
        target.entries.extend_from_slice(&i64::from(code).to_be_bytes());
        target.bytes += size;

        let keys = properties.keys.split(' ');
        for key in std::iter::once(properties.unique).chain(keys).filter(|key| !key.is_empty()) {
            output.items.extend_from_slice(&hash::key_hash(target.topic_hash, key).to_be_bytes());
            output.items.extend_from_slice(&physical_offset.to_be_bytes());
        }
        if send.header.flag & ONE_WAY == 0 {
            let promptly = properties.wait == "false";
            let replies =
                if promptly { &mut output.prompt_replies } else { &mut output.replies };
            self.reply(physical_offset, target.queue_id, target.next, send.header.opaque, replies);
        }
        target.next += 1;
        output.messages += 1;
        true
    }

    fn reply(&self, physical: i64, queue_id: i32, offset: i64, opaque: i64, to: &mut Vec<u8>) {
        let numbers = [
            format!("{physical:016X}"),
            queue_id.to_string(),
            offset.to_string(),
            opaque.to_string(),
        ];
        let size = self.reply.iter().map(Vec::len).sum::<usize>()
            + numbers.iter().map(String::len).sum::<usize>();
        to.extend_from_slice(&(4 + size as u32).to_be_bytes());
        to.extend_from_slice(&(size as u32).to_be_bytes());
        for (piece, number) in self.reply.iter().zip(&numbers) {
            to.extend_from_slice(piece);
            to.extend_from_slice(number.as_bytes());
        }
        to.extend_from_slice(&self.reply[4]);
    }
}

/// The queue of a send. None if Python has to find it, or it is of a group's retries.
fn find_target<'t, 'py>(
    py: Python<'py>,
    targets: &'t mut Vec<Target<'py>>,
    queues: &Bound<'py, PyDict>,
    send: &Send,
) -> PyResult<Option<&'t mut Target<'py>>> {
    let (Some(topic), Some(text)) = (send.header.field("b"), send.header.field("e")) else {
        return Ok(None);
    };
    if topic.starts_with('%') {
        return Ok(None);
    }
    let known = targets.iter().position(|one| one.queue_text == text && one.topic == topic);
    if let Some(known) = known {
        return Ok(Some(&mut targets[known]));
    }
    if targets.len() == MOST_QUEUES {
        return Ok(None);
    }
    let key = (PyString::new(py, topic), PyString::new(py, text));
    let Some(queue) = queues.get_item(key)? else { return Ok(None) };
    targets.push(Target {
        topic_field: queue.getattr("topic_field")?.extract()?,
        queue_id: queue.getattr("queue_id")?.extract()?,
        next: queue.getattr("appended")?.extract()?,
        topic_hash: hash::topic_hash(topic),
        topic: topic.to_owned(),
        queue_text: text.to_owned(),
        entries: Vec::new(),
        bytes: 0,
        queue,
    });
    Ok(targets.last_mut())
}
