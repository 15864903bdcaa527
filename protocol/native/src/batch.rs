//! The messages of a batch request (protocol/batch.py).

use crate::layout::*;
use crate::packing::{Sent, Shared, Target};
use crate::properties::Properties;

const MOST_OF_IT: usize = 4096;

/// Whether the properties of a batch as a whole say that written is enough. `None` if they say more
/// than that, or give more than an id, which is not stored.
pub fn is_prompt(text: &str) -> Option<bool> {
    let found = Properties::read(text, &[])?;
    found.has_only_wait_and_id().then_some(found.wait == "false")
}

/// The messages of a body. `None` if it is damaged, or Python must process one of them, such as one
/// that has a property of an unusual name.
pub fn messages<'a>(body: &'a [u8], unusual: &[String]) -> Option<Vec<Sent<'a>>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < body.len() {
        let head = body.get(at..at + BATCH_HEAD)?;
        let number = |place: usize| i32::from_be_bytes([0, 1, 2, 3].map(|one| head[place + one]));
        let size = usize::try_from(number(BATCH_AT_SIZE)).ok()?;
        let length = usize::try_from(number(BATCH_AT_BODY_LENGTH)).ok()?;
        let start = at + BATCH_HEAD;
        let stop = start.checked_add(length)?;
        let text_length = body.get(stop..stop.checked_add(2)?)?;
        let text_length = i16::from_be_bytes([text_length[0], text_length[1]]);
        let end = stop + 2 + usize::try_from(text_length).ok()?;
        if end - at != size || found.len() == MOST_OF_IT {
            return None;
        }
        let text = std::str::from_utf8(body.get(stop + 2..end)?).ok()?;
        let properties = Properties::read(text, unusual)?;
        found.push(Sent {
            body: &body[start..stop],
            flag: number(BATCH_AT_FLAG),
            text,
            properties,
        });
        at = end;
    }
    Some(found)
}

/// The bytes of their records. `None` if the properties of one are longer than this.
pub fn size(sent: &[Sent], target: &Target, shared: &Shared, longest: usize) -> Option<usize> {
    sent.iter().map(|one| target.size(one, shared, longest)).sum()
}
