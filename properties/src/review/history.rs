//! Whether a weakening says why: an entry of the same change that names the clause itself, gives a
//! reason of its own and links an issue. An entry the base has, one that repeats its words or nearly so,
//! one that names something wider and one that says nothing do not count.

use super::change::{Change, Reason};
use super::git::ReviewError;
use super::tree::Tree;
use contracts::format::HistoryEntry;
use serde::Deserialize;
use std::collections::BTreeSet;

/// Where weakenings are explained that no contract's own history can explain any more.
pub const ELSEWHERE: &str = "contracts/history.yaml";

/// Fewest words of a reason.
const FEWEST_WORDS: usize = 4;
/// Fewest of them that say something about this change and not about any.
const FEWEST_OWN: usize = 2;
/// Share of the words of two reasons, together, from which on one is the other touched up.
const TOUCHED: f64 = 0.7;
/// The same, whatever the two are about.
const COPIED: f64 = 0.85;

/// Words that a reason for anything can be made of.
const OF_ANYTHING: &str = "a about after agreed all also an and any approved are as at be because been before better bound bounds but by can change changed changes clause contract correct could did discussed do does done fail failed fails failing fine fix fixed fixes for from good green had has have here in is issue it its just less link loosen loosened looser made make makes may merge more much must necessary need needed needs new no not now of ok okay old on only or other our pass passed passes passing please possible proper reason required review reviewed right see should simply since so some such temporary test tests than that the then there these they this to tolerance too update updated us use used value values very want was way we weaken weakened weaker well were what when which will with without work works would";

/// One entry, from a contract's history or from the file beside them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a map with clauses, because and link")]
pub struct Entry {
    clauses: Vec<String>,
    because: String,
    link: String,
}

impl From<&HistoryEntry> for Entry {
    fn from(entry: &HistoryEntry) -> Entry {
        let HistoryEntry { clauses, because, link, .. } = entry;
        Entry { clauses: clauses.clone(), because: because.clone(), link: link.clone() }
    }
}

/// A history at the base and at the head.
#[derive(Default)]
pub struct History {
    before: Vec<Entry>,
    after: Vec<Entry>,
    /// What all histories of the base say, this one's included.
    said: Vec<Entry>,
}

impl History {
    /// The same, where every other history of the base is known too: words that were said there already
    /// are no reason here.
    pub fn beside(self, said: &[Entry]) -> History {
        History { said: said.to_vec(), ..self }
    }

    /// What it said at the base.
    pub fn at_base(&self) -> &[Entry] {
        &self.before
    }

    /// Of one contract.
    pub fn of(before: &[HistoryEntry], after: &[HistoryEntry]) -> History {
        let entries = |side: &[HistoryEntry]| side.iter().map(Entry::from).collect();
        History { before: entries(before), after: entries(after), said: Vec::new() }
    }

    /// Of what belongs to no contract.
    pub fn elsewhere(base: &Tree<'_>, head: &Tree<'_>) -> Result<History, ReviewError> {
        let entries = |tree: &Tree<'_>| -> Result<Vec<Entry>, ReviewError> {
            if !tree.has(ELSEWHERE) {
                return Ok(Vec::new());
            }
            let refused = |what: String, remedy: String| ReviewError::File {
                tree: tree.name.clone(),
                path: ELSEWHERE.to_owned(),
                what,
                remedy,
            };
            let parsed = contracts::load::parse_yaml(&tree.text(ELSEWHERE)?, ELSEWHERE);
            let entries: Vec<Entry> = parsed.map_err(|error| {
                let place = error.line.map(|line| format!("line {line}: ")).unwrap_or_default();
                refused(format!("{place}{}", error.what), error.remedy)
            })?;
            match entries.iter().find(|entry| !contracts::load::is_link(&entry.link)) {
                None => Ok(entries),
                Some(entry) => Err(refused(
                    format!("`{}` is no link to an issue", entry.link),
                    "write link: https://…".to_owned(),
                )),
            }
        };
        Ok(History { before: entries(base)?, after: entries(head)?, said: Vec::new() })
    }

    /// Says of each change that needs a reason whether it has one.
    pub fn judge(&self, changes: &mut [Change]) {
        for change in changes.iter_mut().filter(|change| change.class.needs_reason()) {
            change.reason = Some(self.reason(change));
        }
    }

    fn reason(&self, change: &Change) -> Reason {
        let names = |entry: &&Entry| entry.clauses.contains(&change.clause);
        let mut why = String::new();
        for entry in self.after.iter().filter(names) {
            match self.fault(entry) {
                None => {
                    let Entry { because, link, .. } = entry.clone();
                    return Reason::Given { because, link };
                }
                Some(fault) => why = fault,
            }
        }
        let wider = |entry: &Entry| {
            entry
                .clauses
                .iter()
                .find(|named| change.clause.starts_with(&format!("{named}.")))
                .cloned()
        };
        if let (true, Some(wide)) = (why.is_empty(), self.after.iter().find_map(wider)) {
            why = format!("`{wide}` names more than `{}`", change.clause);
        }
        Reason::Missing { why }
    }

    /// Why an entry that names the clause does not count.
    fn fault(&self, entry: &Entry) -> Option<String> {
        let because = plain(&entry.because);
        if self.before.iter().any(|old| plain(&old.because) == because) {
            return Some(format!("`{}` was there before this change", entry.because));
        }
        if let Some(old) = self.before.iter().find(|old| self.is_touched_up(old, entry)) {
            return Some(format!(
                "`{}` was there before this change, as `{}`",
                entry.because, old.because
            ));
        }
        if let Some(old) = self.said.iter().find(|old| likeness(old, entry) >= COPIED) {
            return Some(format!(
                "`{}` is another history's reason, `{}`",
                entry.because, old.because
            ));
        }
        if !is_numbered(&entry.link) {
            return Some(format!("`{}` links no issue, which has a number", entry.link));
        }
        let clause_words: Vec<String> = entry.clauses.iter().map(|clause| plain(clause)).collect();
        let own = |word: &&str| {
            !clause_words.iter().any(|clause| clause.split(' ').any(|part| part == *word))
        };
        // The same word again says no more, and neither does a letter or a number.
        let said: BTreeSet<&str> =
            because.split(' ').filter(own).flat_map(words).filter(|word| is_word(word)).collect();
        let of_anything = |word: &&&str| OF_ANYTHING.split(' ').any(|other| other == **word);
        let own = said.len() - said.iter().filter(of_anything).count();
        if said.len() < FEWEST_WORDS || own < FEWEST_OWN {
            return Some(format!("`{}` gives no reason of its own", entry.because));
        }
        None
    }

    /// Whether an entry is an old one in other words, few of which are other; fewer still where it is
    /// about another clause and the old one is still there.
    fn is_touched_up(&self, old: &Entry, entry: &Entry) -> bool {
        let replaced = !self.after.contains(old);
        let shared = old.clauses.is_empty()
            || old.clauses.iter().any(|clause| entry.clauses.contains(clause));
        likeness(old, entry) >= if replaced || shared { TOUCHED } else { COPIED }
    }
}

/// Share of the words of two reasons, together, that both have.
fn likeness(a: &Entry, b: &Entry) -> f64 {
    let (a, b) = (plain(&a.because), plain(&b.because));
    let of = |text: &'_ str| text.split(' ').flat_map(words).map(str::to_owned).collect();
    let (a, b): (BTreeSet<String>, BTreeSet<String>) = (of(&a), of(&b));
    let both = a.intersection(&b).count() as f64;
    2.0 * both / (a.len() + b.len()).max(1) as f64
}

/// Whether a link is one of many that are counted: every tracker numbers its issues.
fn is_numbered(link: &str) -> bool {
    let address = link.split(['?', '#']).next().unwrap_or_default();
    let path = address.splitn(4, '/').nth(3).unwrap_or_default();
    path.contains(|c: char| c.is_ascii_digit())
}

/// A letter as it looks: without marks, and the Latin one where others look the same.
fn seen(c: char) -> Option<char> {
    const ALIKE: &str = "аaеeоoрpсcуyхxіiјjѕsһhԁdгrкkмmтtвbнhοoαaνvρpτtυuιiκk";
    match c {
        '\u{300}'..='\u{36f}' => None,
        '\u{ff21}'..='\u{ff5a}' => char::from_u32(u32::from(c) - 0xfee0),
        c if super::show::is_trick(c) => None,
        c => {
            let at = ALIKE.chars().step_by(2).position(|other| other == c);
            at.map_or(Some(c), |at| ALIKE.chars().nth(2 * at + 1))
        }
    }
}

/// Words alone, in small letters.
fn plain(text: &str) -> String {
    let text: String = text.to_lowercase().chars().filter_map(seen).collect();
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect::<Vec<_>>().join(" ")
}

/// From here on, scripts that put no space between words.
const UNSPACED: char = '\u{2e80}';

/// The words of a piece of text without spaces: one, or every character where the script has none.
fn words(piece: &str) -> Vec<&str> {
    if !piece.contains(|c: char| c >= UNSPACED) {
        return vec![piece];
    }
    piece.char_indices().map(|(at, c)| &piece[at..at + c.len_utf8()]).collect()
}

fn is_word(word: &str) -> bool {
    word.chars().filter(|c| c.is_alphabetic()).count() > 1 || word.starts_with(|c| c >= UNSPACED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(because: &str) -> Option<String> {
        let clauses = vec!["tolerance.o.bf16".to_owned()];
        let link = "https://example.org/issues/9".to_owned();
        let entry = Entry { clauses, because: because.to_owned(), link };
        History { after: vec![entry.clone()], ..History::default() }.fault(&entry)
    }

    #[test]
    fn a_reason_has_words_of_its_own() {
        for because in
            ["three roundings that nothing averages", "三次舍入没有平均", "β is rounded twice now"]
        {
            assert_eq!(fault(because), None, "{because}");
        }
        for because in [
            "x x x x",
            "1 2 3 4",
            "asdf asdf asdf asdf",
            "the tolerance of o bf16",
            "舍入",
            "",
            "this is a fine change and was discussed",
            "the tests would not pass with the old value",
        ] {
            assert!(fault(because).is_some(), "{because}");
        }
    }

    #[test]
    fn an_issue_has_a_number() {
        for link in
            ["https://e.org/a/issues/31", "https://e.org/browse/KEY-7", "http://e.org/9#top"]
        {
            assert!(is_numbered(link), "{link}");
        }
        for link in ["https://e.org/blog/why", "https://e4.org/issues/", "https://e.org/issues?n=3"]
        {
            assert!(!is_numbered(link), "{link}");
        }
    }

    #[test]
    fn a_reason_of_another_history_is_none_here() {
        let entry = |clause: &str, because: &str| Entry {
            clauses: vec![clause.to_owned()],
            because: because.to_owned(),
            link: "https://example.org/issues/9".to_owned(),
        };
        let elsewhere = entry("tolerance.s.f16", "products of the gates are summed in pairs now");
        let fault = |because: &str| {
            let new = entry("tolerance.o.bf16", because);
            let own = History { after: vec![new.clone()], ..History::default() };
            own.beside(std::slice::from_ref(&elsewhere)).fault(&new)
        };
        assert!(fault("products of the gates are summed in pairs now").is_some());
        assert!(fault("Products of gates are summed in pairs now!").is_some());
        assert_eq!(fault("products of two halves are summed in pairs, and gates later"), None);
    }

    #[test]
    fn an_old_reason_touched_up_is_an_old_reason() {
        let entry = |clause: &str, because: &str| Entry {
            clauses: vec![clause.to_owned()],
            because: because.to_owned(),
            link: "https://example.org/issues/9".to_owned(),
        };
        let old = entry(
            "tolerance.o.bf16",
            "the keys are scaled now, which rounds each operand once more",
        );
        let fault = |keeps: bool, new: &Entry| {
            let after = if keeps { vec![old.clone(), new.clone()] } else { vec![new.clone()] };
            History { before: vec![old.clone()], after, said: Vec::new() }.fault(new)
        };
        for because in [
            "the keys are scaled now, which rounds each operand once more again",
            "The keys are scaled now - which rounds every operand once more",
            "the keys are sc\u{200b}aled now, which rounds each operand once more",
            "thе kеys аrе scаlеd nоw, which rоunds еасh ореrаnd оnсе mоrе",
            "the ke\u{301}ys are\u{301} scale\u{301}d now, which rounds e\u{301}ach operand once\u{301} more",
        ] {
            assert!(fault(true, &entry("tolerance.o.bf16", because)).is_some(), "{because}");
            assert!(fault(false, &entry("tolerance.o.f16", because)).is_some(), "{because}");
        }
        // Another clause beside the old one, or another reason, is new.
        let alike = "keys of the state are scaled as well, so each operand of it rounds once more";
        assert_eq!(fault(true, &entry("tolerance.s.bf16", alike)), None);
        let other = "products of the gates are summed in another order since the split";
        assert_eq!(fault(true, &entry("tolerance.o.bf16", other)), None);
        assert_eq!(fault(false, &entry("tolerance.o.bf16", other)), None);
    }
}
