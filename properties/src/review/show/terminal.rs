//! A review for a person at a terminal.

use super::super::change::{Change, Class, ContractReview, Reason, Review};
use super::super::exercise::CASES;
use super::{counts, is_trick, place, title, wanted};
use crate::report::Paint;
use std::fmt::Write as _;

/// The review, ending in a newline.
pub fn terminal(review: &Review, paint: Paint) -> String {
    if let Some(error) = &review.error {
        return format!("nothing could be compared: {}\n", clean(error));
    }
    let mut out = format!("{} → {}\n", clean(&review.base), clean(&review.head));
    for note in &review.notes {
        let _ = writeln!(out, "  note: {}", clean(note));
    }
    for contract in &review.contracts {
        one(&mut out, contract, paint);
    }
    kernels(&mut out, review, paint);
    let unjustified = review.unjustified();
    let verdict = match unjustified {
        0 => format!("{}; nothing is weaker without a reason", counts(review)),
        1 => format!("{}; 1 change is weaker without a reason", counts(review)),
        many => format!("{}; {many} changes are weaker without a reason", counts(review)),
    };
    let verdict = if unjustified == 0 { paint.strong(&verdict) } else { paint.bad(&verdict) };
    let _ = writeln!(out, "\n{verdict}");
    for contract in &review.contracts {
        if let Some(entry) = wanted(contract) {
            let _ =
                writeln!(out, "  say why in {}:\n    {}", clean(&place(contract)), clean(&entry));
        }
    }
    out
}

fn one(out: &mut String, contract: &ContractReview, paint: Paint) {
    let (name, file) = (clean(title(contract)), clean(&contract.file));
    let _ = writeln!(out, "\n{}  {}", paint.strong(&name), paint.faint(&file));
    let width =
        contract.changes.iter().map(|change| change.clause.chars().count()).max().unwrap_or(0);
    for change in &contract.changes {
        line(out, change, width, paint);
    }
    for clause in &contract.unexercised {
        let _ = writeln!(out, "  none of {CASES} drawn cases exercises `{}`", clean(clause));
    }
}

fn line(out: &mut String, change: &Change, width: usize, paint: Paint) {
    let word = format!("{:<12}", change.class.name());
    let word = match change.class {
        Class::Loosened | Class::Incomparable if change.is_unjustified() => paint.bad(&word),
        Class::Neutral => paint.faint(&word),
        _ => paint.strong(&word),
    };
    let clause = clean(&change.clause);
    let _ = writeln!(out, "  {word}  {clause:<width$}  {}", clean(&change.says));
    let under = " ".repeat(2 + 12 + 2 + width + 2);
    match &change.reason {
        Some(Reason::Given { because, link }) => {
            let _ = writeln!(out, "{under}because {}; {}", clean(because), clean(link));
        }
        Some(Reason::Missing { why }) if !why.is_empty() => {
            let _ = writeln!(out, "{under}{}", paint.bad(&format!("no reason: {}", clean(why))));
        }
        Some(Reason::Missing { .. }) | None => {}
    }
}

fn kernels(out: &mut String, review: &Review, paint: Paint) {
    if review.kernels.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{}", paint.strong("kernels"));
    for kernel in &review.kernels {
        let judged = match kernel.judged_by.is_empty() {
            true => "judged by no contract".to_owned(),
            false => format!("judged by {}", kernel.judged_by.join(", ")),
        };
        let _ = writeln!(out, "  {}  {}", clean(&kernel.kernel), clean(&judged));
        for source in &kernel.sources {
            let _ = writeln!(out, "    {}", clean(source));
        }
        if let Some(mismatch) = &kernel.mismatch {
            let _ = writeln!(out, "    {}", paint.bad(&clean(mismatch)));
        }
    }
}

/// A message as one line.
pub fn one_line(message: &str) -> String {
    clean(message)
}

/// Text that moves no cursor and turns no direction.
fn clean(text: &str) -> String {
    text.chars().map(|c| if is_trick(c) { '\u{fffd}' } else { c }).collect()
}
