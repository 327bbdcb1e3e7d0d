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
mod judges;
mod kernels;
mod known;
mod memory;
mod pairing;
mod promises;
mod protocols;
mod runs;
mod scores;
pub mod show;
mod sides;
mod structure;
mod tables;
mod tree;

pub use change::{Change, Class, ContractReview, KernelReview, Reason, Review};
pub use exercise::CASES;
pub use git::{Git, ReviewError};
pub use history::ELSEWHERE;
pub use tree::Tree;

use contracts::format::Contract;
use corpora::Folder;
use history::{Entry, History};
use judges::Registry;
use known::Known;
use pairing::{Paired, Written};
use protocols::Protocols;
use sides::{Record, Renames, Sides};
use std::collections::BTreeSet;
use tables::Tables;

/// Compares what a change made of a base: the commit the two part at with `head`, the working tree
/// when it is not named.
pub fn review_repository(git: &Git, base: &str, head: Option<&str>) -> Result<Review, ReviewError> {
    let base_commit = git.commit(base)?;
    let head_commit = git.commit(head.unwrap_or("HEAD"))?;
    let mut notes = Vec::new();
    let bases = git.merge_bases(&base_commit, &head_commit)?;
    if let [_, _, ..] = bases.as_slice() {
        notes.push(format!(
            "`{base}` and the head part at {} commits, for merges went both ways. The first is compared with: what the head undid of the others is not in it. Merge `{base}` into the head, and compare again.",
            bases.len()
        ));
    }
    let parted = match bases.into_iter().next() {
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
    if let Some(path) = head.first_link() {
        return Err(ReviewError::File {
            tree: head.name.clone(),
            path: path.to_owned(),
            what: "it is no regular file, but a link or a submodule, which shows one thing and may be replayed as another".to_owned(),
            remedy: "put the files themselves there".to_owned(),
        });
    }
    let both = Both::read(base, head)?;
    let mut contracts: Vec<ContractReview> =
        both.pairs.iter().filter_map(|pair| both.contract(pair)).collect();
    contracts.extend(both.protocols.reviews(&both));
    contracts.extend(both.of_no_contract());
    contracts.sort_by(|a, b| a.contract.cmp(&b.contract));
    for contract in &mut contracts {
        contract.changes.sort_by_key(|change| (!change.is_unjustified(), change.class));
    }
    let of_head: Vec<&Contract> =
        both.pairs.iter().filter_map(|pair| Some(&pair.after.as_ref()?.contract)).collect();
    let linked = base.first_link().map(|path| {
        format!("`{path}` was a link or a submodule; what was behind it is not compared")
    });
    Ok(Review {
        base: base.name.clone(),
        head: head.name.clone(),
        notes: linked.into_iter().chain(judges::notes(base, head)).collect(),
        kernels: kernels::compare(base, head, &both.renames, &of_head),
        contracts,
        error: None,
    })
}

/// Two trees, with what is read of them once.
struct Both<'t> {
    base: &'t Tree<'t>,
    head: &'t Tree<'t>,
    pairs: Vec<Paired>,
    protocols: Protocols,
    renames: Renames,
    known: Known,
    tables: Tables<'t>,
    registry: Registry,
    elsewhere: History,
    /// What every history of the base says.
    said: Vec<Entry>,
}

impl<'t> Both<'t> {
    fn read(base: &'t Tree<'t>, head: &'t Tree<'t>) -> Result<Both<'t>, ReviewError> {
        let pairs = pairing::pair(base, head)?;
        let old_names = pairs.iter().filter_map(Paired::was).collect();
        let new_names = pairs.iter().filter_map(Paired::is).collect();
        let renames = pairing::renames(&pairs);
        let tables = Tables::read(base, head, (&old_names, &new_names), &renames)?;
        let elsewhere = History::elsewhere(base, head)?;
        let contracts = pairs.iter().filter_map(|pair| Some(&pair.before.as_ref()?.contract));
        let protocols = Protocols::read(base, head)?;
        let own = contracts.flat_map(|contract| &contract.history).chain(protocols.told());
        let own = own.map(Entry::from);
        let said: Vec<Entry> = own.chain(elsewhere.at_base().iter().cloned()).collect();
        Ok(Both {
            base,
            head,
            protocols,
            renames,
            known: Known::read(base, head)?,
            tables,
            registry: Registry::read(base, head),
            elsewhere: elsewhere.beside(&said),
            said,
            pairs,
        })
    }

    /// One contract; `None` when nothing of it changed.
    fn contract(&self, pair: &Paired) -> Option<ContractReview> {
        match (&pair.before, &pair.after) {
            (Some(before), Some(after)) => self.changed(before, after),
            (Some(gone), None) => Some(self.one_sided(gone, true)),
            (None, Some(new)) => Some(self.one_sided(new, false)),
            (None, None) => None,
        }
    }

    /// A contract both trees have.
    fn changed(&self, before: &Written, after: &Written) -> Option<ContractReview> {
        let (was, is) = (before.contract.contract.as_str(), after.contract.contract.as_str());
        let mut sides = Sides::new(&before.contract, &after.contract, &self.renames);
        contract::compare(&mut sides);
        let folder = |path: &str| path.rsplit_once('/').map(|(folder, _)| folder.to_owned());
        if folder(&before.path) != folder(&after.path) {
            let says = format!("moved from {} to {}", before.path, after.path);
            let values = (Some(before.path.clone()), Some(after.path.clone()));
            sides.push("contract", Class::Neutral, says, values);
        }
        let record = &mut sides.record;
        self.registry.compare(record, was, is);
        let folders = (
            Folder { tree: self.base, name: was, contract: Some(&before.contract) },
            Folder { tree: self.head, name: is, contract: Some(&after.contract) },
        );
        corpora::regressions(record, "regressions", folders.0, folders.1);
        self.known.compare(record, ("known_failures", "regressions"), was, is);
        let mutants = (&before.contract.mutants, &after.contract.mutants);
        self.tables.compare(record, (was, is), mutants);
        let mut changes = sides.record.into_changes();
        if changes.is_empty() {
            return None;
        }
        let history = History::of(&before.contract.history, &after.contract.history);
        history.beside(&self.said).judge(&mut changes);
        Some(ContractReview {
            contract: is.to_owned(),
            file: after.path.clone(),
            version: after.contract.version,
            unexercised: exercise::unexercised(&after.contract, &changes),
            changes,
        })
    }

    /// A contract only one tree has: all its clauses and cases came or went with it.
    fn one_sided(&self, written: &Written, is_gone: bool) -> ContractReview {
        let contract = &written.contract;
        let name = &contract.contract;
        let (class, tree, verb) = match is_gone {
            true => (Class::Loosened, self.base, "is gone"),
            false => (Class::Tightened, self.head, "is new"),
        };
        let mut record = Record::default();
        let clause = &format!("contracts.{name}");
        let mut say = |says: String, value: String| {
            let value = Some(value);
            let values = if is_gone { (value, None) } else { (None, value) };
            record.push(clause, class, says, values);
        };
        let ids: Vec<String> = contracts::clauses(contract).into_iter().map(|c| c.id).collect();
        let cases = match corpora::count(tree, name) {
            0 => "no stored case".to_owned(),
            1 => "1 stored case".to_owned(),
            many => format!("{many} stored cases"),
        };
        let clauses = format!("{} clauses", ids.len());
        say(format!("contract {name} of {clauses} {verb}, with {cases}"), clauses);
        // Enough on a line to be read, and no more than a comment's cell shows.
        let verb = if is_gone { "no longer promised" } else { "now promised" };
        let of_all = |id: &String| id.starts_with("house.") || id.starts_with("rejects.auto.");
        let (shared, ids): (Vec<String>, Vec<String>) = ids.into_iter().partition(of_all);
        let shared = format!("{} rules and refusals that every contract has", shared.len());
        say(format!("{verb}: {shared}"), shared);
        for group in by_section(&ids).iter().flat_map(|group| group.chunks(ON_A_LINE)) {
            say(format!("{verb}: {}", sides::listed(group)), group.join(", "));
        }
        let mut changes = record.into_changes();
        self.elsewhere.judge(&mut changes);
        ContractReview {
            contract: name.clone(),
            file: if is_gone { ELSEWHERE.to_owned() } else { written.path.clone() },
            version: contract.version,
            changes,
            unexercised: Vec::new(),
        }
    }

    /// What no contract's own history can explain: golden answers, stored cases and known failures
    /// under a name that is no contract's, rows of tables that are nobody's.
    fn of_no_contract(&self) -> Vec<ContractReview> {
        let of_kernels = self.pairs.iter().flat_map(|pair| [pair.was(), pair.is()]).flatten();
        let named: BTreeSet<&str> = of_kernels.chain(self.protocols.names()).collect();
        let mut found = vec![(String::new(), corpora::golden(self.base, self.head))];
        let mut folders = corpora::folders(self.base, self.head);
        folders.extend(self.known.contracts().map(str::to_owned));
        for folder in folders.iter().filter(|folder| !named.contains(folder.as_str())) {
            let mut record = Record::default();
            let (cases, failures) =
                (format!("corpora.{folder}"), format!("known_failures.{folder}"));
            let of = |tree| Folder { tree, name: folder, contract: None };
            corpora::regressions(&mut record, &cases, of(self.base), of(self.head));
            self.known.compare(&mut record, (&failures, &cases), folder, folder);
            found.push((folder.clone(), record.into_changes()));
        }
        let mut record = Record::default();
        self.tables.of_nobody(&mut record);
        found[0].1.extend(record.into_changes());
        let reviewed = found.into_iter().filter(|(_, changes)| !changes.is_empty());
        reviewed
            .map(|(contract, mut changes)| {
                self.elsewhere.judge(&mut changes);
                let file = ELSEWHERE.to_owned();
                ContractReview { contract, file, changes, ..ContractReview::default() }
            })
            .collect()
    }
}

/// Clauses named in one line.
const ON_A_LINE: usize = 8;

/// Clauses by their section, in order.
fn by_section(ids: &[String]) -> Vec<Vec<String>> {
    let section = |id: &str| id.split('.').next().unwrap_or(id).to_owned();
    let mut groups: Vec<Vec<String>> = Vec::new();
    for id in ids {
        match groups.iter_mut().find(|group| section(&group[0]) == section(id)) {
            Some(group) => group.push(id.clone()),
            None => groups.push(vec![id.clone()]),
        }
    }
    groups
}
