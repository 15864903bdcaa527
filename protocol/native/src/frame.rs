//! Frames of requests and answers (protocol/frame.py).

use crate::layout::{BINARY, FRAME_LENGTH, FRAME_PREFIX, HEADER_LENGTH, JSON};

/// A frame that is whole, its header apart.
pub struct Frame<'a> {
    pub header: &'a [u8],
    pub body: &'a [u8],
    /// Whether the header is in RocketMQ's binary form, else it is JSON.
    pub is_binary: bool,
    /// Where the next one begins.
    pub end: usize,
}

impl<'a> Frame<'a> {
    /// The frame at a position, of so many bytes behind its length at most. `None` if it is not
    /// whole, or its header is not JSON.
    pub fn at(data: &'a [u8], at: usize, most: usize) -> Option<Frame<'a>> {
        Frame::of_either_form(data, at, most).filter(|frame| !frame.is_binary)
    }

    /// Likewise one whose header is in either form.
    pub fn of_either_form(data: &'a [u8], at: usize, most: usize) -> Option<Frame<'a>> {
        let prefix = data.get(at..at + FRAME_PREFIX)?;
        let length = i32::from_be_bytes(prefix[..FRAME_LENGTH].try_into().ok()?);
        let word = u32::from_be_bytes(prefix[FRAME_LENGTH..].try_into().ok()?);
        let length = usize::try_from(length).ok().filter(|length| *length <= most)?;
        let end = at + FRAME_LENGTH + length;
        let header_start = at + FRAME_PREFIX;
        let header_end = header_start + (word & HEADER_LENGTH) as usize;
        if header_end > end || end > data.len() {
            return None;
        }
        let is_binary = match word >> 24 {
            JSON => false,
            BINARY => true,
            _ => return None,
        };
        let (header, body) = (&data[header_start..header_end], &data[header_end..end]);
        Some(Frame { header, body, is_binary, end })
    }
}

/// The prefix of a frame with a header and a body of these sizes.
pub fn prefix(header_size: usize, body_size: usize) -> [u8; FRAME_PREFIX] {
    let length = (FRAME_PREFIX - FRAME_LENGTH + header_size + body_size) as u32;
    let mut prefix = [0; FRAME_PREFIX];
    prefix[..FRAME_LENGTH].copy_from_slice(&length.to_be_bytes());
    prefix[FRAME_LENGTH..].copy_from_slice(&(header_size as u32).to_be_bytes());
    prefix
}
