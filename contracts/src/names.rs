//! What kind of thing each name and expression of a contract is. One namespace for dims, lists,
//! options, variants and dtype symbols; a word is only legal beside the choice it belongs to.

use crate::expr::{Expr, Function, Operator};
use crate::format::Contract;
use crate::load::suggestion;

/// The kind of an expression's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind<'a> {
    Int,
    Bool,
    List,
    /// An option, variant or dtype symbol with words as values.
    Choice(&'a str),
    /// A bare word.
    Word(&'a str),
}

/// Which names an expression may use.
#[derive(Clone, Copy)]
pub(crate) enum Visible<'a> {
    /// Options, variants and dtype symbols: what `when` ranges over.
    Choices,
    /// Those, dims and lists.
    Structure,
    /// As `Structure`; lists over this axis mean their element.
    Each(&'a str),
}

/// What is wrong and what would be right.
pub(crate) type Complaint = (String, String);

/// The words of a choice, or `None` when the name is no choice.
pub(crate) fn words_of<'a>(contract: &'a Contract, name: &str) -> Option<Vec<&'a str>> {
    if let Some(words) = contract.options.get(name) {
        return Some(words.iter().map(String::as_str).collect());
    }
    if let Some(variant) = contract.variants.get(name) {
        return Some(variant.values.iter().map(|word| word.0.as_str()).collect());
    }
    contract.dtypes.get(name).map(|types| types.iter().map(|dtype| dtype.name()).collect())
}

/// Every name expressions may use.
pub(crate) fn all(contract: &Contract) -> impl Iterator<Item = &str> {
    let choices =
        contract.dtypes.keys().chain(contract.options.keys()).chain(contract.variants.keys());
    choices.chain(contract.dims.keys()).chain(contract.lists.keys()).map(String::as_str)
}

/// The kind of an expression, or why it has none.
pub(crate) fn kind<'a>(
    contract: &'a Contract,
    expr: &'a Expr,
    visible: Visible<'_>,
) -> Result<Kind<'a>, Complaint> {
    let int = |inner: &'a Expr| expect(contract, inner, visible, Kind::Int);
    let bool = |inner: &'a Expr| expect(contract, inner, visible, Kind::Bool);
    match expr {
        Expr::Int(_) => Ok(Kind::Int),
        Expr::Name(name) => Ok(name_kind(contract, name, visible)),
        Expr::Not(inner) => bool(inner).map(|()| Kind::Bool),
        Expr::Binary(Operator::And | Operator::Or, left, right) => {
            bool(left)?;
            bool(right).map(|()| Kind::Bool)
        }
        Expr::Binary(operator @ (Operator::Equal | Operator::NotEqual), left, right) => {
            comparable(contract, (left, right), visible, operator.symbol()).map(|()| Kind::Bool)
        }
        Expr::Binary(
            Operator::Less | Operator::LessEqual | Operator::Greater | Operator::GreaterEqual,
            left,
            right,
        ) => {
            int(left)?;
            int(right).map(|()| Kind::Bool)
        }
        Expr::Binary(_, left, right) => {
            int(left)?;
            int(right).map(|()| Kind::Int)
        }
        Expr::In(item, list) => {
            for candidate in list {
                comparable(contract, (item, candidate), visible, "in")?;
            }
            Ok(Kind::Bool)
        }
        Expr::Call(Function::Sum | Function::Largest | Function::Count, arguments) => {
            arguments.iter().try_for_each(|a| expect(contract, a, visible, Kind::List))?;
            Ok(Kind::Int)
        }
        Expr::Call(Function::Bytes, arguments) => match kind(contract, &arguments[0], visible)? {
            Kind::Choice(name) if contract.dtypes.contains_key(name) => Ok(Kind::Int),
            _ => Err((
                format!("`{expr}`: the argument is no dtype symbol"),
                suggestion("", contract.dtypes.keys().map(String::as_str)),
            )),
        },
        Expr::Call(_, arguments) => {
            arguments.iter().try_for_each(int)?;
            Ok(Kind::Int)
        }
    }
}

/// Refuses an expression of another kind.
pub(crate) fn expect<'a>(
    contract: &'a Contract,
    expr: &'a Expr,
    visible: Visible<'_>,
    wanted: Kind<'_>,
) -> Result<(), Complaint> {
    let found = kind(contract, expr, visible)?;
    if found == wanted {
        return Ok(());
    }
    if let Kind::Word(word) = found {
        return Err(unknown(contract, word, visible));
    }
    let what = format!("`{expr}` is {}, not {}", describe(found), describe(wanted));
    Err((what, format!("write an expression that is {}", describe(wanted))))
}

fn name_kind<'a>(contract: &'a Contract, name: &'a str, visible: Visible<'_>) -> Kind<'a> {
    if let Some(words) = words_of(contract, name) {
        let numeric = words.iter().all(|word| word.parse::<i64>().is_ok());
        return if numeric { Kind::Int } else { Kind::Choice(name) };
    }
    match visible {
        Visible::Choices => Kind::Word(name),
        _ if contract.dims.contains_key(name) => Kind::Int,
        Visible::Each(axis) if contract.lists.get(name).is_some_and(|l| l.each == axis) => {
            Kind::Int
        }
        _ if contract.lists.contains_key(name) => Kind::List,
        _ => Kind::Word(name),
    }
}

fn comparable<'a>(
    contract: &'a Contract,
    (left, right): (&'a Expr, &'a Expr),
    visible: Visible<'_>,
    symbol: &str,
) -> Result<(), Complaint> {
    // Beside a choice a bare name is one of its words, even where a dim or list has that name too.
    let is_its_word = |choice: &Expr, word: &Expr| match (choice, word) {
        (Expr::Name(choice), Expr::Name(word)) => {
            words_of(contract, choice).is_some_and(|words| words.contains(&&**word))
        }
        _ => false,
    };
    if is_its_word(left, right) || is_its_word(right, left) {
        return Ok(());
    }
    match (kind(contract, left, visible)?, kind(contract, right, visible)?) {
        (Kind::Int, Kind::Int) | (Kind::Choice(_), Kind::Choice(_)) => Ok(()),
        (Kind::Choice(name), Kind::Word(word)) | (Kind::Word(word), Kind::Choice(name)) => {
            let words = words_of(contract, name).unwrap_or_default();
            if words.contains(&word) {
                return Ok(());
            }
            Err((format!("`{word}` is no value of `{name}`"), suggestion(word, words.into_iter())))
        }
        (Kind::Word(word), _) | (_, Kind::Word(word)) => Err(unknown(contract, word, visible)),
        (a, b) => Err((
            format!("`{left} {symbol} {right}` compares {} with {}", describe(a), describe(b)),
            "compare integers with integers and a choice with its own words".to_owned(),
        )),
    }
}

fn unknown(contract: &Contract, name: &str, visible: Visible<'_>) -> Complaint {
    let structure = contract.dims.contains_key(name) || contract.lists.contains_key(name);
    if let (Visible::Choices, true) = (visible, structure) {
        return (
            format!("`{name}` is a size, and this condition ranges over choices only"),
            "use options, variants and dtype symbols".to_owned(),
        );
    }
    (format!("unknown name `{name}`"), suggestion(name, all(contract)))
}

fn describe(kind: Kind<'_>) -> &'static str {
    match kind {
        Kind::Int => "an integer",
        Kind::Bool => "a condition",
        Kind::List => "a whole list",
        Kind::Choice(_) => "a choice of words",
        Kind::Word(_) => "a word",
    }
}
