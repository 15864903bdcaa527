//! What a TubeMQ broker reads for a get: records of the index, and the frame of the answer.

use std::collections::HashSet;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

const INDEX: usize = 28;
const HEAD: usize = 52;
/// What the length of a record counts of its head.
const PREFIX: usize = HEAD - 4;
const TOKEN: i32 = 0x2C9_98B8;
const MAX_RECORD: i32 = HEAD as i32 + 28 * 1024 * 1024;

const FRAME_TOKEN: u32 = 0xFF7F_F4FE;
const CHUNK: usize = 8192;
const MAX_CHUNKS: usize = 28 * 1024 * 1024 / CHUNK;

/// The result for a piece of the index: processed bytes, the end of the data that was
/// read or -1, bytes of the records, whether the limit is reached, how many records, the spans
/// of the data that they are in, and how many records of the index are damaged.
type Selection = (usize, i64, i64, bool, usize, Vec<(i64, i64)>, usize);

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Which records of a partition are next; as `select_in_python` of selection.py.
#[pyfunction]
#[pyo3(signature = (piece, partition, codes, bounds, limit, joins))]
pub fn tube_select(
    piece: &[u8],
    partition: i32,
    codes: Option<HashSet<i32>>,
    bounds: (i64, i64),
    limit: i64,
    joins: (i64, i64),
) -> Selection {
    let (least, most) = bounds;
    let (gap, longest) = joins;
    let (mut scanned, mut last, mut size, mut count, mut bad) = (0, -1, 0, 0, 0);
    let mut runs: Vec<(i64, i64)> = Vec::new();
    for entry in piece.chunks_exact(INDEX) {
        let at = i64_at(entry, 4);
        let length = i32_at(entry, 12);
        scanned += INDEX;
        let end = match at.checked_add(i64::from(length)) {
            Some(end) if at >= 0 && end <= most && length > 0 && length <= MAX_RECORD => end,
            _ => {
                bad += 1;
                continue;
            }
        };
        if at < least {
            continue;
        }
        last = end;
        let is_wanted = i32_at(entry, 0) == partition
            && codes.as_ref().map_or(true, |codes| codes.contains(&i32_at(entry, 16)));
        if !is_wanted {
            continue;
        }
        match runs.last_mut() {
            Some(run)
                if run.0 + run.1 <= at && at - (run.0 + run.1) <= gap && end - run.0 <= longest =>
            {
                run.1 = end - run.0
            }
            _ => runs.push((at, i64::from(length))),
        }
        size += i64::from(length);
        count += 1;
        if size >= limit {
            return (scanned, last, size, true, count, runs, bad);
        }
    }
    (scanned, last, size, false, count, runs, bad)
}

/// A record's payload, and the varints before and after it in its message.
struct Message<'a> {
    payload: &'a [u8],
    before: Vec<u8>,
    behind: Vec<u8>,
}

impl Message<'_> {
    fn size(&self) -> usize {
        self.before.len() + self.payload.len() + self.behind.len()
    }
}

fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn varint_size(number: usize) -> usize {
    let mut size = 1;
    let mut left = number >> 7;
    while left > 0 {
        size += 1;
        left >>= 7;
    }
    size
}

/// The selected records of a span: a partition, and filter items; all without one.
type Wanted = Option<(i32, Option<HashSet<i32>>)>;

/// The wanted records of a span, each as a TransferedMessage; None if one of them is not a record.
fn messages<'a>(run: &'a [u8], wanted: &Wanted, found: &mut Vec<Message<'a>>) -> Option<()> {
    let mut rest = run;
    while !rest.is_empty() {
        if rest.len() < HEAD {
            return None;
        }
        let length = usize::try_from(i32_at(rest, 0)).ok()?;
        if i32_at(rest, 4) != TOKEN || length <= PREFIX || length + 4 > rest.len() {
            return None;
        }
        let (record, behind) = rest.split_at(length + 4);
        rest = behind;
        if let Some((partition, codes)) = wanted {
            let is_wanted = i32_at(record, 12) == *partition
                && codes.as_ref().map_or(true, |codes| codes.contains(&i32_at(record, 36)));
            if !is_wanted {
                continue;
            }
        }
        let payload = &record[HEAD..];
        let flag = i32_at(record, 48);
        if flag & 1 != 0 {
            // Attributes that are not there: no client could read it.
            if payload.len() < 4 || i64::from(i32_at(payload, 0)) > payload.len() as i64 - 4 {
                return None;
            }
        }
        let mut before = Vec::with_capacity(32);
        before.push(0x08);
        push_varint(&mut before, i64_at(record, 40) as u64);
        before.push(0x10);
        push_varint(&mut before, i64::from(i32_at(record, 8)) as u64);
        before.push(0x1a);
        push_varint(&mut before, payload.len() as u64);
        let mut after = Vec::with_capacity(11);
        after.push(0x20);
        push_varint(&mut after, i64::from(flag) as u64);
        found.push(Message { payload, before, behind: after });
    }
    Some(())
}

/// Where the bytes of a frame go, cut into chunks.
struct Chunks<'a> {
    out: &'a mut [u8],
    at: usize,
    room: usize,
    left: usize,
}

impl Chunks<'_> {
    fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.room == 0 {
                self.room = self.left.min(CHUNK);
                self.out[self.at..self.at + 4].copy_from_slice(&(self.room as u32).to_be_bytes());
                self.at += 4;
            }
            let size = bytes.len().min(self.room);
            self.out[self.at..self.at + size].copy_from_slice(&bytes[..size]);
            self.at += size;
            self.room -= size;
            self.left -= size;
            bytes = &bytes[size..];
        }
    }
}

/// The frame that answers a get with the wanted records in `runs`, and how many there are.
///
/// `headers` are the first two messages of an answer, `before` and `behind` the bytes of the answer
/// before and after its messages. None if a record is invalid, or the frame would be too long.
#[pyfunction]
#[pyo3(signature = (runs, wanted, serial, headers, method, before, behind))]
#[allow(clippy::too_many_arguments)]
pub fn tube_answer<'py>(
    py: Python<'py>,
    runs: Vec<Bound<'py, PyBytes>>,
    wanted: Wanted,
    serial: u32,
    headers: &[u8],
    method: u8,
    before: &[u8],
    behind: &[u8],
) -> PyResult<Option<(Bound<'py, PyBytes>, usize)>> {
    let mut found = Vec::new();
    for run in &runs {
        if messages(run.as_bytes(), &wanted, &mut found).is_none() {
            return Ok(None);
        }
    }
    let all: usize = found.iter().map(|one| 1 + varint_size(one.size()) + one.size()).sum();
    let data = before.len() + all + behind.len();
    let mut front = headers.to_vec();
    push_varint(&mut front, (3 + varint_size(data) + data) as u64);
    front.extend([0x08, method, 0x12]);
    push_varint(&mut front, data as u64);
    let total = front.len() + data;
    let chunks = total.div_ceil(CHUNK);
    if chunks > MAX_CHUNKS || method >= 0x80 {
        return Ok(None);
    }
    let frame = PyBytes::new_with(py, 12 + 4 * chunks + total, |out| {
        out[..4].copy_from_slice(&FRAME_TOKEN.to_be_bytes());
        out[4..8].copy_from_slice(&serial.to_be_bytes());
        out[8..12].copy_from_slice(&(chunks as u32).to_be_bytes());
        let mut place = Chunks { out, at: 12, room: 0, left: total };
        place.put(&front);
        place.put(before);
        let mut length = Vec::with_capacity(6);
        for one in &found {
            length.clear();
            length.push(0x22);
            push_varint(&mut length, one.size() as u64);
            place.put(&length);
            place.put(&one.before);
            place.put(one.payload);
            place.put(&one.behind);
        }
        place.put(behind);
        Ok(())
    })?;
    Ok(Some((frame, found.len())))
}
