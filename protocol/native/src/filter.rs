//! SQL92 filters: whether the properties of a message match a subscription.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::condition::{Condition, Found, Names, Properties};
use crate::filter_form;
use crate::number::Stop;

/// A filter, made from what Python has read and checked.
#[pyclass(frozen)]
pub struct Filter {
    names: Names,
    root: Condition,
}

#[pymethods]
impl Filter {
    /// `names` are the properties in it; `form` is that of a condition (`filter/program.py`). Raises
    /// ValueError or TypeError for another one.
    #[new]
    fn new(names: Vec<String>, form: &Bound<PyTuple>) -> PyResult<Self> {
        let names = Names::new(names);
        let root = filter_form::condition(form, &names, 0)?;
        Ok(Filter { names, root })
    }

    /// Whether a message with these stored properties matches. None if Python must
    /// process them.
    #[pyo3(name = "matches")]
    fn matches_bytes(&self, stored: &[u8]) -> Option<bool> {
        self.matches(stored, &mut Found::default())
    }
}

impl Filter {
    /// The same; `found` is room for what is found on the way.
    pub fn matches(&self, stored: &[u8], found: &mut Found) -> Option<bool> {
        found.look(&self.names, stored);
        match self.root.evaluate(&Properties { stored, found }) {
            Ok(value) => Some(value == Some(true)),
            Err(Stop::NotComparable) => Some(false),
            Err(Stop::Unknown) => None,
        }
    }
}
