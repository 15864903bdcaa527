//! The record of a message as the commit log keeps it (protocol/record.py).

pub const MAGIC: i32 = 0xDAA3_20A7_u32 as i32;
pub const CRC_MASK: u32 = 0x7FFF_FFFF;
/// The head of a record whose hosts are IPv4 addresses.
pub const HEAD_SIZE: usize = 88;
pub const HOST_SIZE: usize = 8;
/// A record with empty body, topic and properties.
pub const SMALLEST: usize = HEAD_SIZE + 1 + 2;

/// What all records of one call have in common.
pub struct Place<'a> {
    pub born_host: &'a [u8],
    pub store_host: &'a [u8],
    pub store_timestamp: i64,
}

/// What a record says of its message.
pub struct Message<'a> {
    pub queue_id: i32,
    pub flag: i32,
    pub queue_offset: i64,
    pub physical_offset: i64,
    pub sys_flag: i32,
    pub born_timestamp: i64,
    pub reconsume_times: i32,
    pub body: &'a [u8],
}

/// Appends the head and the body of a record, its size to be filled in.
pub fn pack(message: &Message, place: &Place, to: &mut Vec<u8>) {
    let crc = crc32fast::hash(message.body) & CRC_MASK;
    to.extend_from_slice(&[0; 4]);
    to.extend_from_slice(&MAGIC.to_be_bytes());
    to.extend_from_slice(&crc.to_be_bytes());
    to.extend_from_slice(&message.queue_id.to_be_bytes());
    to.extend_from_slice(&message.flag.to_be_bytes());
    to.extend_from_slice(&message.queue_offset.to_be_bytes());
    to.extend_from_slice(&message.physical_offset.to_be_bytes());
    to.extend_from_slice(&message.sys_flag.to_be_bytes());
    to.extend_from_slice(&message.born_timestamp.to_be_bytes());
    to.extend_from_slice(place.born_host);
    to.extend_from_slice(&place.store_timestamp.to_be_bytes());
    to.extend_from_slice(place.store_host);
    to.extend_from_slice(&message.reconsume_times.to_be_bytes());
    to.extend_from_slice(&0i64.to_be_bytes());
    to.extend_from_slice(&(message.body.len() as i32).to_be_bytes());
    to.extend_from_slice(message.body);
}
