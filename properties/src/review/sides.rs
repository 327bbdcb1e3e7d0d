//! The two contracts side by side, and the few comparisons everything else is made of: named entries,
//! sets, ranges, numbers that loosen as they grow. Each is its own mirror: swapped sides give the same
//! changes with `Loosened` and `Tightened` exchanged. What is recorded twice is recorded once.

use super::change::{Change, Class};
use super::conditions::same;
use contracts::expr::Expr;
use contracts::format::{Contract, Named};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::{Deref, DerefMut};

/// Names of contracts at the base, and what they are called at the head.
pub type Renames = BTreeMap<String, String>;

/// What was found, of whatever.
#[derive(Default)]
pub struct Record {
    changes: Vec<Change>,
    seen: HashSet<Change>,
    /// Places that have only another name: the base's, the head's.
    renamed: HashMap<String, String>,
    /// The same, from the head's to the base's.
    old_names: HashMap<String, String>,
}

/// Two contracts and what was found between them.
pub struct Sides<'a> {
    /// The base's.
    pub before: &'a Contract,
    /// The head's.
    pub after: &'a Contract,
    /// Contracts that have another name at the head.
    pub renames: &'a Renames,
    /// What was found.
    pub record: Record,
}

impl Deref for Sides<'_> {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.record
    }
}

impl DerefMut for Sides<'_> {
    fn deref_mut(&mut self) -> &mut Record {
        &mut self.record
    }
}

/// An entry of a section on both sides.
pub enum Pair<'a, T> {
    /// Only at the base.
    Gone(&'a str, &'a T),
    /// Only at the head.
    New(&'a str, &'a T),
    /// On both, equal or not.
    Both(&'a str, &'a T, &'a T),
    /// The same under another name: the base's, the head's.
    Renamed(&'a str, &'a str),
}

/// Pairs entries by name; of those left over, those with the same content.
pub fn pairs<'a, T: Serialize>(before: &'a Named<T>, after: &'a Named<T>) -> Vec<Pair<'a, T>> {
    let mut all = Vec::new();
    let mut new: Vec<(&str, &T)> = after
        .iter()
        .filter(|(name, _)| !before.contains_key(*name))
        .map(|(name, entry)| (name.as_str(), entry))
        .collect();
    for (name, old) in before {
        if let Some(entry) = after.get(name) {
            all.push(Pair::Both(name, old, entry));
            continue;
        }
        match new.iter().position(|(_, entry)| equal(*entry, old)) {
            Some(place) => all.push(Pair::Renamed(name, new.remove(place).0)),
            None => all.push(Pair::Gone(name, old)),
        }
    }
    all.extend(new.into_iter().map(|(name, entry)| Pair::New(name, entry)));
    all
}

/// Whether two entries are written alike: in YAML every NaN equals every other.
fn equal<T: Serialize>(a: &T, b: &T) -> bool {
    match (serde_json::to_value(a), serde_json::to_value(b)) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}

/// A value in YAML's one-line style.
pub fn shown<T: Serialize>(value: &T) -> String {
    crate::report::explain::flow(&serde_json::to_value(value).unwrap_or_default())
}

/// Names in backquotes, joined; a long list's end is counted.
pub fn listed<T: AsRef<str>>(items: &[T]) -> String {
    const MOST: usize = 12;
    let shown: Vec<String> =
        items.iter().take(MOST).map(|item| format!("`{}`", item.as_ref())).collect();
    match items.len().saturating_sub(MOST) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Most characters of a value within a sentence, where two of them must fit a comment's cell.
const MOST_OF_A_VALUE: usize = 150;

/// Two values in at most so many characters each, from shortly before the place where they differ: a
/// reader must see the difference and not what they share.
pub fn contrasted(before: &str, after: &str, most: usize) -> (String, String) {
    const BEFORE_IT: usize = 16;
    let chars = [before, after].map(|text| text.chars().collect::<Vec<char>>());
    if chars.iter().all(|chars| chars.len() <= most) {
        return (before.to_owned(), after.to_owned());
    }
    let shared = chars[0].iter().zip(&chars[1]).take_while(|(a, b)| a == b).count();
    let from = if shared < most / 2 { 0 } else { shared - BEFORE_IT.min(shared) };
    let [before, after] = chars.map(|chars| {
        let begin = if from > 0 { "…" } else { "" };
        let end = if chars.len() > from + most { "…" } else { "" };
        let middle: String = chars.iter().skip(from).take(most).collect();
        format!("{begin}{middle}{end}")
    });
    (before, after)
}

/// A coefficient as a person writes it.
pub fn number(value: f64) -> String {
    let magnitude = value.abs();
    if value != 0.0 && !(1e-3..1e6).contains(&magnitude) {
        format!("{value:e}")
    } else {
        format!("{value}")
    }
}

/// How much looser or tighter a coefficient became.
pub fn ratio(before: f64, after: f64) -> String {
    let (word, more) =
        if after > before { ("looser", after / before) } else { ("tighter", before / after) };
    if before == 0.0 || after == 0.0 {
        return word.to_owned();
    }
    if more >= 10.0 {
        return format!("{} times {word}", rounded(more));
    }
    format!("{} % {word}", rounded(((after - before) / before).abs() * 100.0))
}

/// Three significant digits at most.
fn rounded(value: f64) -> String {
    let digits = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

impl<'a> Sides<'a> {
    /// Nothing found yet.
    pub fn new(before: &'a Contract, after: &'a Contract, renames: &'a Renames) -> Sides<'a> {
        Sides { before, after, renames, record: Record::default() }
    }
}

impl Record {
    /// Everything found.
    pub fn into_changes(self) -> Vec<Change> {
        self.changes
    }

    /// How many changes there are.
    pub fn count(&self) -> usize {
        self.changes.len()
    }

    /// The changes from one on.
    pub fn since(&mut self, from: usize) -> &mut [Change] {
        &mut self.changes[from..]
    }

    /// Records a change, unless the very same is there.
    pub fn push(
        &mut self,
        clause: &str,
        class: Class,
        says: String,
        (before, after): (Option<String>, Option<String>),
    ) {
        let (clause, was) = (clause.to_owned(), self.old_names.get(clause).cloned());
        let change = Change { clause, was, class, says, before, after, reason: None };
        if self.seen.insert(change.clone()) {
            self.changes.push(change);
        }
    }

    /// Something only the base has.
    pub fn gone(&mut self, clause: &str, class: Class, says: String, value: String) {
        self.push(clause, class, says, (Some(value), None));
    }

    /// Something only the head has.
    pub fn new_at(&mut self, clause: &str, class: Class, says: String, value: String) {
        self.push(clause, class, says, (None, Some(value)));
    }

    /// Two values of which neither implies the other; nothing when they are equal.
    pub fn either<T: Serialize>(&mut self, clause: &str, what: &str, before: &T, after: &T) {
        if !equal(before, after) {
            let (before, after) = (shown(before), shown(after));
            let (old, new) = contrasted(&before, &after, MOST_OF_A_VALUE);
            let says = format!("{what}: {} became {}", named(&old), named(&new));
            self.push(clause, Class::Incomparable, says, (Some(before), Some(after)));
        }
    }

    /// Two expressions; nothing when they mean the same however they are written.
    pub fn expressions(
        &mut self,
        clause: &str,
        what: &str,
        before: Option<&Expr>,
        after: Option<&Expr>,
    ) {
        if !same(before, after) {
            self.either(clause, what, &before, &after);
        }
    }

    /// Members of a set: fewer is looser. `gone` and `new` say it of the names. One written more often is
    /// drawn more often, and all others less.
    pub fn members(
        &mut self,
        clause: &str,
        before: &[String],
        after: &[String],
        gone: &dyn Fn(&str) -> String,
        new: &dyn Fn(&str) -> String,
    ) {
        let only = |mine: &[String], others: &[String]| -> Vec<String> {
            mine.iter().filter(|item| !others.contains(item)).cloned().collect()
        };
        let (lost, gained) = (only(before, after), only(after, before));
        if !lost.is_empty() {
            self.gone(clause, Class::Loosened, gone(&listed(&lost)), lost.join(", "));
        }
        if !gained.is_empty() {
            self.new_at(clause, Class::Tightened, new(&listed(&gained)), gained.join(", "));
        }
        let times = |side: &[String], item: &String| side.iter().filter(|o| *o == item).count();
        for (place, item) in before.iter().enumerate() {
            let (old, new) = (times(before, item), times(after, item));
            if new > 0 && old != new && !before[..place].contains(item) {
                let says = format!(
                    "weight of `{item}` {old} → {new}: the shares of all that is drawn change"
                );
                let values = (Some(format!("{old} × {item}")), Some(format!("{new} × {item}")));
                self.push(clause, Class::Incomparable, says, values);
            }
        }
    }

    /// A drawn range: what an end no longer reaches is lost, what it newly reaches is gained.
    pub fn range(&mut self, clause: &str, what: &str, before: [i64; 2], after: [i64; 2]) {
        let values = (Some(format!("{before:?}")), Some(format!("{after:?}")));
        let span = format!("range {before:?} → {after:?}");
        for (end, [old, new], wider) in [
            ("down to ", [before[0], after[0]], after[0] < before[0]),
            ("", [before[1], after[1]], after[1] > before[1]),
        ] {
            if old == new {
                continue;
            }
            let (class, says) = if wider {
                (Class::Tightened, format!("{what} now reaches {end}{new}; {span}"))
            } else {
                (Class::Loosened, format!("{what} no longer reaches {end}{old}; {span}"))
            };
            self.push(clause, class, says, values.clone());
        }
    }

    /// Values drawn more often; those outside the other side's range went with the range.
    pub fn edges(
        &mut self,
        clause: &str,
        what: &str,
        (range_before, before): ([i64; 2], &[i64]),
        (range_after, after): ([i64; 2], &[i64]),
    ) {
        let inside = |range: [i64; 2], edge: i64| (range[0]..=range[1]).contains(&edge);
        let within = |edges: &[i64]| -> Vec<String> {
            let both = edges.iter().filter(|&&e| inside(range_before, e) && inside(range_after, e));
            both.map(i64::to_string).collect()
        };
        self.members(
            clause,
            &within(before),
            &within(after),
            &|lost| format!("edges of {what} lost: {lost}"),
            &|gained| format!("edges of {what} gained: {gained}"),
        );
    }

    /// A number that loosens as it grows.
    pub fn coefficient(&mut self, clause: &str, what: &str, before: f64, after: f64) {
        if before == after {
            return;
        }
        let class = if after > before { Class::Loosened } else { Class::Tightened };
        let (old, new) = (number(before), number(after));
        let says = format!("{what} {old} → {new}, {}", ratio(before, after));
        self.push(clause, class, says, (Some(old), Some(new)));
    }

    /// Whether one place is only another name of the other, as far as was found.
    pub fn is_renamed(&self, was: &str, is: &str) -> bool {
        self.renamed.get(was).is_some_and(|name| name == is)
    }

    /// What a place is called at the head, as far as was found.
    pub fn new_name(&self, was: &str) -> String {
        self.renamed.get(was).map_or(was, String::as_str).to_owned()
    }

    /// A place that is called otherwise at the head, of which nothing need be said.
    pub fn alias(&mut self, was: &str, is: &str) {
        if was != is {
            self.renamed.insert(was.to_owned(), is.to_owned());
            self.old_names.insert(is.to_owned(), was.to_owned());
        }
    }

    /// An entry that has only another name.
    pub fn renamed(&mut self, section: &str, old: &str, new: &str) {
        let (was, clause) = (format!("{section}.{old}"), format!("{section}.{new}"));
        self.alias(&was, &clause);
        self.changes.push(Change {
            says: format!("`{was}` is now called `{clause}`"),
            clause,
            was: Some(was),
            class: Class::Neutral,
            before: Some(old.to_owned()),
            after: Some(new.to_owned()),
            reason: None,
        });
    }
}

/// A value in backquotes; nothing at all has a word of its own.
pub fn named(value: &str) -> String {
    match value {
        "" | "null" => "nothing".to_owned(),
        value => format!("`{value}`"),
    }
}
