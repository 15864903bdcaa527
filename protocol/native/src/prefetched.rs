//! Entries of a queue that have been read before the pulls that ask for them.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::layout::ENTRY_SIZE;
use crate::pull::{Answer, Entries, Part, PullPath, Wish};

/// What the next pulls of all messages of a queue get, as long as the log is known to be in memory
/// there.
#[pyclass(frozen)]
pub struct Prefetched {
    path: Py<PullPath>,
    entries: Py<PyBytes>,
    queue_id: i32,
    offset: i64,
    limits: (usize, usize),
    part: Part,
    until: f64,
}

#[pymethods]
impl Prefetched {
    /// The first of `entries` has the queue offset `offset`. `limits` are messages and bytes of one
    /// pull; `part` holds all records, as for [`PullPath`], until a time of Python's clock.
    #[new]
    fn new(
        path: Py<PullPath>,
        entries: Py<PyBytes>,
        queue_id: i32,
        offset: i64,
        limits: (usize, usize),
        part: Part,
        until: f64,
    ) -> Self {
        Prefetched { path, entries, queue_id, offset, limits, part, until }
    }
}

impl Prefetched {
    /// The answer to a pull. `None` unless all that it may get is here, and sound.
    pub fn answer<'py>(
        &self,
        py: Python<'py>,
        offset: i64,
        bounds: (i64, i64),
        opaque: i64,
        now: f64,
    ) -> PyResult<Option<Answer<'py>>> {
        let (count, bytes) = self.limits;
        let entries = self.entries.as_bytes(py);
        let begin = usize::try_from(offset.saturating_sub(self.offset)).ok();
        let begin = begin.and_then(|before| before.checked_mul(ENTRY_SIZE));
        let end = begin.and_then(|begin| begin.checked_add(count.checked_mul(ENTRY_SIZE)?));
        let (Some(begin), Some(end)) = (begin, end) else { return Ok(None) };
        let Some(entries) = entries.get(begin..end).filter(|_| now <= self.until) else {
            return Ok(None);
        };
        let entries = Entries { bytes: entries, queue_id: self.queue_id, offset };
        let wish = Wish { codes: &[], filter: None, count, bytes };
        self.path.get().answer_from(py, &entries, &wish, &self.part, bounds, opaque)
    }
}
