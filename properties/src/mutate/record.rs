//! The scores that are checked in: `corpora/mutation.md`, a table for people that is read back to see
//! whether a score dropped. A run replaces the rows and sections of its own contracts and leaves the
//! others as they are.

use super::Score;
use super::chance::{LEAST_CHANCE, of_at_most};
use super::judge::Fate;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// The file, under the corpora.
pub const FILE: &str = "mutation.md";

/// Points a score may differ by in any case.
const LEAST_SLACK_POINTS: f64 = 3.0;
/// Standard errors of a sample's share that a score may differ by.
const SLACK_ERRORS: f64 = 2.5;
/// Fewer are judged by exact chances.
const FEW_MUTANTS: usize = 25;

const HEAD: &str = "\
# Mutation scores

How many of the wrong kernels made by changing one PTX instruction a contract's clauses notice. Written
by `cargo run --release -- mutate --write`; a survivor is listed with its line. *Executed* are the PTX
sites that some question of the suite executes, of those an edit applies to; only they are sampled. The
*second sample* has a seed that nobody saw while survivors were worked off. *Alone* are the mutants that no
other clause kills.

| contract | family | score | killed | survived | equivalent | rejected | executed sites | questions | named killed | second sample | seed |
|---|---|---|---|---|---|---|---|---|---|---|---|
";

/// What is on record of one contract.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// Points of a hundred.
    pub points: f64,
    /// Mutants killed.
    pub killed: usize,
    /// Mutants the score is a share of.
    pub total: usize,
    /// Named mutants killed, of how many, or that they were not run.
    pub named: String,
    /// The seed of its sample.
    pub seed: String,
    /// Points of the second sample, and its mutants.
    pub second: Option<(f64, usize)>,
    family: String,
    row: String,
    section: String,
}

/// The scores on record, by contract.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record(BTreeMap<String, Recorded>);

/// Where `named killed` stands in a row, counted from the empty text before the first bar.
const NAMED_CELL: usize = 10;

impl Recorded {
    /// Says anew how many named mutants are killed.
    fn name_mutants(&mut self, named: String) {
        let mut cells: Vec<&str> = self.row.split('|').collect();
        let cell = format!(" {named} ");
        cells[NAMED_CELL] = &cell;
        self.row = cells.join("|");
        self.named = named;
    }
}

impl Record {
    /// Reads the record; an empty one when there is no file.
    ///
    /// # Errors
    /// When the file cannot be read or has a row that is no score.
    pub fn read(corpora: &Path) -> Result<Record, String> {
        let path = corpora.join(FILE);
        match std::fs::read_to_string(&path) {
            Ok(text) => Record::of(&text).map_err(|what| format!("{}: {what}", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Record::default()),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    fn of(text: &str) -> Result<Record, String> {
        let mut record = BTreeMap::new();
        let (table, sections) = text.split_once("\n## ").unwrap_or((text, ""));
        for line in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
            let bad = || format!("`{line}` is no score; write the file anew with `mutate --write`");
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [name, family, score, killed, survived, _, _, _, _, named, second, seed] =
                cells[..]
            else {
                return Err(bad());
            };
            let points = score.trim_end_matches('%').trim().parse().map_err(|_| bad())?;
            let count = |cell: &str| cell.parse::<usize>().map_err(|_| bad());
            let killed = count(killed)?;
            let total = killed + count(survived)?;
            let recorded = Recorded {
                points,
                killed,
                total,
                named: named.to_owned(),
                seed: seed.to_owned(),
                second: second_of(second).ok_or_else(bad)?,
                family: family.to_owned(),
                row: line.to_owned(),
                section: String::new(),
            };
            record.insert(name.to_owned(), recorded);
        }
        for section in sections.split("\n## ").filter(|section| !section.is_empty()) {
            let (name, body) = section.split_once('\n').unwrap_or((section, ""));
            if let Some(recorded) = record.get_mut(name.trim()) {
                recorded.section = body.trim().to_owned();
            }
        }
        Ok(Record(record))
    }

    /// Puts a score in the place of the one on record; of a run that sampled nothing, its named mutants alone.
    pub fn put(&mut self, score: &Score) {
        let named = match score.named.len() {
            0 => "not run".to_owned(),
            all => format!("{} of {all}", all - score.named_failures().len()),
        };
        let Some(share) = score.share() else {
            if let Some(recorded) = self.0.get_mut(score.subject.name()) {
                recorded.name_mutants(named);
            }
            return;
        };
        let row = format!(
            "| {} | {} | {:.1} % | {} | {} | {} | {} | {} of {} | {} | {} | {} | {} |",
            score.subject.name(),
            score.subject.family,
            100.0 * share,
            score.killed(),
            score.survived(),
            equivalent(score),
            score.rejected(),
            score.executed,
            score.sites,
            score.questions,
            named,
            score.second.as_ref().map_or("not run".to_owned(), |second| {
                let points = 100.0 * second.killed as f64 / second.total.max(1) as f64;
                format!("{points:.1} % of {} ({})", second.total, second.seed)
            }),
            score.seed,
        );
        let second = score.second.as_ref().filter(|second| second.total > 0);
        let recorded = Recorded {
            points: 100.0 * share,
            killed: score.killed(),
            total: score.total(),
            named,
            seed: score.seed.clone(),
            second: second.map(|one| (100.0 * one.killed as f64 / one.total as f64, one.total)),
            family: score.subject.family.to_owned(),
            row,
            section: section(score),
        };
        self.0.insert(score.subject.name().to_owned(), recorded);
    }

    /// What is on record of a contract.
    pub fn contract(&self, name: &str) -> Option<&Recorded> {
        self.0.get(name)
    }

    /// Whether a score is lower than the one on record by more than its sample explains: three points,
    /// or two and a half standard errors. Of a few mutants those errors say nothing (without a survivor on
    /// record they are none): then, by more than chance brings about.
    pub fn drop_of(&self, score: &Score) -> Option<String> {
        let recorded = self.contract(score.subject.name())?;
        let points = 100.0 * score.share()?;
        let is_lower = if score.total() < FEW_MUTANTS {
            chance_of_as_few(score.killed(), score.total(), recorded) < LEAST_CHANCE
        } else {
            points < recorded.points - slack_points(recorded.points, score.total())
        };
        is_lower.then(|| {
            format!(
                "{}: {points:.1} % of {} mutants killed, {:.1} % of {} on record in {FILE}: strengthen the \
                 clauses or generators until the survivors above die",
                score.subject.name(),
                score.total(),
                recorded.points,
                recorded.total
            )
        })
    }

    /// Whether a contract's two samples on record differ by more than their sizes explain: then one of
    /// them was tuned to.
    pub fn gap_of(&self, name: &str) -> Option<String> {
        let recorded = self.contract(name)?;
        let (second, total) = recorded.second?;
        let slack = slack_points(second, total.min(recorded.total));
        (recorded.points - second > slack).then(|| {
            format!(
                "{name}: {:.1} % on record, {second:.1} % by a seed that nobody saw: the first sample was tuned \
                 to; work off kinds of survivors, not these survivors",
                recorded.points
            )
        })
    }

    /// A line for each family: its contracts' samples taken together.
    fn families(&self) -> String {
        let mut families: BTreeMap<&str, (f64, usize)> = BTreeMap::new();
        for recorded in self.0.values() {
            let (killed, total) = families.entry(&recorded.family).or_default();
            *killed += recorded.points / 100.0 * recorded.total as f64;
            *total += recorded.total;
        }
        let line = |(family, (killed, total)): (&str, (f64, usize))| {
            format!("- family {family}: {:.1} % of {total}\n", 100.0 * killed / total.max(1) as f64)
        };
        families.into_iter().map(line).collect()
    }

    /// The file's text.
    pub fn text(&self) -> String {
        let mut text = HEAD.to_owned();
        for recorded in self.0.values() {
            text.push_str(&recorded.row);
            text.push('\n');
        }
        let _ = write!(text, "\n{}", self.families());
        for (name, recorded) in &self.0 {
            let _ = write!(text, "\n## {name}\n\n{}\n", recorded.section.trim());
        }
        text
    }
}

/// How likely no more than `killed` of `total` mutants die where the record's share would, that of both its
/// samples, and one mutant of either kind added: a sample without survivors does not promise that there
/// are none.
fn chance_of_as_few(killed: usize, total: usize, recorded: &Recorded) -> f64 {
    let samples = [Some((recorded.points, recorded.total)), recorded.second];
    let (mut died, mut of) = (1.0, 2.0);
    for (points, total) in samples.into_iter().flatten() {
        died += points / 100.0 * total as f64;
        of += total as f64;
    }
    of_at_most(killed, total, died / of)
}

/// Points by which the share of this many mutants may fall short of a score by chance.
fn slack_points(points: f64, total: usize) -> f64 {
    let share = (points / 100.0).clamp(0.0, 1.0);
    let error = (share * (1.0 - share) / total as f64).sqrt();
    LEAST_SLACK_POINTS.max(100.0 * SLACK_ERRORS * error)
}

/// `95.3 % of 149 (seed)` or `not run`; `None` for anything else.
fn second_of(cell: &str) -> Option<Option<(f64, usize)>> {
    if cell == "not run" {
        return Some(None);
    }
    let (points, rest) = cell.split_once(" % of ")?;
    let total = rest.split(' ').next()?;
    Some(Some((points.parse().ok()?, total.parse().ok()?)))
}

fn equivalent(score: &Score) -> String {
    let (all, declared) = (score.equivalent(), score.declared());
    if declared == 0 { all.to_string() } else { format!("{all} ({declared} declared)") }
}

/// Survivors and declared equivalents, a line each.
fn section(score: &Score) -> String {
    let mut text = String::new();
    for judged in &score.judged {
        let mutant = &judged.mutant;
        let source = mutant
            .source
            .as_ref()
            .map_or(String::new(), |(file, line)| format!(" ({file}:{line})"));
        let edit = format!("`{}` → `{}`", flat(&mutant.was), flat(&mutant.now));
        let place = format!("{}.ptx:{}{source}", mutant.stem, mutant.line);
        match &judged.fate {
            Fate::Survived { asked, same_bits, why } => {
                let bits = match same_bits {
                    Some(true) => ", the kernel's own bits",
                    Some(false) => ", other bits within the bounds",
                    None => "",
                };
                let operator = mutant.operator;
                let why = why.as_ref().map_or(String::new(), |why| format!(": {why}"));
                let _ = writeln!(text, "- survived {asked}{bits}: {operator} {place}: {edit}{why}");
            }
            Fate::Equivalent { evidence, reason: Some(reason) } => {
                let _ = writeln!(text, "- equivalent ({evidence}): {place}: {edit}: {reason}");
            }
            _ => {}
        }
    }
    if text.is_empty() {
        text.push_str("No survivor.\n");
    }
    if score.is_thorough() {
        text.push_str(&clauses(score));
    }
    text
}

/// What each clause is for: cases that exercised it, mutants it was the first to kill, and those it
/// alone kills.
fn clauses(score: &Score) -> String {
    let (first, sole) = (score.first_kills(), score.sole_kills());
    let mut text = "\n| clause | cases | first to kill | alone |\n|---|---|---|---|\n".to_owned();
    for (clause, cases) in &score.exercised {
        let count =
            |kills: &BTreeMap<&str, usize>| kills.get(clause.as_str()).copied().unwrap_or(0);
        let _ = writeln!(text, "| {clause} | {cases} | {} | {} |", count(&first), count(&sole));
    }
    text
}

/// A PTX line on one line of a table: blanks joined, nothing for an empty one.
fn flat(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(" ").replace('`', "'") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, score: &str) -> String {
        format!(
            "| {name} | f | {score} | 90 | 10 | 0 | 0 | 1 of 2 | 3 | not run | 89.0 % of 98 (x) | abc |"
        )
    }

    #[test]
    fn a_record_reads_back() {
        let text = format!(
            "{HEAD}{}\n{}\n\n- family f: 90.8 % of 200\n\n## a\n\n- x\n\n## b\n\nNo survivor.\n",
            row("a", "90.0 %"),
            row("b", "91.5 %")
        );
        let record = Record::of(&text).expect("a record");
        assert_eq!(record.text(), text);
        let recorded = record.contract("a").expect("a row");
        assert_eq!((recorded.points, recorded.total, recorded.seed.as_str()), (90.0, 100, "abc"));
        assert_eq!(recorded.second, Some((89.0, 98)));
    }

    #[test]
    fn named_mutants_are_counted_anew_beside_a_score() {
        let text = format!("{HEAD}{}\n{}\n", row("a", "90.0 %"), row("b", "91.5 %"));
        let mut record = Record::of(&text).expect("a record");
        record.0.get_mut("a").expect("a row").name_mutants("7 of 7".to_owned());
        let again = Record::of(&record.text()).expect("still a record");
        let (a, before) = (again.contract("a").expect("a row"), Record::of(&text).expect("one"));
        assert_eq!(a.named, "7 of 7");
        let before = before.contract("a").expect("a row").clone();
        assert_eq!((a.points, a.total, a.second), (before.points, before.total, before.second));
        assert_eq!(again.contract("b"), record.contract("b"), "the other row is as it was");
    }

    #[test]
    fn a_second_sample_far_below_the_first_is_a_fault() {
        let text = format!("{HEAD}{}\n", row("a", "97.0 %").replace("98 (x)", "150 (x)"));
        let record = Record::of(&text).expect("a record");
        assert!(record.gap_of("a").is_some_and(|gap| gap.contains("89.0 %")), "eight points");
        let near = Record::of(&format!("{HEAD}{}\n", row("a", "90.5 %"))).expect("a record");
        assert_eq!(near.gap_of("a"), None, "a point and a half");
        assert_eq!(near.gap_of("b"), None, "nothing on record");
    }

    #[test]
    fn a_sample_is_lower_when_chance_would_not_make_it_so() {
        let of = |points: &str| {
            let record = Record::of(&format!("{HEAD}{}\n", row("a", points))).expect("a record");
            record.contract("a").expect("a row").clone()
        };
        let alone = |points: &str| Recorded { second: None, ..of(points) };
        let (all, most) = (alone("100.0 %"), alone("85.0 %"));
        assert!(chance_of_as_few(11, 12, &all) > 0.05, "one survivor of twelve");
        assert!(chance_of_as_few(8, 12, &all) < LEAST_CHANCE, "four survivors of twelve");
        assert!(chance_of_as_few(5, 9, &most) > LEAST_CHANCE);
        assert!(chance_of_as_few(3, 12, &most) < LEAST_CHANCE);
        // By hand: 0 or 1 of 2 at 86 of 102.
        let share = 86.0f64 / 102.0;
        assert!((chance_of_as_few(1, 2, &most) - (1.0 - share * share)).abs() < 1e-12);
        // A second sample that has survivors promises them.
        assert!(chance_of_as_few(8, 12, &of("100.0 %")) > LEAST_CHANCE);
        assert!(chance_of_as_few(4, 12, &of("100.0 %")) < LEAST_CHANCE);
    }

    #[test]
    fn a_small_sample_may_differ_more() {
        assert_eq!(slack_points(100.0, 25), 3.0);
        assert!((slack_points(80.0, 25) - 20.0).abs() < 1e-9);
        assert!((slack_points(80.0, 400) - 5.0).abs() < 1e-9);
    }

    #[test]
    fn a_row_that_is_no_score_is_refused() {
        let without_second = row("a", "90.0 %").replace("89.0 % of 98 (x) | ", "");
        for bad in [row("a", "many"), "| a | f |".to_owned(), without_second] {
            assert!(Record::of(&format!("{HEAD}{bad}\n")).is_err(), "{bad}");
        }
    }
}
