//! Numbers of the wire and of the store, each in one place. Python has the same (protocol/record.py,
//! batch.py, frame.py, flags.py, codes.py, daemons/broker/store/layout.py): a test compares `LAYOUT`.

macro_rules! layout {
    ($($(#[$what:meta])* $name:ident: $kind:ty = $value:expr;)*) => {
        $($(#[$what])* pub const $name: $kind = $value;)*
        /// All of them, by name.
        pub const LAYOUT: &[(&str, i64)] = &[$((stringify!($name), $name as i64)),*];
    };
}

layout! {
    // The head of a record whose hosts are IPv4 addresses: where its fields begin.
    AT_SIZE: usize = 0;
    AT_MAGIC: usize = 4;
    AT_BODY_CRC: usize = 8;
    AT_QUEUE_ID: usize = 12;
    AT_FLAG: usize = 16;
    AT_QUEUE_OFFSET: usize = 20;
    AT_PHYSICAL_OFFSET: usize = 28;
    AT_SYS_FLAG: usize = 36;
    AT_BORN_TIMESTAMP: usize = 40;
    AT_BORN_HOST: usize = 48;
    AT_STORE_TIMESTAMP: usize = 56;
    AT_STORE_HOST: usize = 64;
    AT_RECONSUME_TIMES: usize = 72;
    AT_PREPARED_OFFSET: usize = 76;
    AT_BODY_LENGTH: usize = 84;
    HEAD_SIZE: usize = 88;
    /// An IPv4 address, and its port in as many bytes.
    HOST_SIZE: usize = 8;
    /// A record with empty body, topic and properties.
    SMALLEST_RECORD: usize = HEAD_SIZE + 1 + 2;
    MAGIC: i32 = 0xDAA3_20A7_u32 as i32;
    CRC_MASK: u32 = 0x7FFF_FFFF;

    // System flags.
    TRANSACTION_COMMIT: i32 = 0x8;
    TRANSACTION_MASK: i32 = 0xC;
    IPV6_HOSTS: i32 = 0x30;

    // An entry of a queue: physical offset, size, tags code.
    ENTRY_SIZE: usize = 20;
    ENTRY_AT_RECORD_SIZE: usize = 8;
    ENTRY_AT_TAGS_CODE: usize = 12;
    /// The size in an entry that stands for no message.
    FILLER_SIZE: usize = 0x7FFF_FFFF;

    // The key index, and what is put into it: hash and physical offset.
    INDEX_HEADER: usize = 40;
    INDEX_SLOT: usize = 4;
    INDEX_ITEM: usize = 20;
    INDEX_PUT: usize = 12;

    // What stands before the body of a message in a batch.
    BATCH_HEAD: usize = 20;
    BATCH_AT_SIZE: usize = 0;
    BATCH_AT_FLAG: usize = 12;
    BATCH_AT_BODY_LENGTH: usize = 16;

    // Frames: a length of what follows it, and the length of the header.
    FRAME_PREFIX: usize = 8;
    FRAME_LENGTH: usize = 4;
    HEADER_LENGTH: u32 = 0x00FF_FFFF;
    JSON: u32 = 0;
    BINARY: u32 = 1;
    RESPONSE: i64 = 1;
    ONE_WAY: i64 = 2;
    PULL: i64 = 11;
    SEND_V1: i64 = 10;
    SEND_V2: i64 = 310;
    SEND_BATCH: i64 = 320;
    SUCCESS: i64 = 0;
    /// Of the flags of a pull.
    COMMIT_OFFSET: i64 = 1;
}
