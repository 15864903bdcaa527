//! The answer to a pull, from entries of a queue and the log that they point into.

use pyo3::buffer::{PyBuffer, ReadOnlyCell};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::condition::Found as Values;
use crate::entry::Entry;
use crate::filter::Filter;
use crate::layout::*;
use crate::reply::{self, Pieces};
use crate::stored;

/// Replies to pulls: with messages, and without a match.
#[pyclass(frozen)]
pub struct PullPath {
    found: Pieces,
    none_fits: Pieces,
}

/// The whole frame, the next queue offset, messages, their bytes, and the physical offset
/// after the last.
pub type Answer<'py> = (Bound<'py, PyBytes>, i64, usize, usize, i64);

/// What a file of the log has mapped, as bytes of which so many have been written, with the physical
/// offset of its first.
pub type Part = (PyBuffer<u8>, usize, i64);

/// What a pull may get.
pub struct Wish<'a> {
    pub codes: &'a [i64],
    /// With the bytes between body and properties of a record.
    pub filter: Option<(&'a Filter, usize)>,
    pub count: usize,
    pub bytes: usize,
}

/// Entries of a queue, of which the first has the queue offset `offset`.
pub struct Entries<'a> {
    pub bytes: &'a [u8],
    pub queue_id: i32,
    pub offset: i64,
}

/// Part of the log, as a file has it mapped: the written bytes from `start` on.
struct Log<'a> {
    bytes: &'a [ReadOnlyCell<u8>],
    start: i64,
}

/// What was found: where it lies in the log's part, and how many entries were passed.
#[derive(Default)]
struct Found {
    ranges: Vec<(usize, usize)>,
    count: usize,
    size: usize,
    passed: usize,
}

#[pymethods]
impl PullPath {
    #[new]
    fn new(found: Pieces, none_fits: Pieces) -> PyResult<Self> {
        reply::check(&found)?;
        reply::check(&none_fits)?;
        Ok(PullPath { found, none_fits })
    }

    /// The answer to a pull from entries of a queue, of which the first has the queue offset
    /// `offset`. None if Python must process them.
    ///
    /// `wanted` has the codes of tags that are, none for all, and a filter by properties or None, with
    /// the bytes between body and properties of a record. `limits` are messages and bytes. `part`
    /// is what a file of the log has mapped, as bytes of which so many have been written, with the
    /// physical offset of its first. `bounds` are those of the queue.
    ///
    /// The mapping cannot be closed or shortened meanwhile: a buffer of it is held, deleted files
    /// stay readable while they are mapped, and only starts shorten files. No other thread of the
    /// interpreter runs, and only bytes after the written end change.
    #[allow(clippy::too_many_arguments)]
    fn answer<'py>(
        &self,
        py: Python<'py>,
        entries: &[u8],
        queue_id: i32,
        offset: i64,
        wanted: (Vec<i64>, Option<(PyRef<'py, Filter>, usize)>),
        limits: (usize, usize),
        part: Part,
        bounds: (i64, i64),
        opaque: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Answer<'py>>> {
        // One that is longer than any client writes it is not an error of this code.
        let Ok(opaque) = opaque.extract::<i64>() else { return Ok(None) };
        let (codes, filter) = &wanted;
        let filter = filter.as_ref().map(|(filter, between)| (&**filter, *between));
        let wish = Wish { codes, filter, count: limits.0, bytes: limits.1 };
        let entries = Entries { bytes: entries, queue_id, offset };
        self.answer_from(py, &entries, &wish, &part, bounds, opaque)
    }
}

impl PullPath {
    /// The same for a peer that numbers its requests as clients do.
    pub fn answer_from<'py>(
        &self,
        py: Python<'py>,
        entries: &Entries,
        wish: &Wish,
        part: &Part,
        bounds: (i64, i64),
        opaque: i64,
    ) -> PyResult<Option<Answer<'py>>> {
        let (map, written, start) = part;
        let Some(bytes) = map.as_slice(py).and_then(|all| all.get(..*written)) else {
            return Ok(None);
        };
        let log = Log { bytes, start: *start };
        let Some(found) = find(entries, wish, &log) else { return Ok(None) };

        let next = entries.offset + found.passed as i64;
        let numbers = [next, bounds.0, bounds.1, opaque].map(|number| number.to_string());
        let values = [0, 1, 2, 3].map(|gap: usize| numbers[gap].as_bytes());
        let pieces = if found.count > 0 { &self.found } else { &self.none_fits };
        let mut head = Vec::with_capacity(512);
        reply::push_head(&mut head, pieces, values, found.size);
        let frame = PyBytes::new_with(py, head.len() + found.size, |frame| {
            let (front, mut rest) = frame.split_at_mut(head.len());
            front.copy_from_slice(&head);
            for (at, size) in &found.ranges {
                let (place, behind) = rest.split_at_mut(*size);
                for (byte, cell) in place.iter_mut().zip(&bytes[*at..]) {
                    *byte = cell.get();
                }
                rest = behind;
            }
            Ok(())
        })?;
        let end = found.ranges.last().map_or(0, |(at, size)| start + (at + size) as i64);
        Ok(Some((frame, next, found.count, found.size, end)))
    }
}

/// The matching records of some entries, each checked. `None` if one of them is invalid or in
/// another file: only Python can continue then.
fn find(entries: &Entries, wish: &Wish, log: &Log) -> Option<Found> {
    let mut found = Found::default();
    let mut end = 0;
    let (mut properties, mut values) = (Vec::new(), Values::default());
    for entry in entries.bytes.chunks_exact(ENTRY_SIZE).map(Entry::read) {
        let physical = entry.physical_offset;
        let size = usize::try_from(entry.size).ok()?;
        if !wish.codes.is_empty() && !wish.codes.contains(&entry.tags_code) {
            if size == 0 {
                return None;
            }
            found.passed += 1;
            continue;
        }
        // No message, or one that has been deleted perhaps: those do not count.
        if size == FILLER_SIZE || physical < log.start {
            return None;
        }
        let is_too_large = found.count > 0 && found.size.checked_add(size)? > wish.bytes;
        if found.count > 0 && found.count >= wish.count {
            break;
        }
        if wish.filter.is_none() && is_too_large {
            break;
        }
        let at = usize::try_from(physical.checked_sub(log.start)?).ok()?;
        let stop = at.checked_add(size)?;
        // In their order, and none within another: bytes that a peer has chosen may look like a
        // record.
        if size < SMALLEST_RECORD || at < end || stop > log.bytes.len() {
            return None;
        }
        let index = entries.offset.checked_add(i64::try_from(found.passed).ok()?)?;
        let bytes = &log.bytes[at..stop];
        if !stored::is_record(bytes, entries.queue_id, index) {
            return None;
        }
        if let Some((filter, between)) = wish.filter {
            stored::properties(bytes, between, &mut properties)?;
            if !filter.matches(&properties, &mut values)? {
                found.passed += 1;
                continue;
            }
            if is_too_large {
                break;
            }
        }
        match found.ranges.last_mut() {
            Some((start, length)) if *start + *length == at => *length += size,
            _ => found.ranges.push((at, size)),
        }
        end = stop;
        found.count += 1;
        found.size += size;
        found.passed += 1;
    }
    Some(found)
}
