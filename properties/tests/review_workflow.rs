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
    // Nothing of the default branch's is used but the command, and no archive is unpacked: one file of it
    // is read, of limited size, whatever paths the others name.
    let uses = all(&tree, "uses");
    assert!(uses.iter().all(|uses| uses.starts_with("actions/checkout@")), "{uses:?}");
    let scripts = all(&tree, "run").join("\n");
    for line in scripts.lines().filter(|line| line.contains("unzip")) {
        assert!(line.contains("unzip -p") && line.contains("| head -c "), "{line}");
    }
    assert!(scripts.contains("unzip -p"), "{scripts}");
}

/// The scripts themselves, run by the shell they are for, as GitHub calls it.
#[cfg(all(unix, feature = "command"))]
mod scripts {
    use super::{MARK, read};
    use serde_json::Value;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;
    use std::process::Command;
    use tempfile::TempDir;

    const ASSAY: &str = env!("CARGO_BIN_EXE_assay");

    fn script(tree: &Value, of: impl Fn(&Value) -> bool) -> String {
        fn find(value: &Value, of: &impl Fn(&Value) -> bool) -> Option<String> {
            match value {
                Value::Object(fields) => {
                    let own = value["run"].as_str().filter(|_| of(value)).map(str::to_owned);
                    own.or_else(|| fields.values().find_map(|field| find(field, of)))
                }
                Value::Array(items) => items.iter().find_map(|item| find(item, of)),
                _ => None,
            }
        }
        find(tree, &of).expect("a step with this script")
    }

    /// Runs a script in a folder; its exit code and what it printed.
    fn run(folder: &Path, script: &str, variables: &[(&str, &str)]) -> (i32, String) {
        let mut shell = Command::new("bash");
        shell.args(["--noprofile", "--norc", "-eo", "pipefail", "-c", script]);
        shell.current_dir(folder).envs(variables.iter().copied());
        let path = std::env::var("PATH").unwrap_or_default();
        let said = shell.env("PATH", format!("{}:{path}", folder.join("bin").display()));
        let said = said.output().expect("bash");
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        (said.status.code().expect("an exit code"), text)
    }

    /// A folder in which building is done at once, and has made this command.
    fn workspace() -> TempDir {
        let folder = TempDir::new().expect("a folder");
        std::fs::create_dir_all(folder.path().join("target/release")).expect("a folder");
        std::fs::create_dir(folder.path().join("bin")).expect("a folder");
        symlink(ASSAY, folder.path().join("target/release/assay")).expect("a link");
        for tool in ["rustup", "cargo"] {
            let file = folder.path().join("bin").join(tool);
            std::fs::write(&file, "#!/bin/sh\n").expect("written");
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).expect("runs");
        }
        folder
    }

    #[test]
    fn every_end_of_a_review_has_its_comment() {
        let (_, tree) = read("workflows/contract-review-comment.yml");
        let script = script(&tree, |step| step["name"] == "Render");
        let clean = r#"{"base":"a","head":"b","notes":[],"contracts":[],"kernels":[]}"#;
        let weaker = r#"{"base":"a","head":"b","contracts":[{"contract":"c","file":"f","version":1,"changes":[{"clause":"x.y","class":"loosened","says":"<b>","reason":{"missing":{"why":""}}}]}],"kernels":[]}"#;
        let failed = r#"{"base":"","head":"","contracts":[],"kernels":[],"error":"x <i>"}"#;
        for (report, title) in [
            (Some(clean), "### Contract review: nothing is weaker\n"),
            (Some(weaker), "### Contract review: 1 change is weaker without a reason\n"),
            (Some(failed), "### Contract review: nothing could be compared\n\nx &lt;i&gt;\n"),
            (Some("no report"), "left no report that can be read"),
            (Some(""), "left no report that can be read"),
            (
                None,
                "The job came to `failure` and left no report that can be read: https://example.org/runs/1",
            ),
        ] {
            let folder = workspace();
            let (json, comment) = (folder.path().join("r.json"), folder.path().join("c.md"));
            if let Some(report) = report {
                std::fs::write(&json, report).expect("written");
            }
            let variables = [
                ("REPORT", json.to_str().expect("text")),
                ("COMMENT", comment.to_str().expect("text")),
                ("CONCLUSION", "failure"),
                ("PAGE", "https://example.org/runs/1"),
            ];
            let (code, _) = run(folder.path(), &script, &variables);
            assert_eq!(code, 0, "{report:?}");
            let comment = std::fs::read_to_string(&comment).expect("a comment");
            assert!(comment.starts_with(&format!("{MARK}\n")), "{report:?}: {comment}");
            assert!(comment.contains(title), "{report:?}: {comment}");
        }
    }

    #[test]
    fn the_action_fails_as_the_review_does_and_leaves_its_report() {
        let (_, tree) = read("actions/contract-review/action.yml");
        let script = script(&tree, |step| step["env"].get("ASSAY").is_some());
        let folder = workspace();
        let git = |arguments: &[&str]| {
            let mut git = Command::new("git");
            git.arg("-C").arg(folder.path()).args(["-c", "user.name=a", "-c", "user.email=a@b.c"]);
            assert!(git.args(arguments).output().expect("git").status.success(), "{arguments:?}");
        };
        let contract = folder.path().join("contracts/families/sum_rows.yaml");
        let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/review/base");
        let text =
            std::fs::read_to_string(base.join("contracts/families/sum_rows.yaml")).expect("text");
        std::fs::create_dir_all(contract.parent().expect("a folder")).expect("a folder");
        std::fs::write(&contract, &text).expect("written");
        git(&["init", "--quiet", "--initial-branch=main"]);
        git(&["add", "contracts"]);
        git(&["commit", "--quiet", "--message", "first"]);
        let report = folder.path().join("report.json");
        let summary = folder.path().join("summary.md");
        for (text, base, code, title) in [
            (text.clone(), "main", 0, "nothing is weaker"),
            (text.replace("times: 256", "times: 512"), "main", 1, "100 % looser"),
            (text.replace("kind: kernel", "kind: other"), "main", 2, "nothing could be compared"),
            (text.clone(), "--output=x; touch stolen", 2, "nothing could be compared"),
        ] {
            std::fs::write(&contract, text).expect("written");
            let _ = std::fs::remove_file(&report);
            let variables = [
                ("BASE", base),
                ("HEAD", ""),
                ("REPOSITORY", folder.path().to_str().expect("text")),
                ("REPORT", report.to_str().expect("text")),
                ("ASSAY", ASSAY),
                ("GITHUB_STEP_SUMMARY", summary.to_str().expect("text")),
            ];
            let (came_to, printed) = run(folder.path(), &script, &variables);
            assert_eq!(came_to, code, "{title}: {printed}");
            assert!(printed.contains(title), "{title}: {printed}");
            assert!(std::fs::read_to_string(&summary).expect("a summary").ends_with(&printed));
            assert!(report.is_file(), "{title}: no report");
        }
        assert!(!folder.path().join("stolen").exists());
    }
}
