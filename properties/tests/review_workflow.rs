//! The workflows around the review keep what makes them safe for forks: what runs a pull request's code
//! can write nothing, what may write runs none of it, and no text from outside becomes part of a script.

use properties::review::show::MARK;
use serde_json::Value;
use std::path::Path;

fn read(file: &str) -> (String, Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.github").join(file);
    let text = std::fs::read_to_string(&path).expect("readable");
    let tree = contracts::load::parse_yaml(&text, file).unwrap_or_else(|error| panic!("{error}"));
    (text, tree)
}

/// Every `run` script and every `uses` below a value.
fn collect<'v>(value: &'v Value, key: &str, found: &mut Vec<&'v str>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field.as_str() {
                    Some(text) if name == key => found.push(text),
                    _ => collect(field, key, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, key, found)),
        _ => {}
    }
}

fn all<'v>(tree: &'v Value, key: &str) -> Vec<&'v str> {
    let mut found = Vec::new();
    collect(tree, key, &mut found);
    found
}

#[test]
fn no_text_from_outside_is_part_of_a_script() {
    for file in [
        "workflows/contract-review.yml",
        "workflows/contract-review-comment.yml",
        "actions/contract-review/action.yml",
    ] {
        let (_, tree) = read(file);
        for script in all(&tree, "run") {
            assert!(!script.contains("${{"), "{file}: {script}");
        }
    }
}

#[test]
fn what_runs_the_pull_request_can_only_read() {
    let (text, tree) = read("workflows/contract-review.yml");
    assert_eq!(tree["on"], serde_json::json!(["pull_request"]));
    assert_eq!(tree["permissions"], serde_json::json!({"contents": "read"}));
    for job in tree["jobs"].as_object().expect("jobs").values() {
        assert!(job.get("permissions").is_none(), "a job gives itself more");
    }
    assert!(!text.contains("secrets.") && !text.contains("github.token"));
    assert!(text.contains("persist-credentials: false"));
}

#[test]
fn what_may_write_runs_nothing_of_the_pull_request() {
    let (text, tree) = read("workflows/contract-review-comment.yml");
    let triggers: Vec<&String> = tree["on"].as_object().expect("triggers").keys().collect();
    assert_eq!(triggers, ["workflow_run"]);
    assert_eq!(tree["on"]["workflow_run"]["workflows"], serde_json::json!(["contract-review"]));
    assert_eq!(read("workflows/contract-review.yml").1["name"], "contract-review");
    assert_eq!(tree["permissions"], serde_json::json!({}));
    let steps = tree["jobs"]["comment"]["steps"].as_array().expect("steps");
    let checkout = steps
        .iter()
        .find(|step| step["uses"].as_str().is_some_and(|u| u.starts_with("actions/checkout")));
    let checkout = &checkout.expect("a checkout")["with"];
    assert_eq!(checkout["ref"], "${{ github.event.repository.default_branch }}");
    assert_eq!(checkout["persist-credentials"], false);
    // The token is there where the comment is posted, and nowhere something is built or run.
    for step in steps.iter().filter(|step| step["env"].get("GH_TOKEN").is_some()) {
        let script = step["run"].as_str().expect("a script");
        assert!(!script.contains("cargo") && !script.contains("assay"), "{script}");
    }
    assert!(text.contains(MARK), "the comment is found again by its first line");
    assert!(all(&tree, "uses").iter().all(|uses| !uses.starts_with("./")));
}
