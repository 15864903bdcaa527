//! Items of the key index, written into a file's mapping (store/index.py).

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::layout::{INDEX_HEADER, INDEX_ITEM, INDEX_PUT, INDEX_SLOT};

/// Add items, each an i32 hash and an i64 physical offset, to the index file mapped in `map`.
///
/// `count` is the number of the next item and `used` the slots in use, any number in a damaged
/// file; returns both as they are then. Raises ValueError if the items do not fit.
#[pyfunction]
pub fn put_items(
    py: Python,
    map: PyBuffer<u8>,
    slots: usize,
    count: usize,
    used: i64,
    items: &[u8],
    seconds: i32,
) -> PyResult<(usize, i64)> {
    let data = map
        .as_mut_slice(py)
        .ok_or_else(|| PyValueError::new_err("an index that is not mapped to be written"))?;
    let items_at = INDEX_HEADER + INDEX_SLOT * slots;
    let number = items.len() / INDEX_PUT;
    let end = items_at + INDEX_ITEM * (count + number);
    if slots == 0 || count == 0 || items.len() % INDEX_PUT != 0 || end > data.len() {
        return Err(PyValueError::new_err(format!("no room for {number} items after {count}")));
    }
    let (mut count, mut used) = (count, used);
    for item in items.chunks_exact(INDEX_PUT) {
        let hash = u32::from_be_bytes([item[0], item[1], item[2], item[3]]) as usize;
        let slot = &data[INDEX_HEADER + INDEX_SLOT * (hash % slots)..][..INDEX_SLOT];
        let last = i32::from_be_bytes([slot[0].get(), slot[1].get(), slot[2].get(), slot[3].get()]);
        let previous = match usize::try_from(last) {
            Ok(before) if before > 0 && before <= count => last,
            _ => {
                used += 1;
                0
            }
        };
        let place = &data[items_at + INDEX_ITEM * count..][..INDEX_ITEM];
        let rest = seconds.to_be_bytes().into_iter().chain(previous.to_be_bytes());
        for (cell, byte) in place.iter().zip(item.iter().copied().chain(rest)) {
            cell.set(byte);
        }
        for (cell, byte) in slot.iter().zip((count as i32).to_be_bytes()) {
            cell.set(byte);
        }
        count += 1;
    }
    Ok((count, used))
}
