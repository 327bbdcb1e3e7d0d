//! Kernels whose source changed, the contracts that judge them, and PTX that does not belong to it: one
//! changed without the other.

use super::change::KernelReview;
use super::sides::Renames;
use super::tree::Tree;
use contracts::format::Contract;
use kernels::ptx::sources::closure;
use std::collections::{BTreeMap, BTreeSet};

const SOURCES: &str = "kernels/cuda";
const PTX: &str = "kernels/ptx";

/// Kernels of a tree: name to the `.cu` under the source root.
fn kernels(tree: &Tree<'_>) -> BTreeMap<String, String> {
    let source = |path: &str| {
        let name = path.strip_prefix(SOURCES)?.strip_prefix('/')?;
        let stem = name.rsplit('/').next()?.strip_suffix(".cu")?;
        Some((stem.to_owned(), name.to_owned()))
    };
    tree.under(SOURCES).filter_map(source).collect()
}

/// Every kernel that changed, by its name at the head; `contracts` are the head's.
pub fn compare(
    base: &Tree<'_>,
    head: &Tree<'_>,
    renames: &Renames,
    contracts: &[&Contract],
) -> Vec<KernelReview> {
    let (before, after) = (kernels(base), kernels(head));
    let renamed: BTreeMap<&str, &str> =
        renames.iter().map(|(was, is)| (is.as_str(), was.as_str())).collect();
    let was = |name: &str| renamed.get(name).copied().unwrap_or(name).to_owned();
    let gone =
        before.keys().filter(|name| !after.contains_key(*name) && !renames.contains_key(*name));
    let ptx = |tree: &Tree<'_>| -> Vec<String> {
        let stem = |path: &str| path[PTX.len() + 1..].strip_suffix(".ptx").map(str::to_owned);
        tree.under(PTX).filter_map(stem).collect()
    };
    let names: BTreeSet<String> = after.keys().chain(gone).cloned().chain(ptx(head)).collect();
    let mut all = Vec::new();
    for name in names {
        let old = was(&name);
        let sources = changed_sources(base, head, before.get(&old), after.get(&name));
        let (old_ptx, new_ptx) = (format!("{PTX}/{old}.ptx"), format!("{PTX}/{name}.ptx"));
        let ptx_same = base.same(&old_ptx, head, &new_ptx);
        if sources.is_empty() && ptx_same {
            continue;
        }
        let mismatch = match (sources.is_empty(), ptx_same) {
            (false, true) if !head.has(&new_ptx) && !base.has(&old_ptx) => {
                Some("it has no PTX".to_owned())
            }
            (false, true) => Some(format!(
                "its source changed and its PTX did not: cargo run --release -- compile {name}"
            )),
            (true, false) => Some(ptx_alone(base, &old_ptx, head, &new_ptx)),
            _ => None,
        };
        let judged_by = judges(&name, contracts);
        all.push(KernelReview { kernel: name, sources, judged_by, mismatch });
    }
    all
}

/// Every file that some kernel of a tree is made of.
pub fn sources(tree: &Tree<'_>) -> BTreeSet<String> {
    let all = kernels(tree).into_values().flat_map(|source| made_of(tree, &source));
    all.map(|name| format!("{SOURCES}/{name}")).collect()
}

/// A source and what it includes.
fn made_of(tree: &Tree<'_>, name: &str) -> BTreeSet<String> {
    let text = |name: &str| {
        let path = format!("{SOURCES}/{name}");
        if tree.has(&path) { tree.text(&path).ok() } else { None }
    };
    closure(name, &text)
}

/// Files of a kernel's source that are new, gone or different, headers included.
fn changed_sources(
    base: &Tree<'_>,
    head: &Tree<'_>,
    old: Option<&String>,
    new: Option<&String>,
) -> Vec<String> {
    let full = |name: &str| format!("{SOURCES}/{name}");
    let files = |tree: &Tree<'_>, name: Option<&String>| -> BTreeSet<String> {
        name.map(|name| made_of(tree, name)).unwrap_or_default()
    };
    let (before, after) = (files(base, old), files(head, new));
    let mut changed: Vec<String> = before
        .union(&after)
        .filter(|name| !base.same(&full(name), head, &full(name)))
        .map(|name| full(name))
        .collect();
    // A kernel that only has another name kept its source.
    if let (Some(old), Some(new)) = (old, new)
        && old != new
        && base.same(&full(old), head, &full(new))
    {
        changed.retain(|name| *name != full(old) && *name != full(new));
    }
    changed
}

/// What a PTX file says of itself in its first line, but for the hash of its source.
fn made_by(tree: &Tree<'_>, path: &str) -> Option<String> {
    let text = tree.text(path).ok()?;
    let words = text.lines().next()?.split(' ').filter(|word| !word.starts_with("source="));
    Some(words.collect::<Vec<_>>().join(" "))
}

fn ptx_alone(base: &Tree<'_>, old: &str, head: &Tree<'_>, new: &str) -> String {
    if !head.has(new) {
        return "its PTX is gone and its source is not".to_owned();
    }
    match (made_by(base, old), made_by(head, new)) {
        (Some(a), Some(b)) if a != b => {
            format!("its PTX changed and its source did not; made by `{b}`, before by `{a}`")
        }
        _ => "its PTX changed and its source did not: cargo run --release -- compile --check"
            .to_owned(),
    }
}

/// Contracts that run a kernel: its own, also where a variant has a module to itself, `CONTRACT_WORD`, and
/// those that compare theirs with it.
fn judges(kernel: &str, contracts: &[&Contract]) -> Vec<String> {
    let is_own = |contract: &Contract| {
        let word = kernel.strip_prefix(&*contract.contract);
        let is_word = |word: &str| {
            contract.variants.values().any(|variant| variant.values.iter().any(|one| one.0 == word))
        };
        word.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('_').is_some_and(is_word))
    };
    let compares = |contract: &Contract| {
        let equals = contract.relations.values().filter_map(|relation| relation.equals.as_ref());
        equals.map(|equals| equals.contract.as_str()).any(|name| name == kernel)
    };
    let own = contracts.iter().filter(|c| is_own(c));
    let others = contracts.iter().filter(|c| !is_own(c) && compares(c));
    own.chain(others).map(|contract| contract.contract.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variants_own_module_is_judged_by_the_contract() {
        let all: Vec<&Contract> = contracts::builtin().iter().collect();
        assert_eq!(judges("gdn_chunk_hopper", &all), ["gdn_chunk"]);
        assert!(judges("gdn_chunk_sideways", &all).is_empty());
        assert!(judges("gdn_chunkhopper", &all).is_empty());
        assert!(judges("gdn_decode", &all).len() > 1, "others compare theirs with it");
    }
}
