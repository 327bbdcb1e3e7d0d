//! What a search came to: per contract how often each clause was exercised, for each type, and every
//! finding in full. A clause that was never exercised stands out.

use super::finding::{finding, finding_json};
use super::paint::Paint;
use crate::corpus;
use crate::counters::{Counters, Exercised, Headroom};
use crate::search::{Finding, SubjectSummary, Summary};
use crate::subject::Subject;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The summary for a terminal, ending in a newline; with `coverage` also every PTX block's hits.
pub fn summary(summary: &Summary, coverage: bool) -> String {
    let paint = Paint::stdout();
    let mut out = String::new();
    for subject in &summary.subjects {
        out.push_str(&subject_text(subject, summary.elapsed.as_secs_f64(), paint));
        if coverage {
            let _ = writeln!(out, "{}", subject.coverage.by_block());
        }
    }
    let cases: u64 = summary.subjects.iter().map(|subject| subject.counters.cases).sum();
    let findings: usize = summary.subjects.iter().map(|subject| subject.findings.len()).sum();
    let elapsed = summary.elapsed.as_secs_f64();
    let interrupted = if summary.interrupted { ", interrupted" } else { "" };
    let found = format!("{findings} found");
    let found = if findings == 0 { paint.strong(&found) } else { paint.bad(&found) };
    let _ = writeln!(out, "{cases} cases in {elapsed:.1} s{interrupted}: {found}");
    out
}

fn subject_text(summary: &SubjectSummary, elapsed_s: f64, paint: Paint) -> String {
    let counters = &summary.counters;
    let mut out = format!(
        "{}  {} cases ({:.0} per second), {} discarded, {}\n",
        paint.strong(summary.subject.name()),
        counters.cases,
        counters.cases as f64 / elapsed_s.max(1e-9),
        counters.discarded,
        summary.coverage.headline()
    );
    out.push_str(&table(&counters.summary(summary.subject, false, false), paint));
    out.push_str(&headroom(counters, paint));
    for what in &summary.unsupported {
        let _ = writeln!(out, "  unsupported: {what}");
    }
    for found in &summary.findings {
        let text = finding(
            summary.subject,
            &found.shrunk.case,
            &found.shrunk.verdict,
            found.path.as_deref(),
        );
        let _ = writeln!(out, "{text}\n  {}", provenance(found));
        if let Some(why) = &found.unwritten {
            let case = contracts::case_yaml::write_case(
                &found.shrunk.case,
                summary.subject.contract,
                None,
            );
            let _ = writeln!(out, "  {}\n{case}", paint.bad(&format!("not stored: {why}")));
        }
    }
    out.push('\n');
    out
}

fn provenance(found: &Finding) -> String {
    let end =
        if found.shrunk.finished { "nothing smaller fails alike" } else { "stopped by its limit" };
    format!(
        "found after {} cases on {}; shrunk in {} tries, {} kept, {end}",
        found.after_cases, found.backend, found.shrunk.tried, found.shrunk.kept
    )
}

/// One row a clause, one column a type; `-` where the clause does not apply.
fn table(lines: &[Exercised], paint: Paint) -> String {
    let mut types: Vec<&str> = Vec::new();
    let mut clauses: Vec<&str> = Vec::new();
    for line in lines {
        if !types.contains(&line.dtypes.as_str()) {
            types.push(&line.dtypes);
        }
        if !clauses.contains(&line.clause.as_str()) {
            clauses.push(&line.clause);
        }
    }
    let wide = clauses.iter().map(|clause| clause.len()).max().unwrap_or(0);
    let mut out = format!("  {:<wide$}", "");
    types.iter().for_each(|label| out.push_str(&paint.faint(&format!(" {label:>10}"))));
    out.push('\n');
    for clause in clauses {
        let of_clause: Vec<&Exercised> =
            lines.iter().filter(|line| line.clause == clause).collect();
        let _ = write!(out, "  {clause:<wide$}");
        if let Some(missing) = of_clause.iter().find_map(|line| line.not_here) {
            let _ = writeln!(
                out,
                " {}",
                paint.faint(&format!("not exercisable here: needs {missing}"))
            );
            continue;
        }
        for label in &types {
            let cell = of_clause.iter().find(|line| line.dtypes == *label).map(|line| line.cases);
            let text = format!(" {:>10}", cell.map_or("-".to_owned(), |cases| cases.to_string()));
            out.push_str(&if cell == Some(0) { paint.bad(&text) } else { text });
        }
        out.push('\n');
    }
    out
}

/// How far inside its bounds the kernel is, a row a tensor and type: where the worst element stays far
/// below its bound, the bound is too loose. Figures of the cases that were measured.
fn headroom(counters: &Counters, paint: Paint) -> String {
    let mut out = String::new();
    for (label, tensor, held) in counters.headroom() {
        if out.is_empty() {
            let titles = "  headroom                cases  worst/bound   max abs    max ulp   rel RMS  \
                          norm ratio             not finite";
            let _ = writeln!(out, "{}", paint.faint(titles));
        }
        let row = format!("{tensor} {label}");
        let ratio = format!("{:.7}..{:.7}", held.norm_ratio[0], held.norm_ratio[1]);
        let _ = writeln!(
            out,
            "  {row:<20} {:>8}  {:>11.4}  {:>8.2e}  {:>9.1}  {:>8.2e}  {ratio:<22} {:>10}",
            held.cases,
            held.worst_ratio,
            held.max_abs,
            held.max_ulps,
            held.relative_rms,
            held.nonfinite
        );
    }
    out
}

fn headroom_json((label, tensor, held): (&str, &str, &Headroom)) -> Value {
    json!({
        "tensor": tensor,
        "dtypes": label,
        "cases": held.cases,
        "worst_ratio": held.worst_ratio,
        "max_abs": held.max_abs,
        "max_ulps": held.max_ulps,
        "relative_rms": held.relative_rms,
        "norm_ratio": held.norm_ratio,
        "nonfinite": held.nonfinite,
    })
}

/// The summary under stable keys.
pub fn summary_json(summary: &Summary) -> Value {
    json!({
        "elapsed_s": summary.elapsed.as_secs_f64(),
        "interrupted": summary.interrupted,
        "contracts": summary.subjects.iter().map(subject_json).collect::<Vec<_>>(),
    })
}

fn subject_json(summary: &SubjectSummary) -> Value {
    let clause = |line: &Exercised| json!({ "clause": line.clause, "dtypes": line.dtypes, "cases": line.cases, "needs": line.not_here });
    let found = |found: &Finding| {
        let shrunk = &found.shrunk;
        let mut value =
            finding_json(summary.subject, &shrunk.case, &shrunk.verdict, found.path.as_deref());
        value["backend"] = json!(found.backend);
        value["after_cases"] = json!(found.after_cases);
        value["shrink"] =
            json!({ "tried": shrunk.tried, "kept": shrunk.kept, "finished": shrunk.finished });
        value
    };
    json!({
        "contract": summary.subject.name(),
        "cases": summary.counters.cases,
        "discarded": summary.counters.discarded,
        "edges": summary.coverage.edges(),
        "clauses": summary.counters.summary(summary.subject, false, false).iter().map(clause).collect::<Vec<_>>(),
        "headroom": summary.counters.headroom().map(headroom_json).collect::<Vec<_>>(),
        "unsupported": summary.unsupported,
        "findings": summary.findings.iter().map(found).collect::<Vec<_>>(),
    })
}

/// One line on the canary: the search found what it must find.
pub fn canary(subject: &Subject, finding: &Finding) -> String {
    format!(
        "{}: the planted bug was found after {} cases and shrunk to {} in {} tries",
        subject.name(),
        finding.after_cases,
        corpus::describe(&finding.shrunk.case),
        finding.shrunk.tried
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_row_a_clause_and_says_what_does_not_apply() {
        let line = |clause: &str, dtypes: &str, cases, not_here| Exercised {
            clause: clause.to_owned(),
            dtypes: dtypes.to_owned(),
            cases,
            not_here,
        };
        let lines = [
            line("tolerance.y.all", "x=f32", 12, None),
            line("house.guard", "x=f32", 0, Some("cuda")),
            line("house.bounds", "x=f16", 0, None),
        ];
        let expected = "
                       x=f32      x=f16
  tolerance.y.all         12          -
  house.guard     not exercisable here: needs cuda
  house.bounds             -          0
";
        assert_eq!(format!("\n{}", table(&lines, Paint::PLAIN)), expected);
    }

    #[test]
    fn headroom_has_a_row_a_tensor_and_type_over_the_cases_measured() {
        let mut counters = Counters::default();
        for (worst_ratio, norm) in [(0.25, 1.0), (0.5, 0.75)] {
            let norm_ratio = [norm; 2];
            let one =
                Headroom { cases: 1, worst_ratio, norm_ratio, max_ulps: 3.0, ..Default::default() };
            counters.measured("x=f16", "y", one);
        }
        let text = headroom(&counters, Paint::PLAIN);
        let row = text.lines().nth(1).expect("a title and a row");
        let words: Vec<&str> = row.split_whitespace().collect();
        let wanted = "y x=f16 2 0.5000 0.00e0 3.0 0.00e0 0.7500000..1.0000000 0";
        assert_eq!(words, wanted.split(' ').collect::<Vec<_>>());
        assert_eq!(headroom(&Counters::default(), Paint::PLAIN), "");
        let json = headroom_json(counters.headroom().next().expect("measured"));
        assert_eq!((json["worst_ratio"].as_f64(), json["cases"].as_u64()), (Some(0.5), Some(2)));
    }
}
