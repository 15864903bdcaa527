//! Pulls whose headers equal an earlier one, except for offsets and opaque.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::frame::Frame;
use crate::header::Header;
use crate::layout::*;
use crate::prefetched::Prefetched;
use crate::pull::Answer;

/// Reads pulls, and finds what has been planned for those whose fields say the same.
#[pyclass(frozen)]
pub struct PullReader {
    same: Vec<String>,
    between: Vec<u8>,
    absent: Vec<u8>,
    most_frame: usize,
}

/// Where the next frame begins, what is planned, the queue offset, the one to commit, the opaque, and
/// the answer where what it takes has been prefetched.
type Pull<'py> = (usize, Bound<'py, PyAny>, i64, i64, i64, Option<Answer<'py>>);

#[pymethods]
impl PullReader {
    /// `same` are the fields by which plans are found: their texts with `between` among them, and
    /// `absent` for one that a header has not.
    #[new]
    fn new(same: Vec<String>, between: Vec<u8>, absent: Vec<u8>, most_frame: usize) -> Self {
        PullReader { same, between, absent, most_frame }
    }

    /// The pull at a position, at a time of Python's clock. None unless it is as clients write it,
    /// and `plans` has its plan, whose group is in the table of `groups` what it was.
    fn read<'py>(
        &self,
        data: &Bound<'py, PyBytes>,
        position: usize,
        plans: &Bound<'py, PyDict>,
        groups: &Bound<'py, PyDict>,
        now: f64,
    ) -> PyResult<Option<Pull<'py>>> {
        let py = data.py();
        let Some(frame) = Frame::at(data.as_bytes(), position, self.most_frame) else {
            return Ok(None);
        };
        let Some((header, offset, committed)) = numbers(&frame) else { return Ok(None) };
        let key = PyBytes::new(py, &self.key(&header));
        let Some(plan) = plans.get_item(key)? else { return Ok(None) };
        let known = groups.get_item(plan.getattr(intern!(py, "group"))?)?;
        if !known
            .is_some_and(|known| plan.getattr(intern!(py, "known")).is_ok_and(|k| k.is(&known)))
        {
            return Ok(None);
        }
        let answer = prefetched(&plan, offset, committed, header.opaque, now)?;
        Ok(Some((frame.end, plan, offset, committed, header.opaque, answer)))
    }
}

/// The answer to a pull from prefetched entries, if its offset is among thems queue as it is now.
fn prefetched<'py>(
    plan: &Bound<'py, PyAny>,
    offset: i64,
    committed: i64,
    opaque: i64,
    now: f64,
) -> PyResult<Option<Answer<'py>>> {
    let py = plan.py();
    let found = plan.getattr(intern!(py, "prefetched"))?;
    let Ok(found) = found.downcast::<Prefetched>() else { return Ok(None) };
    let queue = plan.getattr(intern!(py, "queue"))?;
    let minimum: i64 = queue.getattr(intern!(py, "minimum"))?.extract()?;
    let readable: i64 = queue.getattr(intern!(py, "readable"))?.extract()?;
    let appended: i64 = queue.getattr(intern!(py, "appended"))?.extract()?;
    if !(minimum..readable).contains(&offset) || committed > appended {
        return Ok(None);
    }
    found.get().answer(py, offset, (minimum, readable), opaque, now)
}

impl PullReader {
    fn key(&self, header: &Header) -> Vec<u8> {
        let mut key = Vec::with_capacity(256);
        for (number, name) in self.same.iter().enumerate() {
            if number > 0 {
                key.extend_from_slice(&self.between);
            }
            key.extend_from_slice(header.field(name).map_or(&self.absent, |text| text.as_bytes()));
        }
        key
    }
}

/// A header with its queue offset and the one to commit, 0 where none is. `None` for one that asks for
/// no answer.
fn numbers<'a>(frame: &Frame<'a>) -> Option<(Header<'a>, i64, i64)> {
    let header = Header::read(frame.header, |code| code == PULL)?;
    if header.flag & (RESPONSE | ONE_WAY) != 0 {
        return None;
    }
    let offset = header.number("queueOffset")?;
    let commits = header.number("sysFlag")? & COMMIT_OFFSET != 0;
    let committed = if commits { header.number("commitOffset")? } else { 0 };
    Some((header, offset, committed))
}
