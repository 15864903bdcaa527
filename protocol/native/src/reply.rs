//! Replies in JSON, of which the text around four gaps is known (protocol/reply_template.py).

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::frame;

/// What stands around the gaps.
pub type Pieces = Vec<Vec<u8>>;

const GAPS: usize = 4;

/// Raises ValueError for a template that has more gaps, or fewer.
pub fn check(pieces: &Pieces) -> PyResult<()> {
    if pieces.len() == GAPS + 1 {
        return Ok(());
    }
    Err(PyValueError::new_err("a reply has four gaps"))
}

/// Appends a frame without its body, whose size is given.
pub fn push_head(to: &mut Vec<u8>, pieces: &Pieces, values: [&[u8]; GAPS], body_size: usize) {
    let size = pieces.iter().map(Vec::len).sum::<usize>()
        + values.iter().map(|value| value.len()).sum::<usize>();
    to.extend_from_slice(&frame::prefix(size, body_size));
    for (piece, value) in pieces.iter().zip(values) {
        to.extend_from_slice(piece);
        to.extend_from_slice(value);
    }
    to.extend_from_slice(&pieces[GAPS]);
}
