//! The record of a message as the commit log keeps it (protocol/record.py).

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::room::Room;

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

/// Puts the head and the body of a record of so many bytes.
pub fn pack(message: &Message, size: usize, place: &Place, room: &mut Room) {
    let mut head = [0; HEAD_SIZE];
    head[..4].copy_from_slice(&(size as i32).to_be_bytes());
    head[4..8].copy_from_slice(&MAGIC.to_be_bytes());
    head[8..12].copy_from_slice(&message.crc.to_be_bytes());
    head[12..16].copy_from_slice(&message.queue_id.to_be_bytes());
    head[16..20].copy_from_slice(&message.flag.to_be_bytes());
    head[20..28].copy_from_slice(&message.queue_offset.to_be_bytes());
    head[28..36].copy_from_slice(&room.position().to_be_bytes());
    head[36..40].copy_from_slice(&message.sys_flag.to_be_bytes());
    head[40..48].copy_from_slice(&message.born_timestamp.to_be_bytes());
    head[48..56].copy_from_slice(message.born_host);
    head[56..64].copy_from_slice(&place.store_timestamp.to_be_bytes());
    head[64..72].copy_from_slice(place.store_host);
    head[72..76].copy_from_slice(&message.reconsume_times.to_be_bytes());
    head[76..84].copy_from_slice(&message.prepared_offset.to_be_bytes());
    head[84..].copy_from_slice(&(message.body.len() as i32).to_be_bytes());
    room.put(&head);
    room.put(message.body);
}

/// Raises ValueError for a host of a store that is no IPv4 address with its port.
pub fn check_host(host: &[u8]) -> PyResult<()> {
    if host.len() == HOST_SIZE {
        return Ok(());
    }
    Err(PyValueError::new_err("the store's host is no IPv4 address"))
}
