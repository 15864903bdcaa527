//! Memory of Python's in which records are put together, until it writes them to the log.

use std::cell::Cell;

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

/// Such memory, filled from its start, and its position in the log.
pub struct Room<'a> {
    cells: &'a [Cell<u8>],
    start: i64,
    pub used: usize,
}

impl<'a> Room<'a> {
    /// `start` is the physical offset of the first byte. `None` for memory that cannot be written.
    pub fn of<'py: 'a>(py: Python<'py>, memory: &'a PyBuffer<u8>, start: i64) -> Option<Room<'a>> {
        Some(Room { cells: memory.as_mut_slice(py)?, start, used: 0 })
    }

    pub fn left(&self) -> usize {
        self.cells.len() - self.used
    }

    /// The physical offset of the next record.
    pub fn position(&self) -> i64 {
        self.start + self.used as i64
    }

    /// Puts bytes, for which there is room.
    pub fn put(&mut self, bytes: &[u8]) {
        let place = &self.cells[self.used..][..bytes.len()];
        for (cell, byte) in place.iter().zip(bytes) {
            cell.set(*byte);
        }
        self.used += bytes.len();
    }
}
