//! A contract for a reader who has not read its file: what is drawn, what is promised in sentences,
//! what must be refused, which wrong kernels must be caught.

use super::clause::promise;
use super::paint::Paint;
use crate::subject::Subject;
use contracts::clause::Need;
use contracts::format::Contract;
use serde_json::Value;
use std::fmt::Write as _;

/// The explanation for a terminal, ending in a newline.
pub fn explain(subject: &Subject) -> String {
    text(subject, Paint::stdout())
}

fn text(subject: &Subject, paint: Paint) -> String {
    let contract = subject.contract;
    let mut out = format!(
        "{} version {}, {}: {}\n  equations  {}\n",
        paint.strong(&contract.contract),
        contract.version,
        subject.family,
        contract.summary,
        contract.spec,
    );
    let tree = serde_json::to_value(contract).unwrap_or_default();
    for (section, title) in DRAWN {
        entries(&mut out, paint, title, &tree[*section]);
    }
    promises(&mut out, paint, subject);
    for (section, title) in [
        ("fixtures", "always run"),
        ("production", "shapes for a GPU"),
        ("except", "house rules it is excused from"),
        ("history", "changes"),
    ] {
        entries(&mut out, paint, title, &tree[section]);
    }
    out
}

/// Sections that say what is drawn.
const DRAWN: &[(&str, &str)] = &[
    ("dtypes", "element types"),
    ("options", "options, which the reference sees"),
    ("variants", "variants, which it does not"),
    ("dims", "sizes"),
    ("lists", "lists"),
    ("scalars", "scalars"),
    ("stores", "tensors that may share packed rows"),
    ("tensors", "tensors"),
    ("joint", "values drawn together"),
    ("nan", "NaN"),
];

/// One line an entry, written as in the file; nothing for an empty section.
fn entries(out: &mut String, paint: Paint, title: &str, section: &Value) {
    let lines: Vec<(String, String)> = match section {
        Value::Object(all) => all.iter().map(|(name, entry)| (name.clone(), flow(entry))).collect(),
        Value::Array(all) => all.iter().map(|entry| ("-".to_owned(), flow(entry))).collect(),
        _ => Vec::new(),
    };
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{}", paint.strong(title));
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, entry) in lines {
        let _ = writeln!(out, "  {name:<width$}  {entry}");
    }
}

/// A value in YAML's one-line style; what is absent or empty is left out.
pub(crate) fn flow(value: &Value) -> String {
    match value {
        Value::Object(all) => {
            let parts: Vec<_> = all
                .iter()
                .filter(|(_, entry)| !is_empty(entry))
                .map(|(name, entry)| format!("{name}: {}", flow(entry)))
                .collect();
            format!("{{{}}}", parts.join(", "))
        }
        Value::Array(all) => {
            format!("[{}]", all.iter().map(flow).collect::<Vec<_>>().join(", "))
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.is_empty(),
        _ => false,
    }
}

/// Every clause in a sentence, in groups.
fn promises(out: &mut String, paint: Paint, subject: &Subject) {
    let contract = subject.contract;
    let refusals = |id: &str| subject.rejections.iter().any(|known| known == id);
    let group = |out: &mut String, title: &str, wanted: &dyn Fn(&str) -> bool| {
        let clauses: Vec<_> = subject.clauses.iter().filter(|clause| wanted(&clause.id)).collect();
        if clauses.is_empty() {
            return;
        }
        let _ = writeln!(out, "\n{}", paint.strong(title));
        let width = clauses.iter().map(|clause| clause.id.len()).max().unwrap_or(0);
        for clause in clauses {
            let place = match clause.needs {
                Need::Nothing => "",
                Need::Cuda => " (on a GPU)",
                Need::Nvrtc => " (needs NVRTC)",
            };
            let _ =
                writeln!(out, "  {:<width$}  {}{place}", clause.id, promise(contract, &clause.id));
        }
    };
    let is_house = |id: &str| id == "house" || id.starts_with("house.");
    let is_mutant = |id: &str| id.starts_with("mutants.");
    group(out, "promises", &|id| !refusals(id) && !is_house(id) && !is_mutant(id));
    group(out, "rules of the house", &is_house);
    group(out, "calls that are refused, memory untouched", &refusals);
    mutants(out, paint, contract);
}

fn mutants(out: &mut String, paint: Paint, contract: &Contract) {
    if contract.mutants.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{}", paint.strong("wrong kernels that must be caught"));
    let width = contract.mutants.keys().map(String::len).max().unwrap_or(0);
    for (name, mutant) in &contract.mutants {
        let with = mutant.with.as_ref().map(|with| format!(" on `{with}`")).unwrap_or_default();
        let _ = match &mutant.equivalent {
            None => writeln!(out, "  {name:<width$}  by {}{with}", mutant.killed_by),
            Some(why) => writeln!(out, "  {name:<width$}  by nothing: {why}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::known_subjects;

    #[test]
    fn every_contract_is_explained_down_to_its_last_clause() {
        for subject in known_subjects() {
            let text = text(subject, Paint::PLAIN);
            for clause in subject.clauses.iter().filter(|clause| !clause.id.starts_with("mutants."))
            {
                let line = text
                    .lines()
                    .find(|line| line.trim_start().split(' ').next() == Some(clause.id.as_str()));
                let line = line.unwrap_or_else(|| panic!("{} is not there:\n{text}", clause.id));
                let sentence = line.trim_start()[clause.id.len()..].trim();
                assert!(sentence.len() > 5, "{}: `{sentence}`", clause.id);
            }
            for mutant in subject.contract.mutants.keys() {
                assert!(text.contains(&format!("  {mutant} ")), "{mutant}");
            }
        }
    }

    #[test]
    fn what_is_absent_is_left_out() {
        let value =
            serde_json::json!({"range": [0, 3], "edges": [], "one_of": null, "that": "N >= 1"});
        assert_eq!(flow(&value), "{range: [0, 3], that: N >= 1}");
    }
}
