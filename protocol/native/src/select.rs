//! The messages of a queue that a filter lets through: from entries of the queue to the ranges of
//! the log in which their records lie (`daemons/broker/filters/properties.py`).

use pyo3::buffer::{PyBuffer, ReadOnlyCell};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::condition::Found;
use crate::entry::Entry;
use crate::filter::Filter;
use crate::layout::*;
use crate::stored;

/// A queue whose messages are filtered, and the log that its entries point to.
struct Records<'a> {
    file: &'a [ReadOnlyCell<u8>],
    queue_id: i32,
    /// After head and body of a record: its topic, and the length of the properties.
    between: usize,
}

/// Search entries, the first of which has an index, for messages that match a filter, while they
/// point into one file of the log, mapped in `view` from `base` on, and at records in their usual
/// form.
///
/// At most `wanted` are taken, so large together, though one in any case. Returns the ranges of
/// the log with them, as physical offset and size; their number; their bytes; how many entries
/// were scanned; whether later entries may have more: Python continues there.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn select<'py>(
    py: Python<'py>,
    filter: &Filter,
    view: PyBuffer<u8>,
    base: i64,
    entries: &[u8],
    index: i64,
    queue_id: i32,
    between: usize,
    wanted: usize,
    most_bytes: i64,
) -> PyResult<Bound<'py, PyTuple>> {
    let file = view.as_slice(py).ok_or_else(|| PyValueError::new_err("a file in pieces"))?;
    let records = Records { file, queue_id, between };
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    let (mut count, mut total, mut passed) = (0, 0, 0);
    let mut goes_on = true;
    let mut properties = Vec::new();
    let mut found = Found::default();
    for entry in entries.chunks_exact(ENTRY_SIZE).map(Entry::read) {
        let (physical, size) = (entry.physical_offset, i64::from(entry.size));
        let at = physical.wrapping_sub(base);
        if records.read(at, size, index + passed, &mut properties).is_none() {
            break;
        }
        match filter.matches(&properties, &mut found) {
            None => break,
            Some(false) => {
                passed += 1;
                continue;
            }
            Some(true) => {}
        }
        if count > 0 && total + size > most_bytes {
            goes_on = false;
            break;
        }
        match ranges.last_mut() {
            Some(last) if last.0 + last.1 == physical => last.1 += size,
            _ => ranges.push((physical, size)),
        }
        total += size;
        count += 1;
        passed += 1;
        if count >= wanted {
            goes_on = false;
            break;
        }
    }
    (PyList::new(py, ranges)?, count, total, passed, goes_on).into_pyobject(py)
}

impl Records<'_> {
    /// Reads the properties of the record at a place in the file. `None` if it is not the message
    /// with that index, or not as records usually are.
    fn read(&self, at: i64, size: i64, index: i64, properties: &mut Vec<u8>) -> Option<()> {
        let at = usize::try_from(at).ok()?;
        let size = usize::try_from(size).ok().filter(|size| *size >= SMALLEST_RECORD)?;
        let record = self.file.get(at..at.checked_add(size)?)?;
        if !stored::is_record(record, self.queue_id, index) {
            return None;
        }
        stored::properties(record, self.between, properties)
    }
}
