//! Changes of a protocol: each kind has its direction and its words, the way back mirrors it, a weakening
//! needs a reason, and histories and protocols that come or go are seen.

use properties::review::{Class, Review, Tree, review};

const PATH: &str = "contracts/transaction/speculative_round.yaml";

fn shipped() -> &'static str {
    contracts::source("speculative_round").expect("a source")
}

/// A tree of this protocol, one contract of a kernel beside it, and a stored history.
fn tree(name: &str, protocol: Option<&str>, histories: &[&str]) -> Tree<'static> {
    let kernel = "contracts/selection/argmax_rows.yaml".to_owned();
    let mut files = vec![(kernel, contracts::source("argmax_rows").expect("a source").to_owned())];
    files.extend(protocol.map(|text| (PATH.to_owned(), text.to_owned())));
    for history in histories {
        files.push((
            format!("corpora/speculative_round/{history}.yaml"),
            format!("script: {history}\n"),
        ));
    }
    Tree::in_memory(name, files)
}

fn between(before: &Tree<'_>, after: &Tree<'_>) -> Review {
    review(before, after).unwrap_or_else(|error| panic!("{error}"))
}

fn edited(from: &str, to: &str) -> String {
    assert!(shipped().contains(from), "{from}");
    shipped().replacen(from, to, 1)
}

#[test]
fn every_kind_of_change_has_its_direction_and_its_mirror() {
    use Class::{Incomparable, Loosened, Neutral, Tightened};
    for (from, to, class, clause, says) in [
        ("[f32, f16]", "[f32]", Loosened, "dtypes.state", "no longer takes `f16`"),
        (
            "[checkpoint, snapshot, write_on_accept]",
            "[checkpoint, write_on_accept]",
            Loosened,
            "options.rollback",
            "`snapshot`",
        ),
        (
            "sequences:        {range: [1, 3]}",
            "sequences:        {range: [1, 2]}",
            Loosened,
            "dims.sequences",
            "no longer reaches 3",
        ),
        (
            "capacity:         {range: [4, 24]}",
            "capacity:         {range: [4, 32]}",
            Tightened,
            "dims.capacity",
            "now reaches 32",
        ),
        ("broken:   {refuses: broken}", "broken:   {}", Incomparable, "states.broken", "refuses"),
        (
            "drop:    {from: [open, staged, failed]",
            "drop:    {from: [open, staged]",
            Incomparable,
            "events.drop.from",
            "legal",
        ),
        (
            "begin:   {from: [idle], to: open",
            "begin:   {from: [idle], to: staged",
            Incomparable,
            "events.begin.to",
            "leads",
        ),
        (
            "to: staged, by_ticket: true",
            "to: staged",
            Incomparable,
            "events.verify.by_ticket",
            "names a round",
        ),
        (
            "rows: {range: [2, 10]}",
            "rows: {range: [2, 8]}",
            Loosened,
            "events.begin.rows",
            "no longer reaches 10",
        ),
        (
            "rows: \"rows >= 2 and rows <= 10\", ",
            "",
            Loosened,
            "events.begin.requires.rows",
            "no longer have rows",
        ),
        (
            "rows <= verify_rows",
            "rows <= verify_rows + 1",
            Incomparable,
            "events.commit.requires.rows",
            "refused by rows",
        ),
        (
            "publishes: \"1\"",
            "publishes: \"2\"",
            Incomparable,
            "events.decode.publishes",
            "publishes",
        ),
        ("launches: 6", "launches: 2", Loosened, "events.verify.failing", "6 → 2"),
        (
            ", failing: {launches: 6, once: failed, lasting: failed}",
            "",
            Loosened,
            "events.verify.failing",
            "no launch",
        ),
        (", empties: true", "", Incomparable, "events.acquire.empties", "empties"),
        (
            "  fresh_slot:       a slot taken again is as good as new\n",
            "",
            Loosened,
            "invariants.fresh_slot",
            "no longer have",
        ),
        ("is as good as new", "is as new", Neutral, "invariants.fresh_slot", "as good as new"),
        ("events: 40", "events: 20", Loosened, "limits.events", "40 → 20"),
        ("illegal_one_in: 10", "illegal_one_in: 20", Loosened, "limits.illegal_one_in", "10 → 20"),
        (
            "  drop_is_noop:             {killed_by: [restores]}\n",
            "",
            Loosened,
            "mutants.drop_is_noop",
            "no longer have",
        ),
        (
            "kv_tail_read:             {killed_by: [rejected_dead]}",
            "kv_tail_read:             {killed_by: [rejected_dead, happens]}",
            Loosened,
            "mutants.kv_tail_read",
            "happens too",
        ),
    ] {
        let mut text = edited(from, to);
        if clause == "invariants.fresh_slot" && to.is_empty() {
            text = text.replace("  slot_reuse_leaks:         {killed_by: [fresh_slot]}\n", "");
        }
        let (base, head) = (tree("base", Some(shipped()), &[]), tree("head", Some(&text), &[]));
        let found = between(&base, &head);
        let changes: Vec<_> = found.changes().collect();
        let seen = changes.iter().find(|(contract, change)| {
            contract.contract == "speculative_round"
                && (change.class, change.clause.as_str()) == (class, clause)
                && change.says.contains(says)
        });
        assert!(seen.is_some(), "{from} → {to}: {changes:#?}");
        assert_eq!(found.unjustified() > 0, class.needs_reason(), "{from} → {to}");
        let back = between(&head, &base);
        let classes = |review: &Review| {
            let mut all: Vec<_> =
                review.changes().map(|(_, change)| (change.clause.clone(), change.class)).collect();
            all.sort();
            all
        };
        let mut mirrored = classes(&back);
        mirrored.iter_mut().for_each(|(_, class)| *class = class.mirrored());
        mirrored.sort();
        assert_eq!(mirrored, classes(&found), "{from} → {to}");
    }
}

#[test]
fn comments_and_order_are_nothing() {
    let text = edited("# A speculative round", "# Some round");
    let text =
        text.replace("  idle:     {}\n  open:     {}\n", "  idle: {}\n\n  open: {}   # open\n");
    let found = between(&tree("base", Some(shipped()), &[]), &tree("head", Some(&text), &[]));
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_reason_in_its_history_lets_a_weakening_pass() {
    let weak = edited("launches: 6", "launches: 2");
    let entry = "history:\n  - {version: 1, clauses: [events.verify.failing], because: \"the last four launches are those of layers no model of ours has\", link: \"https://example.org/issues/9\"}";
    let told = weak.replace("history: []", entry);
    let base = tree("base", Some(shipped()), &[]);
    assert_eq!(between(&base, &tree("head", Some(&weak), &[])).unjustified(), 1);
    assert_eq!(between(&base, &tree("head", Some(&told), &[])).unjustified(), 0);
}

#[test]
fn histories_and_protocols_that_go_are_seen() {
    let whole = tree("base", Some(shipped()), &["a", "b"]);
    let found = between(&whole, &tree("head", Some(shipped()), &["a"]));
    let (contract, change) = found.changes().next().expect("a change");
    assert_eq!((contract.contract.as_str(), change.class), ("speculative_round", Class::Loosened));
    assert!(change.says.contains("regression b.yaml deleted") && found.unjustified() == 1);
    let gone = between(&whole, &tree("head", None, &["a", "b"]));
    let says: Vec<&str> = gone.changes().map(|(_, change)| change.says.as_str()).collect();
    assert!(
        says[0].contains("protocol speculative_round of 9 events, 15 invariants, 30 wrong"),
        "{says:?}"
    );
    assert!(gone.unjustified() > 0);
    let new = between(&tree("base", None, &[]), &tree("head", Some(shipped()), &[]));
    assert_eq!((new.count(Class::Tightened), new.unjustified()), (1, 0));
}

#[test]
fn a_protocol_that_goes_is_explained_beside_the_contracts() {
    let whole = tree("base", Some(shipped()), &[]);
    let kernel = contracts::source("argmax_rows").expect("a source");
    let entry = "- {clauses: [contracts.speculative_round], because: \"rounds are the scheduler's now, which has a protocol of its own\", link: \"https://example.org/issues/9\"}\n";
    let with = |history: &str| {
        let files =
            [("contracts/selection/argmax_rows.yaml", kernel), ("contracts/history.yaml", history)];
        Tree::in_memory("head", files.map(|(path, text)| (path.to_owned(), text.to_owned())))
    };
    assert_eq!(between(&whole, &with("[]\n")).unjustified(), 1);
    assert_eq!(between(&whole, &with(entry)).unjustified(), 0);
}

/// A protocol that nothing embeds judges nothing, and two files of one name are one contract.
#[test]
fn a_protocol_hides_in_no_registry_and_behind_no_other_file() {
    let kernel = contracts::source("argmax_rows").expect("a source");
    let tree = |name: &str, embedded: &str, more: Option<(&str, &str)>| {
        let registry = format!("const PROTOCOLS: &[Source] = embed! {{ {embedded} }};\n");
        let files = [
            ("contracts/selection/argmax_rows.yaml", kernel),
            (PATH, shipped()),
            ("contracts/src/builtin.rs", registry.as_str()),
        ];
        let files = files.into_iter().chain(more);
        let files = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
        Tree::in_memory(name, files.collect::<Vec<_>>())
    };
    let base = tree("base", "transaction { speculative_round }", None);
    let lost = between(&base, &tree("head", "transaction { }", None));
    let (_, change) = lost.changes().next().expect("a change");
    assert_eq!(
        (change.class, change.clause.as_str()),
        (Class::Loosened, "registry.speculative_round")
    );
    assert_eq!(lost.unjustified(), 1);
    let weak = edited("launches: 6", "launches: 2");
    for other in [weak.as_str(), kernel] {
        let more = Some(("contracts/another/speculative_round.yaml", other));
        let twice = tree("head", "transaction { speculative_round }", more);
        let error = review(&base, &twice).expect_err("an error").to_string();
        assert!(error.contains("a contract has one file"), "{error}");
    }
}

#[test]
fn a_protocol_that_does_not_load_names_its_file() {
    let head = tree("head", Some(&edited("events: 40", "events: forty")), &[]);
    let error = review(&tree("base", Some(shipped()), &[]), &head).expect_err("an error");
    let error = error.to_string();
    assert!(error.contains(PATH), "{error}");
}
