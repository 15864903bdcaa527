//! Batches of prepared messages, which become halves (daemons/broker/transactions/service.py).

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::batch;
use crate::packing::{self, Output, Packed, Shared, Target};
use crate::record::{self, Place};
use crate::room::Room;

/// More of them Python copies, which counts how often.
const LONGEST_ADDED: usize = 1024;

/// What is to be appended; ids for the sender; of each message its unique id, empty without one.
type Prepared<'py> = (Packed<'py>, Bound<'py, PyBytes>, Bound<'py, PyList>);

/// Make the messages of a batch halves in their queue. None, if Python must process them: one has
/// a property with one of the `unusual` names, or properties that are longer than `longest`, or
/// there is no room.
///
/// Each gets the properties `added`. `how` says of all: system flag, times reconsumed, time and host
/// of birth. `place` is the physical offset of the first record, the memory where records are put,
/// the host of the store and the time.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn prepare<'py>(
    py: Python<'py>,
    body: &[u8],
    added: &[u8],
    unusual: Vec<String>,
    longest: usize,
    queue: Bound<'py, PyAny>,
    how: (i32, i32, i64, Bound<'py, PyBytes>),
    place: (i64, PyBuffer<u8>, Bound<'py, PyBytes>, i64),
) -> PyResult<Option<Prepared<'py>>> {
    let (sys_flag, reconsume_times, born_timestamp, born_host) = how;
    let (start, memory, store_host, store_timestamp) = place;
    let (born_host, store_host) = (born_host.as_bytes(), store_host.as_bytes());
    record::check_host(store_host)?;
    let Ok(born_host) = born_host.try_into() else { return Ok(None) };
    let is_usual =
        !added.is_empty() && added.len() <= LONGEST_ADDED && memchr::memchr(0, added).is_none();
    let Some(sent) = is_usual.then(|| batch::messages(body, &unusual)).flatten() else {
        return Ok(None);
    };
    let added = [b"\x02".as_slice(), added].concat();
    let shared = Shared { sys_flag, reconsume_times, born_timestamp, born_host, added: &added };
    let topic: String = queue.getattr("topic")?.extract()?;
    let mut target = Target::of(queue, &topic)?;
    let Some(mut room) = Room::of(py, &memory, start) else { return Ok(None) };
    match batch::size(&sent, &target, &shared, longest) {
        Some(needed) if needed <= room.left() && !sent.is_empty() => {}
        _ => return Ok(None),
    }
    let mut output = Output::default();
    let place = Place { store_host, store_timestamp };
    let ids = packing::append_all(&sent, &shared, &mut target, &place, &mut room, &mut output);
    let unique = sent.iter().map(|one| PyBytes::new(py, one.properties.unique.as_bytes()));
    let packed = output.packed(py, &room, std::iter::once(&target))?;
    Ok(Some((packed, PyBytes::new(py, &ids), PyList::new(py, unique.collect::<Vec<_>>())?)))
}
