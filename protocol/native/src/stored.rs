//! Records where they lie in a file of the log that Python has mapped.

use pyo3::buffer::ReadOnlyCell;

use crate::layout::*;

/// Whether bytes, which are not fewer than the smallest record has, are by what their head says the
/// record of a message of a queue.
pub fn is_record(bytes: &[ReadOnlyCell<u8>], queue_id: i32, index: i64) -> bool {
    let long = |at: usize| i64::from(int(bytes, at)) << 32 | i64::from(int(bytes, at + 4) as u32);
    usize::try_from(int(bytes, AT_SIZE)) == Ok(bytes.len())
        && int(bytes, AT_MAGIC) == MAGIC
        && int(bytes, AT_QUEUE_ID) == queue_id
        && long(AT_QUEUE_OFFSET) == index
}

/// Copies the properties of such a record. Between them and the body so many bytes are for the topic
/// and lengths. `None` if it is not as records usually are.
pub fn properties(bytes: &[ReadOnlyCell<u8>], between: usize, to: &mut Vec<u8>) -> Option<()> {
    if int(bytes, AT_SYS_FLAG) & IPV6_HOSTS != 0 {
        return None;
    }
    let body = usize::try_from(int(bytes, AT_BODY_LENGTH)).ok()?;
    let stored = bytes.get(HEAD_SIZE.checked_add(between)?.checked_add(body)?..)?;
    // The file may be written while it is read: data that is read twice is copied.
    to.clear();
    to.extend(stored.iter().map(ReadOnlyCell::get));
    Some(())
}

fn int(bytes: &[ReadOnlyCell<u8>], at: usize) -> i32 {
    i32::from_be_bytes([0, 1, 2, 3].map(|one| bytes[at + one].get()))
}

/// A record of a host with an IPv4 address, born at such a one, that has been copied.
pub struct Record<'a> {
    pub crc: u32,
    pub queue_id: i32,
    pub flag: i32,
    pub queue_offset: i64,
    pub physical_offset: i64,
    pub sys_flag: i32,
    pub born_timestamp: i64,
    pub born_host: &'a [u8],
    pub reconsume_times: i32,
    pub body: &'a [u8],
    /// Topic and properties, with their lengths.
    pub rest: &'a [u8],
}

impl<'a> Record<'a> {
    /// Reads one. `None` for bytes that are no such record from end to end.
    pub fn read(bytes: &'a [u8]) -> Option<Record<'a>> {
        let (head, behind) = (bytes.get(..HEAD_SIZE)?, &bytes[HEAD_SIZE..]);
        let int = |at: usize| i32::from_be_bytes([0, 1, 2, 3].map(|place| head[at + place]));
        let long = |at: usize| i64::from(int(at)) << 32 | i64::from(int(at + 4) as u32);
        let sys_flag = int(AT_SYS_FLAG);
        let body_size = usize::try_from(int(AT_BODY_LENGTH)).ok()?;
        let is_usual = usize::try_from(int(AT_SIZE)) == Ok(bytes.len())
            && int(AT_MAGIC) == MAGIC
            && sys_flag & IPV6_HOSTS == 0
            && body_size <= behind.len();
        let (body, rest) = is_usual.then(|| behind.split_at(body_size))?;
        Some(Record {
            crc: int(AT_BODY_CRC) as u32,
            queue_id: int(AT_QUEUE_ID),
            flag: int(AT_FLAG),
            queue_offset: long(AT_QUEUE_OFFSET),
            physical_offset: long(AT_PHYSICAL_OFFSET),
            sys_flag,
            born_timestamp: long(AT_BORN_TIMESTAMP),
            born_host: &head[AT_BORN_HOST..][..HOST_SIZE],
            reconsume_times: int(AT_RECONSUME_TIMES),
            body,
            rest,
        })
    }
}
