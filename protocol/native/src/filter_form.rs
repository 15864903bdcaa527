//! From the form of a filter, as Python writes it, to the filter: tuples of a word and its parts
//! (`daemons/broker/filters/nodes.py`).

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::condition::{Condition, Names, Operand, Order, TextTest};

/// Levels: evaluation is recursive. Python allows fewer.
const MOST_NESTED: usize = 128;

/// A condition and what is in it, which has properties of such names.
pub fn condition(form: &Bound<PyTuple>, names: &Names, depth: usize) -> PyResult<Condition> {
    if depth == MOST_NESTED {
        return Err(PyValueError::new_err("nested too deep"));
    }
    let word: String = form.get_item(0)?.extract()?;
    let operand = |place| operand(&part(form, place)?, names, depth + 1);
    let order = |order| Ok(Condition::Ordered(order, operand(1)?, operand(2)?));
    let text_test = |test| {
        let text: Vec<u8> = form.get_item(2)?.extract()?;
        Ok(Condition::TextTest(test, operand(1)?, text, form.get_item(3)?.extract()?))
    };
    match word.as_str() {
        "constant" => Ok(Condition::Constant(form.get_item(1)?.extract()?)),
        "and" => Ok(Condition::And(conditions(form, names, depth)?)),
        "or" => Ok(Condition::Or(conditions(form, names, depth)?)),
        "not" => Ok(Condition::Not(Box::new(condition(&part(form, 1)?, names, depth + 1)?))),
        "text is true" => Ok(Condition::TextIsTrue(operand(1)?)),
        "is null" => Ok(Condition::IsNull(operand(1)?)),
        "=" => Ok(Condition::Equal(operand(1)?, operand(2)?)),
        "<" => order(Order::Less),
        "<=" => order(Order::LessOrEqual),
        ">" => order(Order::Greater),
        ">=" => order(Order::GreaterOrEqual),
        "in" => {
            let mut texts: Vec<Vec<u8>> = form.get_item(2)?.extract()?;
            texts.sort();
            Ok(Condition::OneOf(operand(1)?, texts, form.get_item(3)?.extract()?))
        }
        "contains" => text_test(TextTest::Contains),
        "startswith" => text_test(TextTest::StartsWith),
        "endswith" => text_test(TextTest::EndsWith),
        _ => Err(PyValueError::new_err(format!("{word} is not a condition"))),
    }
}

fn conditions(form: &Bound<PyTuple>, names: &Names, depth: usize) -> PyResult<Vec<Condition>> {
    (1..form.len()).map(|place| condition(&part(form, place)?, names, depth + 1)).collect()
}

fn operand(form: &Bound<PyTuple>, names: &Names, depth: usize) -> PyResult<Operand> {
    if depth == MOST_NESTED {
        return Err(PyValueError::new_err("nested too deep"));
    }
    let word: String = form.get_item(0)?.extract()?;
    Ok(match word.as_str() {
        "property" => {
            let name: String = form.get_item(1)?.extract()?;
            let number = names.number(name.as_bytes());
            Operand::Property(number.ok_or_else(|| PyValueError::new_err("not among the names"))?)
        }
        "text" => Operand::Text(form.get_item(1)?.extract()?),
        "integer" => Operand::Integer(form.get_item(1)?.extract()?),
        "long" => Operand::Long(form.get_item(1)?.extract()?),
        "double" => Operand::Double(form.get_item(1)?.extract()?),
        "nothing" => Operand::Nothing(Box::new(operand(&part(form, 1)?, names, depth + 1)?)),
        _ => Operand::Condition(Box::new(condition(form, names, depth)?)),
    })
}

fn part<'py>(form: &Bound<'py, PyTuple>, place: usize) -> PyResult<Bound<'py, PyTuple>> {
    Ok(form.get_item(place)?.downcast_into()?)
}
