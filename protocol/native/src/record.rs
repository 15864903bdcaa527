//! The record of a message as the commit log keeps it (protocol/record.py).

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::layout::*;
use crate::room::Room;

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
    head[AT_SIZE..AT_MAGIC].copy_from_slice(&(size as i32).to_be_bytes());
    head[AT_MAGIC..AT_BODY_CRC].copy_from_slice(&MAGIC.to_be_bytes());
    head[AT_BODY_CRC..AT_QUEUE_ID].copy_from_slice(&message.crc.to_be_bytes());
    head[AT_QUEUE_ID..AT_FLAG].copy_from_slice(&message.queue_id.to_be_bytes());
    head[AT_FLAG..AT_QUEUE_OFFSET].copy_from_slice(&message.flag.to_be_bytes());
    head[AT_QUEUE_OFFSET..AT_PHYSICAL_OFFSET].copy_from_slice(&message.queue_offset.to_be_bytes());
    head[AT_PHYSICAL_OFFSET..AT_SYS_FLAG].copy_from_slice(&room.position().to_be_bytes());
    head[AT_SYS_FLAG..AT_BORN_TIMESTAMP].copy_from_slice(&message.sys_flag.to_be_bytes());
    head[AT_BORN_TIMESTAMP..AT_BORN_HOST].copy_from_slice(&message.born_timestamp.to_be_bytes());
    head[AT_BORN_HOST..AT_STORE_TIMESTAMP].copy_from_slice(message.born_host);
    head[AT_STORE_TIMESTAMP..AT_STORE_HOST].copy_from_slice(&place.store_timestamp.to_be_bytes());
    head[AT_STORE_HOST..AT_RECONSUME_TIMES].copy_from_slice(place.store_host);
    head[AT_RECONSUME_TIMES..AT_PREPARED_OFFSET]
        .copy_from_slice(&message.reconsume_times.to_be_bytes());
    head[AT_PREPARED_OFFSET..AT_BODY_LENGTH]
        .copy_from_slice(&message.prepared_offset.to_be_bytes());
    head[AT_BODY_LENGTH..].copy_from_slice(&(message.body.len() as i32).to_be_bytes());
    room.put(&head);
    room.put(message.body);
}

/// Raises ValueError for a store host that is not an IPv4 address with its port.
pub fn check_host(host: &[u8]) -> PyResult<()> {
    if host.len() == HOST_SIZE {
        return Ok(());
    }
    Err(PyValueError::new_err("the store's host is not an IPv4 address"))
}
