//! The rules for a contract's history: versions ascend, reasons are given, and what it says about older
//! cases leads to what the contract has today.

use crate::check::{Checked, ensure};
use crate::format::{Contract, HistoryEntry};
use crate::load::{is_link, suggestion};
use crate::migrate::{CLAUSES, DECISIONS};

pub(crate) fn check(contract: &Contract) -> Checked {
    check_reasons(&contract.history, contract.version)?;
    for (index, entry) in contract.history.iter().enumerate() {
        check_migration(contract, index, entry)?;
    }
    Ok(())
}

/// That versions ascend to `version`, and each entry says why.
pub(crate) fn check_reasons(history: &[HistoryEntry], version: u32) -> Checked {
    let mut before = 0;
    for (index, entry) in history.iter().enumerate() {
        let path = format!("history[{index}]");
        let ascending = entry.version >= before.max(1) && entry.version <= version;
        ensure(
            ascending,
            &path,
            "versions do not ascend to the contract's",
            "order the entries, newest last",
        )?;
        ensure(
            !entry.because.trim().is_empty(),
            &path,
            "no reason is given",
            "say why in `because`",
        )?;
        for (place, clause) in entry.clauses.iter().enumerate() {
            check_excused(&format!("{path}.clauses[{place}]"), clause)?;
        }
        ensure(
            entry.clauses.is_empty() || is_link(&entry.link),
            &format!("{path}.link"),
            &format!("`{}` is no link to an issue", entry.link),
            "write link: https://…, a weaker clause needs one",
        )?;
        before = entry.version;
    }
    Ok(())
}

/// One clause, not a whole section: a general excuse excuses nothing.
fn check_excused(path: &str, clause: &str) -> Checked {
    let plain = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
    };
    let parts: Vec<&str> = clause.split('.').collect();
    ensure(
        parts.len() >= 2 && parts.iter().all(|part| plain(part)),
        path,
        &format!("`{clause}` names no single clause"),
        "write it as `assay review` does: tolerance.o.bf16, dims.T, regressions.<file>",
    )
}

/// What an entry says about older cases: well-formed paths, and names that today's contract has, after
/// whatever later entries say of them.
fn check_migration(contract: &Contract, index: usize, entry: &HistoryEntry) -> Checked {
    let path = format!("history[{index}]");
    ensure(
        !entry.migrates() || entry.version > 1,
        &format!("{path}.version"),
        "no case is older than version 1",
        "raise the contract's version, and write it here",
    )?;
    let later = &contract.history[index + 1..];
    for (old, new) in &entry.renamed {
        let path = format!("{path}.renamed");
        let (section, words) = check_path(&path, old, true)?;
        let (new_section, new_words) = check_path(&path, new, true)?;
        ensure(
            section == new_section && words.len() == new_words.len() && old != new,
            &path,
            &format!("`{old}` cannot become `{new}`"),
            "give it another name in the same section",
        )?;
        let word_of_another =
            DECISIONS.contains(&section) && words.len() == 2 && words[0] != new_words[0];
        ensure(
            !word_of_another,
            &path,
            &format!("`{old}` is a word of another choice than `{new}`"),
            "rename the word alone: {options.order.rank: options.order.position}",
        )?;
        check_leads_on(contract, later, &path, new)?;
    }
    for retired in entry.retired.keys() {
        let path = format!("{path}.retired");
        let (section, words) = check_path(&path, retired, false)?;
        let here = words.len() == 1 && exists(contract, section, &words);
        let again = later
            .iter()
            .any(|e| e.added.contains_key(retired) || e.renamed.values().any(|new| new == retired));
        ensure(
            !here || again,
            &path,
            &format!("`{retired}` is still there"),
            "retire what the contract no longer has",
        )?;
    }
    for (added, value) in &entry.added {
        let path = format!("{path}.added");
        check_path(&path, added, false)?;
        ensure(
            !value.is_null(),
            &path,
            &format!("`{added}` has no value"),
            "say what older cases meant",
        )?;
        check_leads_on(contract, later, &path, added)?;
    }
    for axis in &entry.axis {
        let path = format!("{path}.axis");
        check_leads_on(contract, later, &path, &format!("tensors.{}", axis.tensor))?;
        check_leads_on(contract, later, &path, &format!("dims.{}", axis.dim))?;
    }
    Ok(())
}

/// A path's section and the names below it: one, or two for a word of a choice. Only a new name may be
/// a clause's.
fn check_path<'p>(
    path: &str,
    written: &'p str,
    renames: bool,
) -> Result<(&'p str, Vec<&'p str>), crate::check::Found> {
    let mut parts = written.split('.');
    let section = parts.next().unwrap_or_default();
    let words: Vec<&str> = parts.collect();
    let plain = |word: &&str| {
        !word.is_empty()
            && word.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
    };
    let is_clause = renames && CLAUSES.contains(&section);
    let known = DECISIONS.iter().chain(CLAUSES.iter().filter(|_| renames)).copied();
    ensure(
        DECISIONS.contains(&section) || is_clause,
        path,
        &format!("`{written}` begins with no section of a case"),
        &suggestion(section, known),
    )?;
    let is_choice = renames && matches!(section, "options" | "variants");
    let most = if is_clause { usize::MAX } else { 1 + usize::from(is_choice) };
    ensure(
        !words.is_empty() && words.len() <= most && words.iter().all(plain),
        path,
        &format!("`{written}` names nothing"),
        "write the section and the name: dims.T, tensors.o",
    )?;
    Ok((section, words))
}

/// Whether a name that cases got is today's, or a later entry speaks of it.
fn check_leads_on(
    contract: &Contract,
    later: &[HistoryEntry],
    path: &str,
    written: &str,
) -> Checked {
    let spoken = later.iter().any(|entry| {
        let choice = written.rsplit_once('.').map_or(written, |(choice, _)| choice);
        [written, choice]
            .iter()
            .any(|path| entry.renamed.contains_key(*path) || entry.retired.contains_key(*path))
    });
    let (section, words) = check_path(path, written, true)?;
    ensure(
        spoken || exists(contract, section, &words),
        path,
        &format!("the contract has no `{written}`"),
        "name what it has, or say in a later entry what became of it",
    )
}

/// Whether today's contract has this decision, word or clause.
fn exists(contract: &Contract, section: &str, words: &[&str]) -> bool {
    let Some(name) = words.first() else { return false };
    let word = words.get(1);
    match section {
        "dtypes" => contract.dtypes.contains_key(*name),
        "options" => contract
            .options
            .get(*name)
            .is_some_and(|all| word.is_none_or(|word| all.iter().any(|known| known == word))),
        "variants" => contract.variants.get(*name).is_some_and(|all| {
            word.is_none_or(|word| all.values.iter().any(|known| known.0 == *word))
        }),
        "dims" => contract.dims.contains_key(*name),
        "lists" => contract.lists.contains_key(*name),
        "scalars" => contract.scalars.contains_key(*name),
        "stores" => contract.stores.contains_key(*name),
        "tensors" => contract.tensors.contains_key(*name),
        _ => {
            let id = format!("{section}.{}", words.join("."));
            let prefix = format!("{id}.");
            crate::clause::clauses(contract)
                .iter()
                .any(|clause| clause.id == id || clause.id.starts_with(&prefix))
        }
    }
}
