//! Conditions of filters, and what they come to for the properties of a message.
//!
//! `daemons/broker/filters/evaluation.py` says what each of these does, and where Java does it.

use std::cmp::Ordering;

use crate::number::{self, Stop};

/// What an operand gives; text is UTF-8.
enum Value<'a> {
    Null,
    Text(&'a [u8]),
    Integer(i64),
    Long(i64),
    Double(f64),
    Boolean(bool),
}

pub enum Operand {
    /// By its number among the names of a filter.
    Property(usize),
    Text(Vec<u8>),
    Integer(i64),
    Long(i64),
    Double(f64),
    /// NULL, but for what happens on the way there.
    Nothing(Box<Operand>),
    Condition(Box<Condition>),
}

pub enum Condition {
    Constant(Option<bool>),
    And(Vec<Condition>),
    Or(Vec<Condition>),
    Not(Box<Condition>),
    /// A property in place of a condition: text is never true.
    TextIsTrue(Operand),
    IsNull(Operand),
    Equal(Operand, Operand),
    Ordered(Order, Operand, Operand),
    /// The texts, sorted, and whether it is to be among them.
    OneOf(Operand, Vec<Vec<u8>>, bool),
    /// The part, not empty, and whether it is to be there.
    TextTest(TextTest, Operand, Vec<u8>, bool),
}

#[derive(Clone, Copy)]
pub enum Order {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Copy)]
pub enum TextTest {
    Contains,
    StartsWith,
    EndsWith,
}

/// The values of the properties that a filter names, as they lie in those of a message. Of two with
/// the same name the last counts, an empty one not.
#[derive(Default)]
pub struct Found {
    values: Vec<(usize, usize)>,
}

impl Found {
    pub fn look(&mut self, names: &Names, stored: &[u8]) {
        self.values.clear();
        self.values.resize(names.sorted.len(), (0, 0));
        let mut at = 0;
        while at < stored.len() {
            let end = memchr::memchr(2, &stored[at..]).map_or(stored.len(), |size| at + size);
            if let Some((number, value)) = names.find(&stored[at..end]) {
                self.values[number] = (at + value, end);
            }
            at = end + 1;
        }
    }
}

/// The names of the properties in a filter.
pub struct Names {
    sorted: Vec<Vec<u8>>,
    /// Bytes that one begins with: most properties need no other check.
    first: [bool; 256],
}

impl Names {
    pub fn new(names: Vec<String>) -> Names {
        let mut sorted: Vec<Vec<u8>> = names.into_iter().map(String::into_bytes).collect();
        sorted.sort();
        let mut first = [false; 256];
        for byte in sorted.iter().filter_map(|name| name.first()) {
            first[usize::from(*byte)] = true;
        }
        Names { sorted, first }
    }

    pub fn number(&self, name: &[u8]) -> Option<usize> {
        self.sorted.binary_search_by(|one| one.as_slice().cmp(name)).ok()
    }

    /// The number of a property that has one of these names, and where its value begins. `None` for
    /// another one, or one without a value.
    fn find(&self, property: &[u8]) -> Option<(usize, usize)> {
        if !self.first[usize::from(*property.first()?)] {
            return None;
        }
        let size = memchr::memchr(1, property)?;
        let number = self.number(&property[..size])?;
        (size + 1 < property.len()).then_some((number, size + 1))
    }
}

/// The properties of one message.
pub struct Properties<'a> {
    pub stored: &'a [u8],
    pub found: &'a Found,
}

impl Operand {
    fn evaluate<'a>(&'a self, of: &Properties<'a>) -> Result<Value<'a>, Stop> {
        Ok(match self {
            Operand::Property(number) => match of.found.values[*number] {
                (0, 0) => Value::Null,
                (start, end) => Value::Text(&of.stored[start..end]),
            },
            Operand::Text(text) => Value::Text(text),
            Operand::Integer(number) => Value::Integer(*number),
            Operand::Long(number) => Value::Long(*number),
            Operand::Double(number) => Value::Double(*number),
            Operand::Nothing(operand) => {
                operand.evaluate(of)?;
                Value::Null
            }
            Operand::Condition(condition) => {
                condition.evaluate(of)?.map_or(Value::Null, Value::Boolean)
            }
        })
    }
}

impl Condition {
    /// `None` is NULL.
    pub fn evaluate(&self, of: &Properties) -> Result<Option<bool>, Stop> {
        Ok(match self {
            Condition::Constant(value) => *value,
            Condition::And(conditions) => return all(conditions, of, true),
            Condition::Or(conditions) => return all(conditions, of, false),
            Condition::Not(condition) => condition.evaluate(of)?.map(|value| !value),
            Condition::TextIsTrue(operand) => match operand.evaluate(of)? {
                Value::Null => None,
                _ => Some(false),
            },
            Condition::IsNull(operand) => Some(matches!(operand.evaluate(of)?, Value::Null)),
            Condition::Equal(left, right) => match (left.evaluate(of)?, right.evaluate(of)?) {
                (Value::Null, Value::Null) => Some(true),
                (Value::Null, _) => None,
                (_, Value::Null) => Some(false),
                (left, right) => Some(is_equal(&left, &right)?),
            },
            Condition::Ordered(order, left, right) => {
                let left = left.evaluate(of)?;
                if let Value::Null = left {
                    return Ok(None);
                }
                match right.evaluate(of)? {
                    Value::Null => None,
                    right => Some(order.accepts(compare(&left, &right)?)),
                }
            }
            Condition::OneOf(operand, texts, wanted) => match operand.evaluate(of)? {
                Value::Text(text) => {
                    let known = texts.binary_search_by(|one| one.as_slice().cmp(text));
                    Some(known.is_ok() == *wanted)
                }
                _ => None,
            },
            Condition::TextTest(test, operand, part, wanted) => match operand.evaluate(of)? {
                Value::Text(text) => Some(test.passes(text, part) == *wanted),
                _ => Some(false),
            },
        })
    }
}

/// AND, where all are to be true; OR, of which NOT (all are to be false) is the same.
fn all(conditions: &[Condition], of: &Properties, wanted: bool) -> Result<Option<bool>, Stop> {
    let mut result = Some(wanted);
    for condition in conditions {
        match condition.evaluate(of)? {
            None => result = None,
            Some(value) if value == wanted => {}
            other => return Ok(other),
        }
    }
    Ok(result)
}

fn is_equal(left: &Value, right: &Value) -> Result<bool, Stop> {
    Ok(match (left, right) {
        (Value::Text(left), Value::Text(right)) => left == right,
        (Value::Text(left), Value::Boolean(right)) => left.eq_ignore_ascii_case(b"true") == *right,
        // A ClassCastException in Java.
        (Value::Boolean(_), Value::Text(_)) => return Err(Stop::NotComparable),
        (Value::Boolean(left), Value::Boolean(right)) => left == right,
        (Value::Boolean(_), _) | (_, Value::Boolean(_)) => false,
        _ => compare(left, right)?.is_eq(),
    })
}

/// The order of two values, neither of which is NULL or a boolean. Text is read as the number that
/// it is compared with, as a double where that is text, too.
fn compare(left: &Value, right: &Value) -> Result<Ordering, Stop> {
    use Value::{Double, Integer, Long, Text};
    Ok(match (left, right) {
        (Text(left), Text(right)) => compare_doubles(number::double(left)?, number::double(right)?),
        (Text(left), Integer(right)) => number::integer(left)?.cmp(right),
        (Text(left), Long(right)) => number::long(left)?.cmp(right),
        (Text(left), Double(right)) => compare_doubles(number::double(left)?, *right),
        (Integer(left), Text(right)) => left.cmp(&number::integer(right)?),
        (Long(left), Text(right)) => left.cmp(&number::long(right)?),
        (Double(left), Text(right)) => compare_doubles(*left, number::double(right)?),
        (Integer(left) | Long(left), Integer(right) | Long(right)) => left.cmp(right),
        (Integer(left) | Long(left), Double(right)) => compare_doubles(*left as f64, *right),
        (Double(left), Integer(right) | Long(right)) => compare_doubles(*left, *right as f64),
        (Double(left), Double(right)) => compare_doubles(*left, *right),
        _ => return Err(Stop::Unknown),
    })
}

/// Double.compareTo: NaN is above all and equal to itself, -0.0 below 0.0.
fn compare_doubles(left: f64, right: f64) -> Ordering {
    let place = |value: f64| match value {
        _ if value.is_nan() => 2,
        _ if value == 0.0 && value.is_sign_negative() => 0,
        _ => 1,
    };
    match left.partial_cmp(&right) {
        None | Some(Ordering::Equal) => place(left).cmp(&place(right)),
        Some(order) => order,
    }
}

impl Order {
    fn accepts(self, order: Ordering) -> bool {
        match self {
            Order::Less => order.is_lt(),
            Order::LessOrEqual => order.is_le(),
            Order::Greater => order.is_gt(),
            Order::GreaterOrEqual => order.is_ge(),
        }
    }
}

impl TextTest {
    fn passes(self, text: &[u8], part: &[u8]) -> bool {
        match self {
            TextTest::Contains => memchr::memmem::find(text, part).is_some(),
            TextTest::StartsWith => text.starts_with(part),
            TextTest::EndsWith => text.ends_with(part),
        }
    }
}
