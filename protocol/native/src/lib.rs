//! What mq's interpreter would do for each message, done for each buffer (see README.md beside it).

mod batch;
mod hash;
mod header;
mod index;
mod properties;
mod record;
mod send;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<PyModule>) -> PyResult<()> {
    module.add_class::<send::SendPath>()?;
    module.add_function(wrap_pyfunction!(index::put_items, module)?)
}
