//! Entries of consume queues (daemons/broker/store/layout.py).

use crate::layout::{ENTRY_AT_RECORD_SIZE, ENTRY_AT_TAGS_CODE, ENTRY_SIZE};

/// Where a record is, how large, and the tags code for filters.
pub struct Entry {
    pub physical_offset: i64,
    pub size: i32,
    pub tags_code: i64,
}

impl Entry {
    /// Reads one of so many bytes as it has.
    pub fn read(bytes: &[u8]) -> Entry {
        let bytes = &bytes[..ENTRY_SIZE];
        let places = [0, 1, 2, 3, 4, 5, 6, 7];
        Entry {
            physical_offset: i64::from_be_bytes(places.map(|place: usize| bytes[place])),
            size: i32::from_be_bytes([0, 1, 2, 3].map(|at| bytes[ENTRY_AT_RECORD_SIZE + at])),
            tags_code: i64::from_be_bytes(places.map(|at| bytes[ENTRY_AT_TAGS_CODE + at])),
        }
    }

    pub fn packed(&self) -> [u8; ENTRY_SIZE] {
        let mut entry = [0; ENTRY_SIZE];
        entry[..ENTRY_AT_RECORD_SIZE].copy_from_slice(&self.physical_offset.to_be_bytes());
        entry[ENTRY_AT_RECORD_SIZE..ENTRY_AT_TAGS_CODE].copy_from_slice(&self.size.to_be_bytes());
        entry[ENTRY_AT_TAGS_CODE..].copy_from_slice(&self.tags_code.to_be_bytes());
        entry
    }
}
