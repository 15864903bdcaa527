//! The record of a message as the commit log keeps it (protocol/record.py).

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

pub const MAGIC: i32 = 0xDAA3_20A7_u32 as i32;
pub const CRC_MASK: u32 = 0x7FFF_FFFF;
/// The head of a record whose hosts are IPv4 addresses.
pub const HEAD_SIZE: usize = 88;
pub const HOST_SIZE: usize = 8;
/// A record with empty body, topic and properties.
pub const SMALLEST: usize = HEAD_SIZE + 1 + 2;

/// What all records of one call have in common.
pub struct Place<'a> {
    pub store_host: &'a [u8],
    pub store_timestamp: i64,
}

/// What a record says of its message.
pub struct Message<'a> {
    pub crc: u32,
    pub queue_id: i32,
    pub flag: i32,
    pub queue_offset: i64,
    pub physical_offset: i64,
    pub sys_flag: i32,
    pub born_timestamp: i64,
    pub born_host: &'a [u8],
    pub reconsume_times: i32,
    pub prepared_offset: i64,
    pub body: &'a [u8],
}

/// The checksum of a body as a record has it.
pub fn checksum(body: &[u8]) -> u32 {
    crc32fast::hash(body) & CRC_MASK
}

/// Appends the head and the body of a record, its size to be filled in.
pub fn pack(message: &Message, place: &Place, to: &mut Vec<u8>) {
    to.extend_from_slice(&[0; 4]);
    to.extend_from_slice(&MAGIC.to_be_bytes());
    to.extend_from_slice(&message.crc.to_be_bytes());
    to.extend_from_slice(&message.queue_id.to_be_bytes());
    to.extend_from_slice(&message.flag.to_be_bytes());
    to.extend_from_slice(&message.queue_offset.to_be_bytes());
    to.extend_from_slice(&message.physical_offset.to_be_bytes());
    to.extend_from_slice(&message.sys_flag.to_be_bytes());
    to.extend_from_slice(&message.born_timestamp.to_be_bytes());
    to.extend_from_slice(message.born_host);
    to.extend_from_slice(&place.store_timestamp.to_be_bytes());
    to.extend_from_slice(place.store_host);
    to.extend_from_slice(&message.reconsume_times.to_be_bytes());
    to.extend_from_slice(&message.prepared_offset.to_be_bytes());
    to.extend_from_slice(&(message.body.len() as i32).to_be_bytes());
    to.extend_from_slice(message.body);
}

/// Raises ValueError for a host of a store that is no IPv4 address with its port.
pub fn check_host(host: &[u8]) -> PyResult<()> {
    if host.len() == HOST_SIZE {
        return Ok(());
    }
    Err(PyValueError::new_err("the store's host is no IPv4 address"))
}
