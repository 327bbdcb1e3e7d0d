//! What a row of the vocabulary says, and the rows as Markdown.

use crate::drive::{Backing, Shown};
use crate::rows::ELSEWHERE;
use contracts::format::{LayoutKind, Values};
use std::fmt::Write as _;

/// One form of clause, shown.
pub struct Row {
    /// The form, as `forms::every_form` names it.
    pub form: &'static str,
    /// The test kernel.
    pub kernel: &'static str,
    /// The planted fault.
    pub fault: &'static str,
    /// What the fault does.
    pub does: &'static str,
    /// What looks like it and is right; the kernel as it is where nothing does.
    pub near_miss: Option<&'static str>,
    /// What the near-miss does.
    pub passes: &'static str,
    /// What is switched off to show that nothing else finds the fault.
    pub off: Off,
    /// Where it runs.
    pub backing: Backing,
    /// A dim held at one size, where the fault shows only there.
    pub dims: Option<(&'static str, i64)>,
}

/// What is switched off.
#[derive(Clone, Copy)]
pub enum Off {
    /// Clauses; the first is the row's own, others promise the same of the same tensors.
    Clauses(&'static [&'static str]),
    /// A layout of a tensor.
    Layout(&'static str, LayoutKind),
    /// Packed rows of a store.
    Store(&'static str),
    /// A generator of a tensor's values, with those drawn in its place.
    Values(&'static str, &'static [Values]),
}

impl Row {
    /// Whether this clause may find the fault: the row's own, or any where a layout shows it.
    pub fn finds(&self, clause: &str) -> bool {
        match self.off {
            Off::Clauses(clauses) => clauses.contains(&clause),
            Off::Layout(..) | Off::Store(_) | Off::Values(..) => true,
        }
    }

    /// The clause, of which kernel, and where it runs if not on the machine.
    fn clause(&self) -> String {
        let clause = match self.off {
            Off::Clauses(clauses) => format!("`{}`", clauses[0]),
            Off::Layout(tensor, kind) => format!("`{tensor}` {kind:?}"),
            Off::Store(store) => format!("`{store}` packed"),
            Off::Values(tensor, _) => format!("values of `{tensor}`"),
        };
        let place = match self.backing {
            Backing::Exact | Backing::Blind => "",
            Backing::Emulated => ", on an emulated GPU",
        };
        format!("{clause} of {}{place}", self.kernel)
    }
}

/// A form that another test shows.
pub struct Elsewhere {
    /// The form.
    pub form: &'static str,
    /// The test's file.
    pub file: &'static str,
    /// The test.
    pub test: &'static str,
    /// Why it is not shown here.
    pub why: &'static str,
}

/// The table as Markdown.
pub fn document(shown: &[(&Row, Shown)]) -> String {
    let mut out = String::from(
        "# What each form of clause catches\n\n\
         One row a form. Its fault, planted in a test kernel beside the canary, is found by this clause and \
         by no other; with the clause switched off it survives the same cases; the near-miss passes while \
         the clause is exercised. The figures are of 400 drawn cases, the same on every machine.\n\n\
         Written by `UPDATE_CLAUSES=1 cargo test --release -p properties --test clauses`, and checked \
         without it.\n\n\
         | form | clause | the fault | found after | the near-miss | exercised by it |\n\
         |---|---|---|---|---|---|\n",
    );
    let is_generator = |row: &Row| matches!(row.off, Off::Values(..));
    for (row, shown) in shown.iter().filter(|(row, _)| !is_generator(row)) {
        let Shown { after, exercised } = shown;
        let (form, clause, does, passes) = (row.form, row.clause(), row.does, row.passes);
        let _ =
            writeln!(out, "| `{form}` | {clause} | {does} | {after} | {passes} | {exercised} |");
    }
    out.push_str(
        "\nGenerators, each with a fault that it reveals: with plainer values in its place, the fault survives \
         the same number of cases. Nothing but generators makes values here: no special value and no NaN is \
         put among them.\n\n\
         | generator | of | the fault | found after | the near-miss |\n|---|---|---|---|---|\n",
    );
    for (row, Shown { after, .. }) in shown.iter().filter(|(row, _)| is_generator(row)) {
        let (form, clause, does, passes) = (row.form, row.clause(), row.does, row.passes);
        let _ = writeln!(out, "| `{form}` | {clause} | {does} | {after} | {passes} |");
    }
    out.push_str("\nShown by other tests:\n\n| form | test | why |\n|---|---|---|\n");
    for row in ELSEWHERE {
        let _ = writeln!(out, "| `{}` | `{}` of {} | {} |", row.form, row.test, row.file, row.why);
    }
    out
}
