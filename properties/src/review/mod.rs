//! What a change weakens, for the people who review it: contracts, stored cases, known failures, golden
//! answers, kernels and PTX of two trees compared by meaning, each change with its direction and its
//! numbers, and whether a weakening says why. Comments, order and formatting do not exist here.

mod change;
mod conditions;
mod contract;
mod corpora;
mod domains;
mod exercise;
mod git;
mod history;
mod kernels;
mod memory;
mod pairing;
mod promises;
mod runs;
pub mod show;
mod sides;
mod structure;
mod tree;

pub use change::{Change, Class, ContractReview, KernelReview, Reason, Review};
pub use exercise::CASES;
pub use git::{Git, ReviewError};
pub use history::ELSEWHERE;
pub use tree::Tree;

use contracts::format::Contract;
use history::History;
use pairing::Paired;
use sides::{Renames, Sides};

/// Compares what a change made of a base: the commit the two part at with `head`, the working tree
/// when it is not named.
pub fn review_repository(git: &Git, base: &str, head: Option<&str>) -> Result<Review, ReviewError> {
    let base_commit = git.commit(base)?;
    let head_commit = git.commit(head.unwrap_or("HEAD"))?;
    let mut notes = Vec::new();
    let parted = match git.merge_base(&base_commit, &head_commit)? {
        Some(commit) => commit,
        None if git.is_shallow() => {
            notes.push(format!(
                "This shallow clone does not hold the commit where `{base}` and the head part, so the head is compared with `{base}` itself: what changed there since shows reversed. `git fetch --unshallow` puts that right."
            ));
            base_commit.clone()
        }
        None => {
            let head = head.map_or_else(|| "HEAD".to_owned(), |head| format!("`{head}`"));
            return Err(ReviewError::Unrelated { base: base.to_owned(), head });
        }
    };
    let short = |id: &str| id.get(..10).unwrap_or(id).to_owned();
    let name = if parted == base_commit {
        format!("{base} ({})", short(&parted))
    } else {
        format!("{base} where they part ({})", short(&parted))
    };
    let before = Tree::of_commit(git, &parted, name)?;
    let after = match head {
        Some(head) => {
            Tree::of_commit(git, &head_commit, format!("{head} ({})", short(&head_commit)))?
        }
        None => Tree::working(git)?,
    };
    let mut review = review(&before, &after)?;
    notes.append(&mut review.notes);
    review.notes = notes;
    Ok(review)
}

/// Compares two trees.
pub fn review(base: &Tree<'_>, head: &Tree<'_>) -> Result<Review, ReviewError> {
    let (pairs, _) = pairing::pair(base, head)?;
    let renames = pairing::renames(&pairs);
    let known = corpora::Known::read(base, head)?;
    let edits = corpora::Edits::read(base, head)?;
    let elsewhere = History::elsewhere(base, head)?;
    let mut contracts = Vec::new();
    for pair in &pairs {
        let found = match (&pair.before, &pair.after) {
            (Some(_), Some(_)) => both(pair, (base, head), &renames, &known, &edits),
            _ => one_sided(pair, &elsewhere),
        };
        contracts.extend(found);
    }
    let mut golden = corpora::golden(base, head);
    if !golden.is_empty() {
        elsewhere.judge(&mut golden);
        contracts.push(ContractReview {
            file: ELSEWHERE.to_owned(),
            changes: golden,
            ..ContractReview::default()
        });
    }
    contracts.sort_by(|a, b| a.contract.cmp(&b.contract));
    for contract in &mut contracts {
        contract.changes.sort_by_key(|change| (!change.is_unjustified(), change.class));
    }
    let of_head: Vec<&Contract> =
        pairs.iter().filter_map(|pair| Some(&pair.after.as_ref()?.contract)).collect();
    Ok(Review {
        base: base.name.clone(),
        head: head.name.clone(),
        notes: judges_changed(base, head),
        contracts,
        kernels: kernels::compare(base, head, &renames, &of_head),
    })
}

/// A contract both trees have; `None` when nothing of it changed.
fn both(
    pair: &Paired,
    (base, head): (&Tree<'_>, &Tree<'_>),
    renames: &Renames,
    known: &corpora::Known,
    edits: &corpora::Edits,
) -> Option<ContractReview> {
    let (before, after) = (pair.before.as_ref()?, pair.after.as_ref()?);
    let (was, is) = (before.contract.contract.as_str(), after.contract.contract.as_str());
    let mut sides = Sides::new(&before.contract, &after.contract, renames);
    sides.changes = contract::compare(&before.contract, &after.contract, renames);
    let folder = |path: &str| path.rsplit_once('/').map(|(folder, _)| folder.to_owned());
    if folder(&before.path) != folder(&after.path) {
        let says = format!("moved from {} to {}", before.path, after.path);
        let values = (Some(before.path.clone()), Some(after.path.clone()));
        sides.push("contract", Class::Neutral, says, values);
    }
    corpora::regressions(&mut sides, (base, was), (head, is));
    known.compare(&mut sides, was, is);
    edits.compare(&mut sides, was, is);
    let mut changes = sides.changes;
    if changes.is_empty() {
        return None;
    }
    History::of(&before.contract.history, &after.contract.history).judge(&mut changes);
    Some(ContractReview {
        contract: is.to_owned(),
        file: after.path.clone(),
        version: after.contract.version,
        unexercised: exercise::unexercised(&after.contract, &changes),
        changes,
    })
}

/// A contract only one tree has, with all its clauses and cases.
fn one_sided(pair: &Paired, elsewhere: &History) -> Option<ContractReview> {
    let gone = pair.after.is_none();
    let written = pair.before.as_ref().or(pair.after.as_ref())?;
    let contract = &written.contract;
    let name = &contract.contract;
    let clauses = contracts::clauses(contract).len();
    let (class, verb) = match gone {
        true => (Class::Loosened, "is gone, with its stored cases"),
        false => (Class::Tightened, "is new"),
    };
    let value = Some(format!("{clauses} clauses"));
    let mut changes = vec![Change {
        clause: format!("contracts.{name}"),
        was: None,
        class,
        says: format!("contract {name} of {clauses} clauses {verb}"),
        before: value.clone().filter(|_| gone),
        after: value.filter(|_| !gone),
        reason: None,
    }];
    elsewhere.judge(&mut changes);
    Some(ContractReview {
        contract: name.clone(),
        file: if gone { ELSEWHERE.to_owned() } else { written.path.clone() },
        version: contract.version,
        changes,
        unexercised: Vec::new(),
    })
}

/// A word about changes to what judges: no comparison of contracts shows what they do.
fn judges_changed(base: &Tree<'_>, head: &Tree<'_>) -> Vec<String> {
    const MOST: usize = 6;
    let mut changed: Vec<String> = Vec::new();
    for folder in tree::JUDGES {
        let gone = base.under(folder).filter(|path| !head.has(path));
        let other = head.under(folder).filter(|path| !base.same(path, head, path));
        changed.extend(gone.chain(other).map(str::to_owned));
    }
    let shown = changed.iter().take(MOST).cloned().collect::<Vec<_>>().join(", ");
    match changed.len() {
        0 => Vec::new(),
        few if few <= MOST => vec![format!("What judges changed too, and is to be read: {shown}")],
        many => vec![format!(
            "What judges changed too, and is to be read: {shown} and {} more files",
            many - MOST
        )],
    }
}
