//! What mq's interpreter would do for each message, done for each buffer (docs/decisions/0047).

mod batch;
mod binary_header;
mod commit;
mod condition;
mod entry;
mod fields;
mod filter;
mod filter_form;
mod frame;
mod hash;
mod header;
mod index;
mod layout;
mod number;
mod packing;
mod prefetched;
mod prepare;
mod properties;
mod pull;
mod pull_header;
mod record;
mod relay;
mod replay;
mod reply;
mod room;
mod select;
mod send;
mod send_header;
mod stored;
mod strings;
mod tube_answer;
mod tube_messages;
mod tube_sends;
mod tube_wire;

use pyo3::panic::PanicException;
use pyo3::prelude::*;

/// What this is built of: Python takes no library of other sources.
const SOURCES: [(&str, &[u8]); 35] = [
    ("batch.rs", include_bytes!("batch.rs")),
    ("binary_header.rs", include_bytes!("binary_header.rs")),
    ("commit.rs", include_bytes!("commit.rs")),
    ("condition.rs", include_bytes!("condition.rs")),
    ("entry.rs", include_bytes!("entry.rs")),
    ("fields.rs", include_bytes!("fields.rs")),
    ("filter.rs", include_bytes!("filter.rs")),
    ("filter_form.rs", include_bytes!("filter_form.rs")),
    ("frame.rs", include_bytes!("frame.rs")),
    ("hash.rs", include_bytes!("hash.rs")),
    ("header.rs", include_bytes!("header.rs")),
    ("index.rs", include_bytes!("index.rs")),
    ("layout.rs", include_bytes!("layout.rs")),
    ("lib.rs", include_bytes!("lib.rs")),
    ("number.rs", include_bytes!("number.rs")),
    ("packing.rs", include_bytes!("packing.rs")),
    ("prefetched.rs", include_bytes!("prefetched.rs")),
    ("prepare.rs", include_bytes!("prepare.rs")),
    ("properties.rs", include_bytes!("properties.rs")),
    ("pull.rs", include_bytes!("pull.rs")),
    ("pull_header.rs", include_bytes!("pull_header.rs")),
    ("record.rs", include_bytes!("record.rs")),
    ("relay.rs", include_bytes!("relay.rs")),
    ("replay.rs", include_bytes!("replay.rs")),
    ("reply.rs", include_bytes!("reply.rs")),
    ("room.rs", include_bytes!("room.rs")),
    ("select.rs", include_bytes!("select.rs")),
    ("send.rs", include_bytes!("send.rs")),
    ("send_header.rs", include_bytes!("send_header.rs")),
    ("stored.rs", include_bytes!("stored.rs")),
    ("strings.rs", include_bytes!("strings.rs")),
    ("tube_answer.rs", include_bytes!("tube_answer.rs")),
    ("tube_messages.rs", include_bytes!("tube_messages.rs")),
    ("tube_sends.rs", include_bytes!("tube_sends.rs")),
    ("tube_wire.rs", include_bytes!("tube_wire.rs")),
];

#[pymodule]
fn _native(module: &Bound<PyModule>) -> PyResult<()> {
    let checksums: Vec<(&str, u32)> =
        SOURCES.iter().map(|(name, text)| (*name, crc32fast::hash(text))).collect();
    module.add("SOURCES", checksums)?;
    module.add("LAYOUT", layout::LAYOUT.to_vec())?;
    // For callers that continue without the library after a panic, which is not an Exception.
    module.add("PanicException", module.py().get_type::<PanicException>())?;
    module.add_class::<send::SendPath>()?;
    module.add_class::<pull::PullPath>()?;
    module.add_class::<pull_header::PullReader>()?;
    module.add_class::<prefetched::Prefetched>()?;
    module.add_class::<commit::CommitPath>()?;
    module.add_class::<filter::Filter>()?;
    module.add_class::<relay::Relay>()?;
    module.add_function(wrap_pyfunction!(prepare::prepare, module)?)?;
    module.add_function(wrap_pyfunction!(select::select, module)?)?;
    module.add_function(wrap_pyfunction!(replay::read_records, module)?)?;
    module.add_function(wrap_pyfunction!(index::put_items, module)?)?;
    module.add_function(wrap_pyfunction!(tube_sends::read_send, module)?)?;
    module.add_function(wrap_pyfunction!(tube_messages::read_tube_messages, module)?)?;
    module.add_function(wrap_pyfunction!(tube_answer::tube_select, module)?)?;
    module.add_function(wrap_pyfunction!(tube_answer::tube_answer, module)?)
}
