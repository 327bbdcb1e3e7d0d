//! Mutation scores for a person and for a program: what died, by which clause, and each survivor with
//! its lines, ready to be read.

use super::Paint;
use crate::mutate::judge::Fate;
use crate::mutate::sample::Mutant;
use crate::mutate::{Judged, Score, family_scores};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The scores of a run, survivors first.
pub fn mutation(scores: &[Score]) -> String {
    let paint = Paint::stdout();
    let mut out = String::new();
    for score in scores {
        one(&mut out, score, paint);
    }
    out.push_str(&table(scores, paint));
    out
}

fn one(out: &mut String, score: &Score, paint: Paint) {
    let name = score.subject.name();
    for judged in &score.judged {
        let verdict = match &judged.fate {
            Fate::Survived { asked, same_bits, why } => {
                let why = why.as_ref().map_or(String::new(), |why| format!(": {why}"));
                paint.bad(&format!("survived {asked} cases{}{why}", same(*same_bits)))
            }
            Fate::Equivalent { evidence, reason: Some(reason) } => {
                format!("declared equivalent by {evidence}: {reason}")
            }
            Fate::Rejected(why) => format!("rejected: {why}"),
            _ => continue,
        };
        let _ =
            writeln!(out, "{name}: {} {verdict}\n{}", judged.mutant.operator, diff(&judged.mutant));
    }
    for (id, what) in score.named_failures() {
        let _ = writeln!(out, "{name}: mutant {id} {}", paint.bad(&what));
    }
    if let Some((origin, clause)) = score.failing.first() {
        let text = format!(
            "the kernel itself fails {} cases, which judge no mutant; first {origin} by {clause}",
            score.failing.len()
        );
        let _ = writeln!(out, "{name}: {}", paint.bad(&text));
    }
    let seconds = score.judging.as_secs_f64().max(1e-9);
    let judged = score.judged.len() + score.named.len();
    let _ = writeln!(
        out,
        "{}: {} questions in {:.1} s; {judged} of {} mutants in {:.1} s, {:.1} a second; {} of {} sites executed",
        paint.strong(name),
        score.questions,
        score.measuring.as_secs_f64(),
        score.chosen + score.named.len(),
        seconds,
        judged as f64 / seconds,
        score.executed,
        score.sites,
    );
    let _ = writeln!(out, "  first to kill: {}", most_first(score.first_kills()));
    if score.is_thorough() {
        let _ = writeln!(out, "  alone to kill: {}", most_first(score.sole_kills()));
    }
    if !score.vacuous.is_empty() {
        let text = format!("  exercised by no case: {}", score.vacuous.join(", "));
        let _ = writeln!(out, "{}", paint.bad(&text));
    }
    out.push('\n');
}

/// `tolerance.o.f32 12, house.bounds 3`.
fn most_first(kills: BTreeMap<&str, usize>) -> String {
    let mut kills: Vec<_> = kills.into_iter().collect();
    kills.sort_by_key(|(clause, count)| (std::cmp::Reverse(*count), *clause));
    let kills: Vec<_> = kills.iter().map(|(clause, count)| format!("{clause} {count}")).collect();
    kills.join(", ")
}

/// What a survivor's answers were.
fn same(bits: Option<bool>) -> &'static str {
    match bits {
        Some(true) => " with the kernel's own bits",
        Some(false) => " with other bits, within the bounds",
        None => "",
    }
}

/// Where the mutant is, its CUDA line, and the PTX line before and after.
fn diff(mutant: &Mutant) -> String {
    let mut text = format!("  {}.ptx:{} in {}", mutant.stem, mutant.line, mutant.entry);
    if let Some((file, line)) = &mutant.source {
        let _ = write!(text, "; {file}:{line}");
        if let Some(source) = source_line(file, *line) {
            let _ = write!(text, "\n      {source}");
        }
    }
    let now = mutant.now.trim();
    let _ = write!(
        text,
        "\n    - {}\n    + {}",
        mutant.was.trim(),
        if now.is_empty() { "(nothing)" } else { now }
    );
    text
}

/// A line of the kernels' sources, where they are at hand.
fn source_line(file: &str, line: u32) -> Option<String> {
    let root = kernels::ptx::sources::checkout_root()?;
    let text = kernels::ptx::sources::read(&root, file).ok()?;
    Some(text.lines().nth((line as usize).checked_sub(1)?)?.trim().to_owned())
}

fn table(scores: &[Score], paint: Paint) -> String {
    let mut out = format!(
        "{:<20} {:<16} {:>7} {:>7} {:>9} {:>11} {:>9} {:>8}\n",
        "contract", "family", "score", "killed", "survived", "equivalent", "rejected", "named"
    );
    for score in scores {
        let share = score.share().map_or("-".to_owned(), |share| format!("{:.1} %", 100.0 * share));
        let share = format!("{share:>7}");
        let named = match score.named.len() {
            0 => "-".to_owned(),
            all => format!("{}/{all}", all - score.named_failures().len()),
        };
        let _ = writeln!(
            out,
            "{:<20} {:<16} {} {:>7} {:>9} {:>11} {:>9} {:>8}",
            score.subject.name(),
            score.subject.family,
            if score.survived() > 0 { share } else { paint.strong(&share) },
            score.killed(),
            score.survived(),
            score.equivalent(),
            score.rejected(),
            named
        );
    }
    for (family, killed, total) in family_scores(scores) {
        let _ = writeln!(
            out,
            "{:<20} {family:<16} {:>5.1} % {killed:>7} of {total}",
            "family",
            100.0 * killed as f64 / total as f64
        );
    }
    out
}

/// The scores under stable keys.
pub fn mutation_json(scores: &[Score]) -> Value {
    let family = |(family, killed, total): (&str, usize, usize)| {
        json!({
            "family": family,
            "killed": killed,
            "total": total,
            "score": killed as f64 / total as f64,
        })
    };
    json!({
        "contracts": scores.iter().map(score_json).collect::<Vec<_>>(),
        "families": family_scores(scores).into_iter().map(family).collect::<Vec<_>>(),
    })
}

fn score_json(score: &Score) -> Value {
    let named = |(id, killed_by, fate): &(String, Option<String>, Fate)| {
        let mut value = fate_json(fate);
        value["id"] = json!(id);
        value["expected"] = json!(killed_by);
        value
    };
    let (first, sole) = (score.first_kills(), score.sole_kills());
    let clauses = score.exercised.iter().map(|(clause, cases)| {
        json!({
            "clause": clause,
            "cases": cases,
            "first_kills": first.get(clause.as_str()).unwrap_or(&0),
            "sole_kills": score.is_thorough().then(|| sole.get(clause.as_str()).unwrap_or(&0)),
        })
    });
    json!({
        "contract": score.subject.name(),
        "family": score.subject.family,
        "seed": score.seed,
        "score": score.share(),
        "second_sample": score.second.as_ref().map(|second| {
            json!({ "seed": second.seed, "killed": second.killed, "total": second.total })
        }),
        "killed": score.killed(),
        "survived": score.survived(),
        "equivalent": score.equivalent(),
        "declared_equivalent": score.declared(),
        "rejected": score.rejected(),
        "chosen": score.chosen,
        "sites": score.sites,
        "executed_sites": score.executed,
        "questions": score.questions,
        "measuring_s": score.measuring.as_secs_f64(),
        "judging_s": score.judging.as_secs_f64(),
        "kernel_fails": score.failing,
        "clauses": clauses.collect::<Vec<_>>(),
        "named": score.named.iter().map(named).collect::<Vec<_>>(),
        "mutants": score.judged.iter().map(judged_json).collect::<Vec<_>>(),
    })
}

fn judged_json(judged: &Judged) -> Value {
    let mutant = &judged.mutant;
    let mut value = fate_json(&judged.fate);
    value["operator"] = json!(mutant.operator.word());
    value["module"] = json!(mutant.stem);
    value["entry"] = json!(mutant.entry);
    value["ptx_line"] = json!(mutant.line);
    value["source"] = json!(mutant.source);
    value["was"] = json!(mutant.was.trim());
    value["now"] = json!(mutant.now.trim());
    value
}

fn fate_json(fate: &Fate) -> Value {
    match fate {
        Fate::Killed { clause, after, by, sole } => json!({
            "fate": "killed",
            "clause": clause,
            "after_cases": after,
            "by": by,
            "alone": sole,
        }),
        Fate::Survived { asked, same_bits, why } => {
            json!({ "fate": "survived", "cases": asked, "same_bits": same_bits, "why": why })
        }
        Fate::Equivalent { evidence, reason } => {
            json!({ "fate": "equivalent", "evidence": evidence, "reason": reason })
        }
        Fate::Rejected(why) => json!({ "fate": "rejected", "why": why }),
    }
}
