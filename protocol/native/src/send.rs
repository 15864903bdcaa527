//! Plain sends, from frames to what they become and replies.

use std::net::SocketAddrV4;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use crate::batch;
use crate::frame::Frame;
use crate::layout::*;
use crate::packing::{self, Output, Packed, Sent, Shared, Target};
use crate::properties::Properties;
use crate::record::{self, Place};
use crate::reply::{self, Pieces};
use crate::room::Room;
use crate::send_header::SendHeader;

/// Queues that one call serves; messages to more wait for the next.
const MOST_QUEUES: usize = 64;

/// What sends become, as the settings say.
#[pyclass(frozen)]
pub struct SendPath {
    max_body: usize,
    most_frame: usize,
    /// The property that each message gets, a separator before it.
    added: Vec<u8>,
    /// Names of properties for which Python must process a message, or at one of a batch.
    unusual: Vec<String>,
    unusual_in_batch: Vec<String>,
    store_host: Vec<u8>,
    /// Headers of the replies to a message and to a batch, around ids, queue id, queue offset and
    /// opaque.
    reply: Pieces,
    batch_reply: Pieces,
}

/// A queue that messages of this call go to, as headers name it.
struct Named<'py> {
    topic: String,
    queue_text: String,
    target: Target<'py>,
}

/// A frame, where it was sent from, and who is answered.
type Send<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyAny>);

/// What one call has taken so far.
struct Work<'a, 'py> {
    queues: &'a Bound<'py, PyDict>,
    targets: Vec<Named<'py>>,
    room: Room<'a>,
    place: Place<'a>,
    output: Output,
    replies: Replies,
}

/// Frames of replies.
#[derive(Default)]
struct Replies {
    ordinary: Vec<u8>,
    prompt: Vec<u8>,
}

/// A frame that is a send, as far as its header says.
struct Request<'a> {
    header: SendHeader<'a>,
    body: &'a [u8],
    is_batch: bool,
    flag: i32,
    shared: Shared<'a>,
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
            return Err(PyValueError::new_err("the addition is not a property"));
        };
        record::check_host(&store_host)?;
        reply::check(&reply)?;
        reply::check(&batch_reply)?;
        Ok(SendPath {
            max_body,
            most_frame,
            added: format!("\u{2}{added}").into_bytes(),
            unusual_in_batch: unusual.iter().cloned().chain([name.to_owned()]).collect(),
            unusual,
            store_host,
            reply,
            batch_reply,
        })
    }

    /// Take plain sends from `data`, from a position on, up to the first frame that is none.
    ///
    /// `queues` has the queues by topic and queue id, both as they stand in a header; `start` is the
    /// physical offset of the first record, and `room` the memory where records are put. What is
    /// `relayed` says in the field `o` where it was sent from, else it was from `born_host`. Returns
    /// None if there is none, else: the position after the last; the data to append; the
    /// replies, and those that do not wait for an fsync.
    #[allow(clippy::too_many_arguments)]
    fn take<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyBytes>,
        position: usize,
        queues: &Bound<'py, PyDict>,
        born_host: &[u8],
        relayed: bool,
        start: i64,
        room: PyBuffer<u8>,
        timestamp: i64,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let Ok(born_host) = <[u8; HOST_SIZE]>::try_from(born_host) else { return Ok(None) };
        let data = data.as_bytes();
        let Some(room) = Room::of(py, &room, start) else { return Ok(None) };
        let mut work = Work::new(queues, room, self.place(timestamp));
        let mut at = position;
        while let Some((request, end)) = self.next_request(data, at, born_host, relayed) {
            if !work.take(self, &request)? {
                break;
            }
            at = end;
        }
        if work.output.messages == 0 {
            return Ok(None);
        }
        let replies = PyBytes::new(py, &work.replies.ordinary);
        let prompt = PyBytes::new(py, &work.replies.prompt);
        (at, work.packed(py)?, replies, prompt).into_pyobject(py).map(Some)
    }

    /// Take plain sends from frames that have come alone, from one of them on, up to the first that
    /// is none.
    ///
    /// Each of `sends` is a frame, where it was sent from, and who is answered. Returns None if there is none,
    /// else as `take`: how many; the data to append; the replies, each with its receiver.
    #[allow(clippy::too_many_arguments)]
    fn take_each<'py>(
        &self,
        py: Python<'py>,
        sends: &Bound<'py, PyList>,
        begin: usize,
        queues: &Bound<'py, PyDict>,
        start: i64,
        room: PyBuffer<u8>,
        timestamp: i64,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let Some(room) = Room::of(py, &room, start) else { return Ok(None) };
        let mut work = Work::new(queues, room, self.place(timestamp));
        let (replies, prompt) = (PyList::empty(py), PyList::empty(py));
        let mut at = begin;
        for send in sends.iter().skip(begin) {
            let (data, born_host, sink): Send = send.extract()?;
            let Ok(born_host) = born_host.as_bytes().try_into() else { break };
            let data = data.as_bytes();
            let Some((request, end)) = self.next_request(data, 0, born_host, false) else { break };
            if end != data.len() || !work.take(self, &request)? {
                break;
            }
            work.replies.give(&sink, &replies, &prompt)?;
            at += 1;
        }
        if work.output.messages == 0 {
            return Ok(None);
        }
        (at - begin, work.packed(py)?, replies, prompt).into_pyobject(py).map(Some)
    }
}

impl<'a, 'py> Work<'a, 'py> {
    fn new(queues: &'a Bound<'py, PyDict>, room: Room<'a>, place: Place<'a>) -> Self {
        let (output, replies) = Default::default();
        Work { queues, targets: Vec::new(), room, place, output, replies }
    }

    /// Stores the messages of a request; returns whether it did, or Python must process it.
    fn take(&mut self, path: &SendPath, request: &Request) -> PyResult<bool> {
        let Some(target) = find_target(&mut self.targets, self.queues, &request.header)? else {
            return Ok(false);
        };
        let (room, output, replies) = (&mut self.room, &mut self.output, &mut self.replies);
        Ok(path.store(request, target, &self.place, room, output, replies).is_some())
    }

    fn packed(&self, py: Python<'py>) -> PyResult<Packed<'py>> {
        self.output.packed(py, &self.room, self.targets.iter().map(|named| &named.target))
    }
}

impl SendPath {
    fn place(&self, store_timestamp: i64) -> Place<'_> {
        Place { store_host: &self.store_host, store_timestamp }
    }

    /// The frame at a position, if it is whole and may be a plain send, and where it ends.
    fn next_request<'a>(
        &'a self,
        data: &'a [u8],
        at: usize,
        born_host: [u8; HOST_SIZE],
        relayed: bool,
    ) -> Option<(Request<'a>, usize)> {
        let frame = Frame::of_either_form(data, at, self.most_frame)?;
        let header = SendHeader::of(&frame)?;
        let Frame { body, end, .. } = frame;
        let sys_flag = header.sys_flag()?;
        if header.request_flag() & RESPONSE != 0
            || body.len() > self.max_body
            || sys_flag < 0
            || sys_flag & i64::from(TRANSACTION_MASK) != 0
        {
            return None;
        }
        let is_batch = header.is_batch()?;
        let shared = Shared {
            sys_flag: i32::try_from(sys_flag & !i64::from(IPV6_HOSTS) & 0x7FFF_FFFF).ok()?,
            born_timestamp: header.born_timestamp()?,
            born_host: match header.born_host().filter(|_| relayed) {
                Some(named) => packed_host(named)?,
                None => born_host,
            },
            reconsume_times: header.reconsume_times()?,
            added: &self.added,
        };
        // The flag of a batch is ignored: its messages have their own.
        let flag = if is_batch { 0 } else { header.flag()? };
        Some((Request { header, body, is_batch, flag, shared }, end))
    }

    /// Puts the messages of a request. `None`, and nothing put, if Python is to look
    /// at it, or it has no room.
    fn store(
        &self,
        request: &Request,
        target: &mut Target,
        place: &Place,
        room: &mut Room,
        output: &mut Output,
        replies: &mut Replies,
    ) -> Option<()> {
        let text = request.header.properties();
        let first = target.next;
        let shared = &request.shared;
        if request.is_batch {
            let promptly = batch::is_prompt(text)?;
            let sent = batch::messages(request.body, &self.unusual_in_batch)?;
            let size = batch::size(&sent, target, shared, usize::MAX)?;
            if sent.is_empty() || size > room.left() {
                return None;
            }
            let ids = packing::append_all(&sent, shared, target, place, room, output);
            replies.push(&self.batch_reply, &ids, &request.header, target, first, promptly);
            return Some(());
        }
        let properties = Properties::read(text, &self.unusual)?;
        let promptly = properties.wait == "false";
        let sent = Sent {
            body: request.body,
            flag: request.flag,
            text,
            properties: properties.without_wait(),
        };
        if target.size(&sent, shared, usize::MAX)? > room.left() {
            return None;
        }
        let mut id = Vec::with_capacity(16);
        packing::push_id(&mut id, &[], room.position());
        target.append(&sent, shared, place, room, output);
        replies.push(&self.reply, &id, &request.header, target, first, promptly);
        Some(())
    }
}

impl Replies {
    /// Moves the replies into lists by receiver.
    fn give<'py>(
        &mut self,
        sink: &Bound<'py, PyAny>,
        ordinary: &Bound<'py, PyList>,
        prompt: &Bound<'py, PyList>,
    ) -> PyResult<()> {
        for (frames, to) in [(&mut self.ordinary, ordinary), (&mut self.prompt, prompt)] {
            if !frames.is_empty() {
                to.append((sink, PyBytes::new(to.py(), frames)))?;
                frames.clear();
            }
        }
        Ok(())
    }

    /// Adds the answer to a request whose messages have got these ids.
    fn push(
        &mut self,
        pieces: &Pieces,
        ids: &[u8],
        header: &SendHeader,
        target: &Target,
        first_offset: i64,
        promptly: bool,
    ) {
        if header.request_flag() & ONE_WAY != 0 {
            return;
        }
        let to = if promptly { &mut self.prompt } else { &mut self.ordinary };
        let queue_id = target.queue_id.to_string();
        let offset = first_offset.to_string();
        let opaque = header.opaque().to_string();
        let values = [ids, queue_id.as_bytes(), offset.as_bytes(), opaque.as_bytes()];
        reply::push_head(to, pieces, values, 0);
    }
}

/// The queue of a send. `None` if Python has to find it, or it is of a group's retries.
fn find_target<'t, 'py>(
    targets: &'t mut Vec<Named<'py>>,
    queues: &Bound<'py, PyDict>,
    header: &SendHeader,
) -> PyResult<Option<&'t mut Target<'py>>> {
    let (Some(topic), Some(text)) = (header.topic(), header.queue_text()) else {
        return Ok(None);
    };
    if topic.starts_with('%') {
        return Ok(None);
    }
    let known = targets.iter().position(|one| one.queue_text == text && one.topic == topic);
    if let Some(known) = known {
        return Ok(Some(&mut targets[known].target));
    }
    if targets.len() == MOST_QUEUES {
        return Ok(None);
    }
    let py = queues.py();
    let key = (PyString::new(py, topic), PyString::new(py, text));
    let Some(queue) = queues.get_item(key)? else { return Ok(None) };
    targets.push(Named {
        target: Target::of(queue, topic)?,
        topic: topic.to_owned(),
        queue_text: text.to_owned(),
    });
    Ok(targets.last_mut().map(|named| &mut named.target))
}

/// An address of a header as a record holds it. `None` unless it is of IPv4, in its usual form.
fn packed_host(text: &str) -> Option<[u8; HOST_SIZE]> {
    let address: SocketAddrV4 = text.parse().ok()?;
    let mut packed = [0; HOST_SIZE];
    packed[..4].copy_from_slice(&address.ip().octets());
    packed[6..].copy_from_slice(&address.port().to_be_bytes());
    Some(packed)
}
