//! Pulls whose headers say what one of before has said, but for offsets and opaque.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::frame::Frame;
use crate::header::Header;
use crate::layout::*;

/// Reads pulls, and finds what has been planned for those whose fields say the same.
#[pyclass(frozen)]
pub struct PullReader {
    same: Vec<String>,
    between: Vec<u8>,
    absent: Vec<u8>,
    most_frame: usize,
}

/// Where the next frame begins, what is planned, the queue offset, the one to commit, and the opaque.
type Pull<'py> = (usize, Bound<'py, PyAny>, i64, i64, i64);

#[pymethods]
impl PullReader {
    /// `same` are the fields by which plans are found: their texts with `between` among them, and
    /// `absent` for one that a header has not.
    #[new]
    fn new(same: Vec<String>, between: Vec<u8>, absent: Vec<u8>, most_frame: usize) -> Self {
        PullReader { same, between, absent, most_frame }
    }

    /// The pull at a position. None unless it is as clients write it, and `plans` has its plan.
    fn read<'py>(
        &self,
        data: &Bound<'py, PyBytes>,
        position: usize,
        plans: &Bound<'py, PyDict>,
    ) -> PyResult<Option<Pull<'py>>> {
        let Some(frame) = Frame::at(data.as_bytes(), position, self.most_frame) else {
            return Ok(None);
        };
        let Some((header, offset, committed)) = numbers(&frame) else { return Ok(None) };
        let key = PyBytes::new(data.py(), &self.key(&header));
        let Some(plan) = plans.get_item(key)? else { return Ok(None) };
        Ok(Some((frame.end, plan, offset, committed, header.opaque)))
    }
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
