//! Plain sends, from frames to records, entries of queues, items of the index and replies.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use crate::batch;
use crate::hash;
use crate::header::Header;
use crate::properties::Properties;
use crate::record::{self, Message, Place};
use crate::reply::{self, Pieces};

const PREFIX: usize = 8;
const HEADER_LENGTH: u32 = 0x00FF_FFFF;
const RESPONSE: i64 = 1;
const ONE_WAY: i64 = 2;
const SEND_V2: i64 = 310;
const SEND_BATCH: i64 = 320;
const TRANSACTION_MASK: i64 = 12;
const HOST_FLAGS: i64 = 0x30;
const LONGEST_PROPERTIES: usize = 32767;
const ENTRY: usize = 20;
/// Queues that one call serves; messages to more wait for the next.
const MOST_QUEUES: usize = 64;

/// What sends become, as the settings say.
#[pyclass(frozen)]
pub struct SendPath {
    max_body: usize,
    most_frame: usize,
    /// The property that each message gets, a separator before it, and its name.
    added: Vec<u8>,
    added_name: String,
    unusual: Vec<String>,
    store_host: Vec<u8>,
    /// Headers of the replies to a message and to a batch, around ids, queue id, queue offset and
    /// opaque.
    reply: Pieces,
    batch_reply: Pieces,
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

/// A frame that is a send, as far as its header says.
struct Request<'a> {
    header: Header<'a>,
    body: &'a [u8],
    is_batch: bool,
    sys_flag: i32,
    flag: i32,
    reconsume_times: i32,
    born_timestamp: i64,
}

/// A message of a request, with what is stored of its properties.
pub struct Sent<'a> {
    pub body: &'a [u8],
    pub flag: i32,
    pub text: &'a str,
    pub properties: Properties<'a>,
}

/// Where records go: the physical offset of the first one, and the bytes that there is room for.
struct Room {
    start: i64,
    size: usize,
}

#[pymethods]
impl SendPath {
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        max_body: usize,
        most_frame: usize,
        added: &str,
        unusual: Vec<String>,
        store_host: Vec<u8>,
        reply: Pieces,
        batch_reply: Pieces,
    ) -> PyResult<Self> {
        let Some((name, _)) = added.split_once('\u{1}') else {
            return Err(PyValueError::new_err("what is added is no property"));
        };
        if store_host.len() != record::HOST_SIZE {
            return Err(PyValueError::new_err("the store's host is no IPv4 address"));
        }
        reply::check(&reply)?;
        reply::check(&batch_reply)?;
        Ok(SendPath {
            max_body,
            most_frame,
            added: format!("\u{2}{added}").into_bytes(),
            added_name: name.to_owned(),
            unusual,
            store_host,
            reply,
            batch_reply,
        })
    }

    /// Take plain sends from `data`, from a position on, up to the first frame that is none.
    ///
    /// `queues` has the queues by topic and queue id, both as they stand in a header; `start` is the
    /// physical offset of the first record, and there is room for so many bytes. Returns None if
    /// there is none, else: the position behind the last; what is to be appended; the replies, and
    /// those that do not wait for an fsync. What is appended: the records; of each queue itself, how
    /// many messages, their entries, the bytes of their records; the items of the index, i32 hash
    /// and i64 offset each; how many messages.
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
        let room = Room { start, size: room };
        let mut targets: Vec<Target<'py>> = Vec::new();
        let mut output = Output::default();
        let mut at = position;
        while let Some((request, end)) = self.next_request(data, at) {
            let Some(target) = find_target(py, &mut targets, queues, &request.header)? else {
                break;
            };
            if output.messages == 0 {
                output.records.reserve((data.len() - at).min(room.size));
            }
            if self.store(&request, target, &place, &room, &mut output).is_none() {
                break;
            }
            at = end;
        }
        if output.messages == 0 {
            return Ok(None);
        }
        let touched = PyList::empty(py);
        for target in targets.iter().filter(|target| !target.entries.is_empty()) {
            let entries = PyBytes::new(py, &target.entries);
            touched.append((&target.queue, target.entries.len() / ENTRY, entries, target.bytes))?;
        }
        let records = PyBytes::new(py, &output.records);
        let items = PyBytes::new(py, &output.items);
        let replies = PyBytes::new(py, &output.replies);
        let prompt_replies = PyBytes::new(py, &output.prompt_replies);
        (at, (records, touched, items, output.messages), replies, prompt_replies)
            .into_pyobject(py)
            .map(Some)
    }
}

impl SendPath {
    /// The frame at a position, if it is whole and may be a plain send, and where it ends.
    fn next_request<'a>(&self, data: &'a [u8], at: usize) -> Option<(Request<'a>, usize)> {
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
        let sys_flag = header.number("f")?;
        if header.flag & RESPONSE != 0
            || body.len() > self.max_body
            || sys_flag < 0
            || sys_flag & TRANSACTION_MASK != 0
        {
            return None;
        }
        let reconsume_times = match header.field("j") {
            None | Some("") => 0,
            Some(_) => i32::try_from(header.number("j")?).ok()?,
        };
        let is_batch = header.field("m") == Some("true");
        let request = Request {
            is_batch,
            sys_flag: i32::try_from(sys_flag & !HOST_FLAGS & 0x7FFF_FFFF).ok()?,
            // That of a batch is not looked at: its messages have their own.
            flag: if is_batch { 0 } else { i32::try_from(header.number("h")?).ok()? },
            born_timestamp: header.number("g")?,
            reconsume_times,
            header,
            body,
        };
        Some((request, end))
    }

    /// Adds the messages of a request to the output. `None`, and nothing added, if Python is to look
    /// at it, or it has no room.
    fn store(
        &self,
        request: &Request,
        target: &mut Target,
        place: &Place,
        room: &Room,
        output: &mut Output,
    ) -> Option<()> {
        let text = request.header.field("i").unwrap_or("");
        let (first_id, first_offset) = (output.records.len(), target.next);
        let promptly = if request.is_batch {
            let promptly = batch::is_prompt(text)?;
            let sent = batch::messages(request.body, &self.added_name, &self.unusual)?;
            let sizes: Option<Vec<usize>> = sent.iter().map(|one| self.size(one, target)).collect();
            let total: usize = sizes?.iter().sum();
            if sent.is_empty() || output.records.len() + total > room.size {
                return None;
            }
            let mut ids = Vec::with_capacity(33 * sent.len());
            for one in &sent {
                if !ids.is_empty() {
                    ids.push(b',');
                }
                push_id(&mut ids, &self.store_host, room.start + output.records.len() as i64);
                self.append(one, request, target, place, room, output);
            }
            self.reply(&self.batch_reply, &ids, request, target, first_offset, promptly, output);
            return Some(());
        } else {
            let properties = Properties::read(text, &self.unusual)?;
            let promptly = properties.wait == "false";
            let sent = Sent {
                body: request.body,
                flag: request.flag,
                text,
                properties: properties.without_wait(),
            };
            if output.records.len() + self.size(&sent, target)? > room.size {
                return None;
            }
            self.append(&sent, request, target, place, room, output);
            promptly
        };
        let id = format!("{:016X}", room.start + first_id as i64);
        self.reply(&self.reply, id.as_bytes(), request, target, first_offset, promptly, output);
        Some(())
    }

    /// What is put behind the properties of a message.
    fn added(&self, sent: &Sent) -> &[u8] {
        // Without properties there is no separator before it.
        if sent.text.is_empty() {
            &self.added[1..]
        } else {
            &self.added
        }
    }

    /// The size of a record. `None` if its properties are too long.
    fn size(&self, sent: &Sent, target: &Target) -> Option<usize> {
        let length = sent.properties.stored_length() + self.added(sent).len();
        (length <= LONGEST_PROPERTIES)
            .then(|| record::HEAD_SIZE + sent.body.len() + target.topic_field.len() + 2 + length)
    }

    /// Adds a message, for which there is room, to the output.
    fn append(
        &self,
        sent: &Sent,
        request: &Request,
        target: &mut Target,
        place: &Place,
        room: &Room,
        output: &mut Output,
    ) {
        let records = &mut output.records;
        let first = records.len();
        let physical_offset = room.start + first as i64;
        let message = Message {
            queue_id: target.queue_id,
            flag: sent.flag,
            queue_offset: target.next,
            physical_offset,
            sys_flag: request.sys_flag,
            born_timestamp: request.born_timestamp,
            reconsume_times: request.reconsume_times,
            body: sent.body,
        };
        record::pack(&message, place, records);
        records.extend_from_slice(&target.topic_field);
        let added = self.added(sent);
        let length = sent.properties.stored_length() + added.len();
        records.extend_from_slice(&(length as i16).to_be_bytes());
        sent.properties.store(sent.text, records);
        records.extend_from_slice(added);
        let size = records.len() - first;
        records[first..first + 4].copy_from_slice(&(size as i32).to_be_bytes());

        let tags = sent.properties.tags;
        let code = if tags.is_empty() { 0 } else { hash::java_hash(tags) };
        target.entries.extend_from_slice(&physical_offset.to_be_bytes());
        target.entries.extend_from_slice(&(size as i32).to_be_bytes());
        target.entries.extend_from_slice(&i64::from(code).to_be_bytes());
        target.bytes += size;
        target.next += 1;
        let keys = sent.properties.keys.split(' ');
        for key in std::iter::once(sent.properties.unique).chain(keys).filter(|key| !key.is_empty())
        {
            output.items.extend_from_slice(&hash::key_hash(target.topic_hash, key).to_be_bytes());
            output.items.extend_from_slice(&physical_offset.to_be_bytes());
        }
        output.messages += 1;
    }

    #[allow(clippy::too_many_arguments)]
    fn reply(
        &self,
        pieces: &Pieces,
        ids: &[u8],
        request: &Request,
        target: &Target,
        first_offset: i64,
        promptly: bool,
        output: &mut Output,
    ) {
        if request.header.flag & ONE_WAY != 0 {
            return;
        }
        let to = if promptly { &mut output.prompt_replies } else { &mut output.replies };
        let queue_id = target.queue_id.to_string();
        let offset = first_offset.to_string();
        let opaque = request.header.opaque.to_string();
        let values = [ids, queue_id.as_bytes(), offset.as_bytes(), opaque.as_bytes()];
        reply::push_head(to, pieces, values, 0);
    }
}

/// Adds the id of a message: its host and physical offset in hexadecimal.
fn push_id(ids: &mut Vec<u8>, host: &[u8], physical: i64) {
    for byte in host {
        ids.extend_from_slice(format!("{byte:02X}").as_bytes());
    }
    ids.extend_from_slice(format!("{physical:016X}").as_bytes());
}

/// The queue of a send. `None` if Python has to find it, or it is of a group's retries.
fn find_target<'t, 'py>(
    py: Python<'py>,
    targets: &'t mut Vec<Target<'py>>,
    queues: &Bound<'py, PyDict>,
    header: &Header,
) -> PyResult<Option<&'t mut Target<'py>>> {
    let (Some(topic), Some(text)) = (header.field("b"), header.field("e")) else {
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
