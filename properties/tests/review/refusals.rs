//! What cannot be compared, and what no contract's own history can explain.

use crate::trees::{Texts, base, compared};
use properties::review::{Tree, review};

#[test]
fn what_cannot_be_compared_says_where_and_why() {
    let base = base();
    let error = |before: &Texts, after: &Texts| {
        let tree = |name: &str, texts: &Texts| Tree::in_memory(name, texts.clone());
        review(&tree("base", before), &tree("head", after)).expect_err("an error").to_string()
    };
    let file = "contracts/families/scale_rows.yaml";
    let mut old = base.clone();
    let text = old[file].replace("kind: kernel\n", "kind: kernel\nrevision: 3\n");
    old.insert(file.to_owned(), text);
    assert_eq!(
        error(&old, &base),
        "base has a contract that this build's format does not read: contracts/families/scale_rows.yaml:5: revision: \
         unknown field `revision`; write `version`. It predates the format, so what changed in meaning cannot be said; \
         name a later base, or review it with the build of that commit"
    );
    let said = error(&base, &old);
    assert!(
        said.starts_with("contracts/families/scale_rows.yaml (head): line 5: revision:"),
        "{said}"
    );
    let mut none = base.clone();
    none.retain(|path, _| !path.starts_with("contracts"));
    assert!(error(&none, &base).contains("base has no contracts/"), "{}", error(&none, &base));
    let mut twice = base.clone();
    twice.insert("contracts/other/scale_rows.yaml".to_owned(), base[file].clone());
    let said = error(&base, &twice);
    assert!(
        said.starts_with("head has contracts/families/scale_rows.yaml and contracts/other/"),
        "{said}"
    );
    let mut known = base.clone();
    known.insert("corpora/known_failures.yaml".to_owned(), "- {contract: x}\n".to_owned());
    assert!(error(&base, &known).starts_with("corpora/known_failures.yaml (head):"));
    let mut elsewhere = base.clone();
    elsewhere.insert(
        "contracts/history.yaml".to_owned(),
        "- {clauses: [a.b], because: c, link: d}\n".to_owned(),
    );
    assert!(error(&base, &elsewhere).contains("`d` is no link to an issue"));
}

#[test]
fn what_no_contract_can_explain_is_explained_beside_them() {
    let base = base();
    let mut head = base.clone();
    head.remove("corpora/golden/peers.safetensors");
    assert_eq!(compared(&base, &head).unjustified(), 1);
    let entry = "- {clauses: [golden.peers], because: \"the peer's answers are of a version with a bug\", link: \"https://example.org/issues/9\"}\n";
    head.insert("contracts/history.yaml".to_owned(), entry.to_owned());
    assert_eq!(compared(&base, &head).unjustified(), 0);
    // The next change cannot lean on it.
    let mut next = head.clone();
    next.insert("corpora/golden/peers.safetensors".to_owned(), "again".to_owned());
    assert_eq!(compared(&next, &head).unjustified(), 1);
}
