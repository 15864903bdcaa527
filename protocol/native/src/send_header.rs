//! The header of a send in each of its forms: with names of one letter or of words, in JSON or in
//! RocketMQ's binary form.

use crate::binary_header;
use crate::frame::Frame;
use crate::header::Header;
use crate::layout::*;

/// What the fields are called.
struct Names {
    group: &'static str,
    topic: &'static str,
    default_topic: &'static str,
    default_queues: &'static str,
    queue_id: &'static str,
    sys_flag: &'static str,
    born_timestamp: &'static str,
    flag: &'static str,
    properties: &'static str,
    reconsume_times: &'static str,
    most_reconsumed: &'static str,
    batch: &'static str,
    /// Of a snode alone.
    born_host: Option<&'static str>,
}

const WORDS: Names = Names {
    group: "producerGroup",
    topic: "topic",
    default_topic: "defaultTopic",
    default_queues: "defaultTopicQueueNums",
    queue_id: "queueId",
    sys_flag: "sysFlag",
    born_timestamp: "bornTimestamp",
    flag: "flag",
    properties: "properties",
    reconsume_times: "reconsumeTimes",
    most_reconsumed: "maxReconsumeTimes",
    batch: "batch",
    born_host: None,
};

const LETTERS: Names = Names {
    group: "a",
    topic: "b",
    default_topic: "c",
    default_queues: "d",
    queue_id: "e",
    sys_flag: "f",
    born_timestamp: "g",
    flag: "h",
    properties: "i",
    reconsume_times: "j",
    most_reconsumed: "l",
    batch: "m",
    born_host: Some("o"),
};

/// A header whose fields are called one or the other.
pub struct SendHeader<'a> {
    header: Header<'a>,
    names: &'static Names,
}

impl<'a> SendHeader<'a> {
    /// The header of a frame. `None` if that is not a send, or Python must process it.
    pub fn of(frame: &Frame<'a>) -> Option<SendHeader<'a>> {
        let is_send = |code| matches!(code, SEND_V1 | SEND_V2 | SEND_BATCH);
        let header = if frame.is_binary {
            binary_header::read(frame.header, is_send)?
        } else {
            Header::read(frame.header, is_send)?
        };
        let names = if header.code == SEND_V1 { &WORDS } else { &LETTERS };
        let is_usual = !frame.is_binary && header.code != SEND_V1;
        let found = SendHeader { header, names };
        (is_usual || found.is_complete()).then_some(found)
    }

    /// Whether all fields are valid; in the rarer forms also those that a send to a known
    /// queue does not need.
    fn is_complete(&self) -> bool {
        let names = self.names;
        let is_int = |name| self.header.number(name).is_some_and(|it| i32::try_from(it).is_ok());
        let is_there = |name| self.header.field(name).is_some();
        self.header.is_sound
            && is_there(names.group)
            && is_there(names.default_topic)
            && [names.default_queues, names.queue_id, names.sys_flag, names.flag]
                .into_iter()
                .all(is_int)
            && [names.reconsume_times, names.most_reconsumed]
                .into_iter()
                .all(|name| !is_there(name) || is_int(name))
            && self.is_batch().is_some()
    }

    /// The flag and the opaque of the request.
    pub fn request_flag(&self) -> i64 {
        self.header.flag
    }

    pub fn opaque(&self) -> i64 {
        self.header.opaque
    }

    pub fn topic(&self) -> Option<&str> {
        self.header.field(self.names.topic)
    }

    /// The queue id as it stands there.
    pub fn queue_text(&self) -> Option<&str> {
        self.header.field(self.names.queue_id)
    }

    pub fn sys_flag(&self) -> Option<i64> {
        self.header.number(self.names.sys_flag)
    }

    pub fn born_timestamp(&self) -> Option<i64> {
        self.header.number(self.names.born_timestamp)
    }

    /// Where a snode has it from.
    pub fn born_host(&self) -> Option<&str> {
        self.header.field(self.names.born_host?)
    }

    pub fn flag(&self) -> Option<i32> {
        i32::try_from(self.header.number(self.names.flag)?).ok()
    }

    pub fn properties(&self) -> &str {
        self.header.field(self.names.properties).unwrap_or("")
    }

    /// 0 where it is missing.
    pub fn reconsume_times(&self) -> Option<i32> {
        match self.header.field(self.names.reconsume_times) {
            None | Some("") => Some(0),
            Some(_) => i32::try_from(self.header.number(self.names.reconsume_times)?).ok(),
        }
    }

    /// `None` for another spelling.
    pub fn is_batch(&self) -> Option<bool> {
        match self.header.field(self.names.batch) {
            None | Some("false") => Some(false),
            Some("true") => Some(true),
            Some(_) => None,
        }
    }
}
