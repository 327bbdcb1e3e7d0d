//! What judges, where no comparison of contracts shows what a change does: the registry of contracts,
//! whose loss of a name is looser, and all other files of the tree, of which a reader is told.

use super::change::Class;
use super::kernels;
use super::sides::Record;
use super::tree::Tree;
use std::collections::BTreeSet;

/// Where the names of all contracts stand.
const REGISTRY: &str = "contracts/src/builtin.rs";
/// The steps that a change must pass.
const STEPS: &str = ".ci/run";
/// Most files that are named in one note.
const MOST: usize = 8;
/// Most characters of their names: a comment cuts what is longer.
const MOST_CHARS: usize = 240;
/// Most characters of one of them.
const MOST_OF_A_NAME: usize = 100;

/// What files are told together, what decides most first: many of one kind hide none of another.
const KINDS: [&str; 5] = [
    "steps, settings and this project's own files",
    "references",
    "tests",
    "the format, generators, oracles and this review",
    "launches, the machine, fuzz targets and all else",
];

/// The contracts that something judges by, in both trees; none where there is no registry to read.
pub struct Registry {
    before: Names,
    after: Names,
}

/// The names that a registry holds.
#[derive(Default)]
struct Names {
    /// Of the project's kernels: `registry!`.
    kernels: BTreeSet<String>,
    /// Of protocols, the canary and test kernels: `embed!`.
    embedded: BTreeSet<String>,
}

impl Registry {
    /// Of two trees.
    pub fn read(base: &Tree<'_>, head: &Tree<'_>) -> Registry {
        let names = |tree: &Tree<'_>| {
            let text = tree.has(REGISTRY).then(|| tree.text(REGISTRY).ok()).flatten();
            text.map(|text| Names::of(&text)).unwrap_or_default()
        };
        Registry { before: names(base), after: names(head) }
    }

    /// A contract both trees have, and only one judges by.
    pub fn compare(&self, record: &mut Record, was: &str, is: &str) {
        let clause = &format!("registry.{is}");
        record.alias(&format!("registry.{was}"), clause);
        let (before, after) = (&self.before, &self.after);
        for (old, new, lost, gained) in [
            (
                before.kernels.contains(was),
                after.kernels.contains(is),
                "is in no registry any more: nothing judges by it",
                "is in the registry now: its kernel is judged by it",
            ),
            (
                before.embedded.contains(was),
                after.embedded.contains(is),
                "is embedded no more: no test has it",
                "is embedded now: tests have it",
            ),
        ] {
            match (old, new) {
                (true, false) => {
                    record.gone(clause, Class::Loosened, format!("{is} {lost}"), was.to_owned());
                }
                (false, true) => {
                    record.new_at(
                        clause,
                        Class::Tightened,
                        format!("{is} {gained}"),
                        is.to_owned(),
                    );
                }
                _ => {}
            }
        }
    }
}

impl Names {
    /// Of `registry! { family { name … } … }` and every `embed! { family { name … } … }`.
    fn of(text: &str) -> Names {
        let text = uncommented(text);
        let registry = text.split_once("macro_rules! registry");
        let kernels = registry.and_then(|(_, rest)| Some(rest.split_once("$callback!")?.1));
        let embedded =
            text.split("embed!").skip(1).filter(|rest| rest.trim_start().starts_with('{'));
        Names {
            kernels: kernels.map(grouped).unwrap_or_default(),
            embedded: embedded.flat_map(grouped).collect(),
        }
    }
}

/// The names in the next `{ family { name … } … }`.
fn grouped(text: &str) -> BTreeSet<String> {
    let (mut depth, mut names) = (0, BTreeSet::new());
    let mut word = String::new();
    for c in text.chars() {
        if c.is_alphanumeric() || c == '_' {
            word.push(c);
            continue;
        }
        if depth == 2 && !word.is_empty() {
            names.insert(word.clone());
        }
        word.clear();
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth <= 0 && c == '}' {
            break;
        }
    }
    names
}

/// Rust without its comments, as far as names in a macro's body go.
fn uncommented(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("/*") {
        let line = rest.find("//").unwrap_or(rest.len());
        if line < at {
            let end = rest[line..].find('\n').map_or(rest.len(), |end| line + end);
            out.push_str(&rest[..line]);
            rest = &rest[end..];
        } else {
            out.push_str(&rest[..at]);
            rest = rest[at..].find("*/").map_or("", |end| &rest[at + end + 2..]);
        }
    }
    out.push_str(rest);
    let code = out.lines().map(|line| line.split("//").next().unwrap_or(line));
    code.collect::<Vec<_>>().join("\n")
}

/// Words about changes to what judges.
pub fn notes(base: &Tree<'_>, head: &Tree<'_>) -> Vec<String> {
    let changed = changed(base, head);
    let names: Vec<&str> = changed.iter().map(|(.., name)| name.as_str()).collect();
    let mut notes = Vec::new();
    match listed(&names) {
        (_, _) if names.is_empty() => return notes,
        (all, 0) => notes.push(format!("What judges changed too, and is to be read: {all}")),
        _ => notes.extend(KINDS.iter().enumerate().filter_map(|(kind, of)| {
            let own = changed.iter().filter(|(own, ..)| *own == kind);
            let names: Vec<&str> = own.map(|(.., name)| name.as_str()).collect();
            let (some, more) = listed(&names);
            let more = if more == 0 { String::new() } else { format!(" and {more} more files") };
            let says = format!("What judges changed too, and is to be read, {of}: {some}{more}");
            (!names.is_empty()).then_some(says)
        })),
    }
    notes.extend(tests(base, head));
    notes.extend(steps(base, head));
    notes
}

/// The files that judge and changed, with their kind: what is gone first, then what was edited; what is
/// new takes nothing away.
fn changed(base: &Tree<'_>, head: &Tree<'_>) -> Vec<(usize, u8, String)> {
    let sources = [base, head].map(kernels::sources);
    let judges = |path: &&str| is_judge(path) && !sources.iter().any(|all| all.contains(*path));
    let gone = base.paths().filter(judges).filter(|path| !head.has(path));
    let gone = gone.map(|path| (kind(path), 0, format!("{} (deleted)", shortened(path))));
    let other = head.paths().filter(judges).filter(|path| !base.same(path, head, path));
    let other = other.map(|path| (kind(path), 1 + u8::from(!base.has(path)), shortened(path)));
    let mut all: Vec<_> = gone.chain(other).collect();
    all.sort();
    all
}

/// As many names as a note holds, and how many are left out.
fn listed(names: &[&str]) -> (String, usize) {
    let mut text = String::new();
    for (place, name) in names.iter().enumerate() {
        let is_full = text.chars().count() + name.chars().count() > MOST_CHARS;
        if place == MOST || (is_full && place > 0) {
            return (text, names.len() - place);
        }
        text.push_str(if place == 0 { "" } else { ", " });
        text.push_str(name);
    }
    (text, 0)
}

/// A path whose middle is left out where it is long.
fn shortened(path: &str) -> String {
    let chars: Vec<char> = path.chars().collect();
    if chars.len() <= MOST_OF_A_NAME {
        return path.to_owned();
    }
    let (begin, end) = (&chars[..MOST_OF_A_NAME / 2], &chars[chars.len() - MOST_OF_A_NAME / 2..]);
    format!("{}…{}", begin.iter().collect::<String>(), end.iter().collect::<String>())
}

/// Whether a file has a say without being compared: all but what is compared and what is only read.
/// Sources of kernels are told with their kernels, where a kernel includes them.
fn is_judge(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["corpora", "golden", .., file] => file.ends_with(".md"),
        ["corpora", "known_failures.yaml" | "mutation.md"] => false,
        ["corpora", _, file] => file.starts_with('.') || !file.ends_with(".yaml"),
        ["corpora", ..] => true,
        ["kernels", "cuda", "mutants.tsv" | "equivalent.tsv" | "spills.tsv"] => false,
        ["kernels", "ptx", "resources.tsv"] => false,
        ["kernels", "ptx", .., file] => !file.ends_with(".ptx"),
        ["kernels", "bench", ..] => false,
        [.., file] => {
            let is_read = file.ends_with(".md") || path.starts_with("LICENSE");
            !is_read && !is_contract(path) && path != super::ELSEWHERE
        }
        [] => false,
    }
}

/// Whether a path is a contract's: `contracts/<family>/<kernel>.yaml`.
pub fn is_contract(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(parts.as_slice(), ["contracts", family, file]
        if !["src", "tests"].contains(family) && file.ends_with(".yaml"))
}

/// Its place in `KINDS`.
fn kind(path: &str) -> usize {
    let begins = |with: &str| path.starts_with(with);
    match () {
        () if begins(".") || !path.contains('/') => 0,
        () if begins("reference/") && !path.contains("/tests/") => 1,
        () if path.contains("/tests/") => 2,
        () if begins("properties/") || begins("contracts/") => 3,
        () => 4,
    }
}

/// Tests fewer, and tests that no longer run, over all Rust files.
fn tests(base: &Tree<'_>, head: &Tree<'_>) -> Option<String> {
    let count = |tree: &Tree<'_>, other: &Tree<'_>| {
        let differs = |path: &&str| path.ends_with(".rs") && !tree.same(path, other, path);
        let texts = tree.paths().filter(differs).filter_map(|path| tree.text(path).ok());
        texts.fold((0_usize, 0_usize), |(tests, ignored), text| {
            let lines = |with: &str| {
                text.lines().filter(|line| line.trim_start().starts_with(with)).count()
            };
            (tests + lines("#[test]"), ignored + lines("#[ignore"))
        })
    };
    let ((old, old_ignored), (new, new_ignored)) = (count(base, head), count(head, base));
    let fewer = (new < old).then(|| format!("{} fewer `#[test]`", old - new));
    let ignored = (new_ignored > old_ignored)
        .then(|| format!("{} more `#[ignore]`", new_ignored - old_ignored));
    let parts: Vec<String> = [fewer, ignored].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("Tests: {}", parts.join(", ")))
}

/// Steps that a change need no longer pass.
fn steps(base: &Tree<'_>, head: &Tree<'_>) -> Option<String> {
    let lines = |tree: &Tree<'_>| -> Vec<String> {
        let text =
            if tree.has(STEPS) { tree.text(STEPS).unwrap_or_default() } else { String::new() };
        let steps = text.lines().map(str::trim).filter(|line| line.starts_with("step "));
        steps.map(str::to_owned).collect()
    };
    if base.same(STEPS, head, STEPS) {
        return None;
    }
    let after = lines(head);
    let gone: Vec<String> = lines(base).into_iter().filter(|step| !after.contains(step)).collect();
    (!gone.is_empty()).then(|| format!("{STEPS} no longer does: {}", gone.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_is_read_without_its_comments() {
        let text = "macro_rules! registry {\n ($callback:ident) => { $callback! {\n first { one two } // third { three }\n /* fourth { four } */ second { five /* six */ }\n } };\n}\nmacro_rules! embed { ($a:ident { $b:ident }) => { c { d } } }\nconst A: X = embed! { e { seven } f { eight } };\nconst B: X = embed!{ g { nine } /* ten */ };\nconst C: X = registry!(embed);";
        let names = Names::of(text);
        let of = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(" ");
        assert_eq!(of(&names.kernels), "five one two");
        assert_eq!(of(&names.embedded), "eight nine seven");
        assert_eq!(of(&Names::of("const A: u8 = 1;").kernels), "");
        let own = std::fs::read_to_string(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../contracts/src/builtin.rs"
        ));
        let own = Names::of(&own.expect("readable"));
        let shipped: BTreeSet<String> =
            contracts::builtin().iter().map(|contract| contract.contract.clone()).collect();
        assert_eq!(own.kernels, shipped);
        let protocols = contracts::protocols().map(|protocol| &protocol.contract);
        let tests = contracts::test_kernels().iter().map(|contract| &contract.contract);
        assert!(
            protocols.chain(tests).all(|name| own.embedded.contains(name)),
            "{}",
            of(&own.embedded)
        );
    }
}
