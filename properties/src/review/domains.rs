//! Domains compared as sets of values. What callers may no longer pass is lost, so looser; what they
//! newly may pass is gained. A norm of rows and a bound on elements compare only where one contains
//! the other.

use super::change::Class;
use super::sides::{Sides, number, shown};
use contracts::format::Domain;

/// An elementwise domain: finite values between two bounds, and which of the others.
#[derive(Clone, Copy, PartialEq)]
struct Elements {
    low: f64,
    high: f64,
    zero: bool,
    negative_infinity: bool,
    positive_infinity: bool,
    nan: bool,
}

const FINITE: Elements = Elements {
    low: -f64::MAX,
    high: f64::MAX,
    zero: true,
    negative_infinity: false,
    positive_infinity: false,
    nan: false,
};

fn elements(domain: &Domain) -> Option<Elements> {
    let elements = match domain {
        Domain::Any => {
            Elements { negative_infinity: true, positive_infinity: true, nan: true, ..FINITE }
        }
        Domain::Finite => FINITE,
        Domain::Positive => Elements { low: 0.0, zero: false, ..FINITE },
        Domain::Nonzero => Elements { zero: false, ..FINITE },
        Domain::Range([low, high]) => Elements { low: *low, high: *high, ..FINITE },
        Domain::RangeOrInfinite([low, high]) => Elements {
            low: *low,
            high: *high,
            negative_infinity: true,
            positive_infinity: true,
            ..FINITE
        },
        Domain::AtMost(high) => Elements { high: *high, negative_infinity: true, ..FINITE },
        Domain::RowNorm(_) => return None,
    };
    let zero = elements.zero && (elements.low..=elements.high).contains(&0.0);
    Some(Elements { zero, ..elements })
}

/// Compares two domains of `what`.
pub fn compare(sides: &mut Sides<'_>, clause: &str, what: &str, before: &Domain, after: &Domain) {
    if before == after {
        return;
    }
    let (lost, gained) = match (elements(before), elements(after)) {
        (Some(old), Some(new)) => (beyond(old, new), beyond(new, old)),
        (None, None) => {
            let (Domain::RowNorm(old), Domain::RowNorm(new)) = (before, after) else { return };
            let rows = |most: f64| vec![format!("rows of a norm up to {}", number(most))];
            if old > new { (rows(*old), Vec::new()) } else { (Vec::new(), rows(*new)) }
        }
        // Rows of a norm up to m hold every number up to m, and no domain of elements bounds a norm.
        (Some(old), None) if contains(old, after) => {
            (vec!["rows of a larger norm".to_owned()], Vec::new())
        }
        (None, Some(new)) if contains(new, before) => {
            (Vec::new(), vec!["rows of a larger norm".to_owned()])
        }
        _ => return sides.either(clause, &format!("the domain of {what}"), before, after),
    };
    let values = (Some(shown(before)), Some(shown(after)));
    let change = format!("domain `{}` → `{}`", shown(before), shown(after));
    for (class, word, parts) in
        [(Class::Loosened, "no longer", lost), (Class::Tightened, "now", gained)]
    {
        if !parts.is_empty() {
            let says = format!("{what} may {word} be {}; {change}", parts.join(", "));
            sides.push(clause, class, says, values.clone());
        }
    }
}

fn contains(outer: Elements, rows: &Domain) -> bool {
    let Domain::RowNorm(most) = rows else { return false };
    outer.zero && outer.low <= -most && outer.high >= *most
}

/// What the first domain has and the second has not.
fn beyond(own: Elements, other: Elements) -> Vec<String> {
    let mut parts = Vec::new();
    if own.low < other.low {
        parts.push(format!("below {}", number(other.low)));
    }
    if own.high > other.high {
        parts.push(format!("above {}", number(other.high)));
    }
    for (has, lacks, word) in [
        (own.zero, !other.zero && other.low <= 0.0 && other.high >= 0.0, "zero"),
        (own.negative_infinity, !other.negative_infinity, "-inf"),
        (own.positive_infinity, !other.positive_infinity, "+inf"),
        (own.nan, !other.nan, "NaN"),
    ] {
        if has && lacks {
            parts.push(word.to_owned());
        }
    }
    parts
}
