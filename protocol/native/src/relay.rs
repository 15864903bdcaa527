//! What a snode passes on: sends of its clients, from frames to frames, and their answers back.
//!
//! A request gets an opaque of its own, below zero, which Python's requests on the same connection
//! never have; by it the answer finds its client again. Bodies are copied and never read.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::frame::{self, Frame};
use crate::header::Outline;
use crate::layout::*;

/// Fields with which Python must look up a request: other names of its enode, what only a snode
/// may say, and a signature, which is of the fields as they are.
const UNUSUAL: [&str; 6] = ["o", "p", "bname", "enodeName", "Signature", "AccessKey"];
/// About what a request takes that is at an enode, besides its body, as in Python.
const COST: usize = 2048;

/// A request that is at the enode.
struct Waiting {
    channel: u32,
    opaque: i64,
    code: i64,
    size: usize,
    topic: String,
    began: f64,
}

/// The answers for one client.
struct Answers {
    frames: Vec<u8>,
    count: usize,
    owed: usize,
    began: f64,
}

/// Of a channel: frames of answers, how many, what was owed, when the first of them began.
type Answered<'py> = (u32, Bound<'py, PyBytes>, usize, usize, f64);
/// Of a request: its channel, its opaque there, its code, what was owed.
type Settled = (u32, i64, i64, usize);
/// Where the next frame begins, what goes to the enode, its name, how many, what is owed.
type Taken<'py> = (usize, Bound<'py, PyBytes>, String, usize, usize);

/// The requests of clients on one connection to an enode.
#[pyclass]
pub struct Relay {
    most_frame: usize,
    next: i32,
    waiting: HashMap<i32, Waiting>,
}

#[pymethods]
impl Relay {
    #[new]
    fn new(most_frame: usize) -> Self {
        Relay { most_frame, next: -1, waiting: HashMap::new() }
    }

    fn __len__(&self) -> usize {
        self.waiting.len()
    }

    /// Take plain sends to one enode from `data`, from a position on, up to the first frame that is
    /// none. `added` are extension fields, each followed by a comma; `alone` is the enode of those that
    /// name none; what is for topics that are `pushed` is for Python. `None` if there is none.
    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (data, position, channel, added, wanted, now, alone=None, pushed=vec![]))]
    fn take<'py>(
        &mut self,
        py: Python<'py>,
        data: &Bound<'py, PyBytes>,
        position: usize,
        channel: u32,
        added: &[u8],
        wanted: &str,
        now: f64,
        alone: Option<&str>,
        pushed: Vec<String>,
    ) -> Option<Taken<'py>> {
        let data = data.as_bytes();
        let (mut at, mut out, mut count, mut owed) = (position, Vec::new(), 0, 0);
        while let Some(frame) = Frame::at(data, at, self.most_frame) {
            let Some(outline) = Outline::read(frame.header) else { break };
            // Python turns a one-way request into one with an answer: otherwise its end would be unknown,
            // and so its memory.
            if outline.code != SEND_V2 || outline.flag & (RESPONSE | ONE_WAY) != 0 {
                break;
            }
            if UNUSUAL.iter().any(|name| outline.field(name).is_some()) {
                break;
            }
            let enode = outline.field("n").filter(|name| !name.is_empty()).or(alone);
            let (Some(enode), Some(topic)) = (enode, outline.field("b")) else { break };
            if pushed.iter().any(|one| one == topic) {
                break;
            }
            if enode != wanted || !self.put(&frame, &outline, added, &mut out) {
                break;
            }
            let waiting = Waiting {
                channel,
                opaque: outline.opaque,
                code: outline.code,
                size: frame.body.len(),
                topic: topic.to_owned(),
                began: now,
            };
            owed += COST + waiting.size;
            self.waiting.insert(self.next, waiting);
            self.next = if self.next == i32::MIN { -1 } else { self.next - 1 };
            count += 1;
            at = frame.end;
        }
        (count > 0).then(|| (at, PyBytes::new(py, &out), wanted.to_owned(), count, owed))
    }

    /// The enode that the frame at a position is for, if it may be taken.
    #[staticmethod]
    fn enode_of(data: &[u8], position: usize, most_frame: usize) -> Option<String> {
        let frame = Frame::at(data, position, most_frame)?;
        let outline = Outline::read(frame.header)?;
        (outline.code == SEND_V2).then(|| outline.field("n").unwrap_or("").to_owned())
    }

    /// Take answers to these requests from `data`, from a position on, up to the first frame that
    /// is none: where that begins, what goes to each channel, and the bytes and requests that were
    /// sent with success, by topic.
    #[allow(clippy::type_complexity)]
    fn answers<'py>(
        &mut self,
        py: Python<'py>,
        data: &Bound<'py, PyBytes>,
        position: usize,
    ) -> (usize, Vec<Answered<'py>>, Vec<(String, usize, usize)>) {
        let data = data.as_bytes();
        let mut at = position;
        let mut places: HashMap<u32, usize> = HashMap::new();
        let mut found: Vec<(u32, Answers)> = Vec::new();
        let mut sizes: HashMap<String, (usize, usize)> = HashMap::new();
        while let Some(frame) = Frame::at(data, at, self.most_frame) {
            let Some(outline) = Outline::read(frame.header) else { break };
            let Ok(opaque) = i32::try_from(outline.opaque) else { break };
            if outline.flag & RESPONSE == 0 {
                break;
            }
            let Some(waiting) = self.waiting.remove(&opaque) else { break };
            let place = *places.entry(waiting.channel).or_insert_with(|| {
                let empty = Answers { frames: Vec::new(), count: 0, owed: 0, began: waiting.began };
                found.push((waiting.channel, empty));
                found.len() - 1
            });
            let answers = &mut found[place].1;
            answers.count += 1;
            answers.owed += COST + waiting.size;
            write(&frame, &outline, &[], waiting.opaque, &mut answers.frames);
            if outline.code == SUCCESS {
                let size = sizes.entry(waiting.topic).or_default();
                size.0 += waiting.size;
                size.1 += 1;
            }
            at = frame.end;
        }
        let found = found
            .into_iter()
            .map(|(channel, one)| {
                (channel, PyBytes::new(py, &one.frames), one.count, one.owed, one.began)
            })
            .collect();
        let sizes = sizes.into_iter().map(|(topic, (bytes, count))| (topic, bytes, count));
        (at, found, sizes.collect())
    }

    /// A request that was answered in a way that Python has to read.
    fn settle(&mut self, opaque: i32) -> Option<Settled> {
        self.waiting.remove(&opaque).map(settled)
    }

    /// Removes requests that started before a time, or all, because they will not be answered.
    #[pyo3(signature = (before=None))]
    fn give_up(&mut self, before: Option<f64>) -> Vec<Settled> {
        let late = |one: &Waiting| before.map_or(true, |time| one.began <= time);
        let opaques: Vec<i32> =
            self.waiting.iter().filter(|(_, one)| late(one)).map(|(key, _)| *key).collect();
        opaques.iter().filter_map(|key| self.waiting.remove(key)).map(settled).collect()
    }
}

impl Relay {
    /// Writes a request with the next opaque. False, and nothing written, if it gets too long.
    fn put(&self, frame: &Frame, outline: &Outline, added: &[u8], out: &mut Vec<u8>) -> bool {
        let longest = frame.header.len() + frame.body.len() + added.len() + 16;
        if outline.fields_at.is_none()
            || longest > self.most_frame
            || frame.header.len() + added.len() + 16 > HEADER_LENGTH as usize
            || self.waiting.contains_key(&self.next)
        {
            return false;
        }
        write(frame, outline, added, i64::from(self.next), out);
        true
    }
}

fn settled(one: Waiting) -> Settled {
    (one.channel, one.opaque, one.code, COST + one.size)
}

/// Writes a frame with another opaque, and fields added in front of its own.
fn write(frame: &Frame, outline: &Outline, added: &[u8], opaque: i64, out: &mut Vec<u8>) {
    let begin = out.len();
    out.extend_from_slice(&[0; FRAME_PREFIX]);
    let opaque = opaque.to_string();
    let header = frame.header;
    let number = &outline.opaque_at;
    let fields_at = outline.fields_at.filter(|_| !added.is_empty());
    match fields_at {
        Some(at) if at <= number.start => {
            out.extend_from_slice(&header[..at]);
            out.extend_from_slice(added);
            out.extend_from_slice(&header[at..number.start]);
            out.extend_from_slice(opaque.as_bytes());
            out.extend_from_slice(&header[number.end..]);
        }
        Some(at) => {
            out.extend_from_slice(&header[..number.start]);
            out.extend_from_slice(opaque.as_bytes());
            out.extend_from_slice(&header[number.end..at]);
            out.extend_from_slice(added);
            out.extend_from_slice(&header[at..]);
        }
        None => {
            out.extend_from_slice(&header[..number.start]);
            out.extend_from_slice(opaque.as_bytes());
            out.extend_from_slice(&header[number.end..]);
        }
    }
    let header_size = out.len() - begin - FRAME_PREFIX;
    let prefix = frame::prefix(header_size, frame.body.len());
    out[begin..begin + FRAME_PREFIX].copy_from_slice(&prefix);
    out.extend_from_slice(frame.body);
}
