//! What names mean in one case: the scope expressions are evaluated in. A name that the case does not
//! decide yet has no value, so evaluation in dependency order needs no other machinery.

use crate::case::{Case, Decisions};
use crate::dtype::DType;
use crate::expr::{Scope, Value};
use crate::format::{By, Contract, DTypeRef};

/// Dims, lists, options, variants and dtype symbols of a case.
#[derive(Clone, Copy)]
pub struct CaseScope<'a> {
    contract: &'a Contract,
    case: &'a Case,
    at: Option<(&'a str, usize)>,
}

impl<'a> CaseScope<'a> {
    /// Lists mean themselves.
    pub fn new(contract: &'a Contract, case: &'a Case) -> Self {
        CaseScope { contract, case, at: None }
    }

    /// Under `each: axis`: a list over that axis means its element at `index`.
    pub fn at(self, axis: &'a str, index: usize) -> Self {
        CaseScope { at: Some((axis, index)), ..self }
    }
}

impl Scope for CaseScope<'_> {
    fn value(&self, name: &str) -> Option<Value<'_>> {
        if let Some(size) = self.case.dims.get(name) {
            return Some(Value::Int(i128::from(*size)));
        }
        if let Some(list) = self.case.lists.get(name) {
            return match self.at {
                Some((axis, index))
                    if self.contract.lists.get(name).is_some_and(|l| l.each == axis) =>
                {
                    list.get(index).map(|&item| Value::Int(i128::from(item)))
                }
                _ => Some(Value::List(list)),
            };
        }
        if let Some(dtype) = self.case.dtypes.get(name) {
            return Some(Value::DType(*dtype));
        }
        self.case
            .options
            .get(name)
            .or_else(|| self.case.variants.get(name))
            .map(|word| worded(word))
    }
}

/// A word, or the integer it spells: `C: [64]` is a number in `ceil_div(n, C)`.
pub(crate) fn worded(word: &str) -> Value<'_> {
    word.parse::<i64>().map_or(Value::Word(word), |number| Value::Int(number.into()))
}

impl<T> By<T> {
    /// The value under these options; `None` when the switched option is undecided or the table has a
    /// hole, which a checked contract has not.
    pub fn resolve(&self, options: &Decisions<String>) -> Option<&T> {
        match self {
            By::Always(value) => Some(value),
            By::Option { by } => {
                let (option, table) = by.first()?;
                table.get(options.get(option)?)
            }
        }
    }
}

impl DTypeRef {
    /// The type meant: a symbol's decision, else the type of this name.
    pub fn resolve(&self, dtypes: &Decisions<DType>) -> Option<DType> {
        dtypes
            .get(&self.0)
            .copied()
            .or_else(|| DType::ALL.into_iter().find(|dtype| dtype.name() == self.0))
    }
}
