//! Records where they lie in a file of the log that Python has mapped.

use pyo3::buffer::ReadOnlyCell;

use crate::record::{HEAD_SIZE, MAGIC};

const IPV6_HOSTS: i32 = 0x30;

/// Whether bytes, which are not fewer than the smallest record has, are by what their head says the
/// record of a message of a queue.
pub fn is_record(bytes: &[ReadOnlyCell<u8>], queue_id: i32, index: i64) -> bool {
    let long = |at: usize| i64::from(int(bytes, at)) << 32 | i64::from(int(bytes, at + 4) as u32);
    usize::try_from(int(bytes, 0)) == Ok(bytes.len())
        && int(bytes, 4) == MAGIC
        && int(bytes, 12) == queue_id
        && long(20) == index
}

/// Copies the properties of such a record. Between them and the body so many bytes are for the topic
/// and lengths. `None` if it is not as records usually are.
pub fn properties(bytes: &[ReadOnlyCell<u8>], between: usize, to: &mut Vec<u8>) -> Option<()> {
    if int(bytes, 36) & IPV6_HOSTS != 0 {
        return None;
    }
    let body = usize::try_from(int(bytes, HEAD_SIZE - 4)).ok()?;
    let stored = bytes.get(HEAD_SIZE.checked_add(between)?.checked_add(body)?..)?;
    // The file may be written while it is read: what is looked at twice is a copy.
    to.clear();
    to.extend(stored.iter().map(ReadOnlyCell::get));
    Some(())
}

fn int(bytes: &[ReadOnlyCell<u8>], at: usize) -> i32 {
    i32::from_be_bytes([0, 1, 2, 3].map(|one| bytes[at + one].get()))
}
