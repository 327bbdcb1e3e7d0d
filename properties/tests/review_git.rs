//! The review of real clones by the command itself: names that are no commits, shallow clones, merges,
//! the working tree, and its exit code.
#![cfg(feature = "command")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

const CONTRACT: &str = "contracts/families/scale_rows.yaml";

/// A clone in a temporary folder.
struct Clone {
    folder: TempDir,
}

impl Clone {
    /// A repository whose first commit, on `main`, holds the tree of the review's tests.
    fn new() -> Clone {
        let clone = Clone { folder: TempDir::new().expect("a folder") };
        clone.git(&["init", "--quiet", "--initial-branch=main"]);
        let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/review/base");
        copy(&base, clone.folder.path());
        clone.commit("first");
        clone
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    fn git(&self, arguments: &[&str]) -> String {
        let settings = [
            "user.name=a",
            "user.email=a@example.org",
            "commit.gpgsign=false",
            "protocol.file.allow=always",
        ];
        let mut git = Command::new("git");
        git.arg("-C").arg(self.folder.path());
        git.args(settings.iter().flat_map(|setting| ["-c", setting]));
        let answer = git.args(arguments).output().expect("git");
        assert!(
            answer.status.success(),
            "git {arguments:?}: {}",
            String::from_utf8_lossy(&answer.stderr)
        );
        String::from_utf8_lossy(&answer.stdout).trim().to_owned()
    }

    fn commit(&self, message: &str) -> String {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "--message", message]);
        self.git(&["rev-parse", "HEAD"])
    }

    fn replace(&self, file: &str, from: &str, to: &str) {
        let text = std::fs::read_to_string(self.path(file)).expect("a file");
        assert!(text.contains(from), "{from}");
        std::fs::write(self.path(file), text.replace(from, to)).expect("written");
    }

    fn review(&self, arguments: &[&str]) -> Said {
        let mut assay = Command::new(env!("CARGO_BIN_EXE_assay"));
        assay.arg("review").args(arguments).current_dir(self.folder.path()).env("NO_COLOR", "1");
        Said::of(assay.output().expect("assay"))
    }
}

/// What a command came to.
#[derive(Debug)]
struct Said {
    code: i32,
    out: String,
    error: String,
}

impl Said {
    fn of(output: Output) -> Said {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = output.status.code().expect("an exit code");
        Said { code, out: text(&output.stdout), error: text(&output.stderr) }
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("readable") {
        let entry = entry.expect("readable");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            std::fs::create_dir_all(&target).expect("a folder");
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("copied");
        }
    }
}

#[test]
fn the_working_tree_is_the_head_unless_one_is_named() {
    let clone = Clone::new();
    let nothing = clone.review(&["--base", "main"]);
    assert_eq!((nothing.code, nothing.error.as_str()), (0, ""));
    assert!(nothing.out.contains("no contract changed"), "{}", nothing.out);
    // Edited, deleted, new: as they lie there, committed or not.
    clone.replace(CONTRACT, "times: 2.5", "times: 4.0");
    std::fs::remove_file(clone.path("corpora/scale_rows/tail_65.yaml")).expect("deleted");
    std::fs::copy(
        clone.path("corpora/scale_rows/pads.yaml"),
        clone.path("corpora/scale_rows/new.yaml"),
    )
    .expect("copied");
    let dirty = clone.review(&["--base", "main"]);
    assert_eq!(dirty.code, 1);
    for text in ["60 % looser", "tail_65.yaml deleted", "new.yaml added", "the working tree"] {
        assert!(dirty.out.contains(text), "{text}: {}", dirty.out);
    }
    let committed = clone.review(&["--base", "main", "--head", "HEAD"]);
    assert_eq!(committed.code, 0, "{}", committed.out);
    clone.git(&["switch", "--quiet", "--create", "change"]);
    clone.commit("change");
    let head = clone.review(&["--base", "main", "--head", "change"]);
    assert_eq!(head.code, 1);
    assert!(
        head.out.contains("60 % looser") && head.out.contains("new.yaml added"),
        "{}",
        head.out
    );
}

#[test]
fn a_reason_in_the_same_change_lets_it_pass() {
    let clone = Clone::new();
    clone.git(&["switch", "--quiet", "--create", "change"]);
    clone.replace(CONTRACT, "times: 2.5", "times: 4.0");
    clone.commit("looser");
    assert_eq!(clone.review(&["--base", "main"]).code, 1);
    clone.replace(
        CONTRACT,
        "history:\n",
        "history:\n  - {version: 1, clauses: [tolerance.y.narrow], because: \"two more roundings of the operands than were counted\", link: \"https://example.org/issues/2\"}\n",
    );
    clone.commit("why");
    let justified = clone.review(&["--base", "main"]);
    assert_eq!(justified.code, 0, "{}", justified.out);
    assert!(justified.out.contains("because two more roundings"), "{}", justified.out);
    // The next change looser still cannot use the same words.
    clone.git(&["switch", "--quiet", "--create", "next"]);
    clone.replace(CONTRACT, "times: 4.0", "times: 5.0");
    clone.commit("looser still");
    let next = clone.review(&["--base", "change"]);
    assert_eq!(next.code, 1);
    assert!(next.out.contains("was there before this change"), "{}", next.out);
}

#[test]
fn changes_of_the_base_are_not_the_head_s() {
    let clone = Clone::new();
    clone.git(&["switch", "--quiet", "--create", "change"]);
    clone.replace(CONTRACT, "times: 2.5", "times: 2.0");
    clone.commit("tighter");
    clone.git(&["switch", "--quiet", "main"]);
    clone.replace(CONTRACT, "range: [0, 65]", "range: [0, 70]");
    clone.commit("wider range");
    // Two lines of history: the base went on meanwhile.
    let parted = clone.review(&["--base", "main", "--head", "change"]);
    assert_eq!(parted.code, 0, "{}", parted.out);
    assert!(
        parted.out.contains("1 tightened;") && parted.out.contains("where they part"),
        "{}",
        parted.out
    );
    // The merge commit that a pull request's job checks out.
    clone.git(&["merge", "--quiet", "--no-edit", "change"]);
    let merged = clone.review(&["--base", "HEAD^1", "--head", "HEAD"]);
    assert_eq!(merged.code, 0, "{}", merged.out);
    assert!(
        merged.out.contains("20 % tighter") && merged.out.contains("1 tightened;"),
        "{}",
        merged.out
    );
}

/// Merges that went both ways leave two commits where the lines part: what the head undid of one of them
/// is not seen from the other, and a reader is told.
#[test]
fn lines_that_part_twice_are_told() {
    let clone = Clone::new();
    clone.git(&["switch", "--quiet", "--create", "change"]);
    clone.replace(CONTRACT, "spare: [0, 2]", "spare: [0, 3]");
    clone.commit("of the change");
    clone.git(&["switch", "--quiet", "main"]);
    clone.replace(CONTRACT, "times: 2.5", "times: 2.0");
    clone.commit("of the base");
    clone.git(&["tag", "main_then"]);
    clone.git(&["merge", "--quiet", "--no-edit", "change"]);
    clone.git(&["switch", "--quiet", "change"]);
    clone.git(&["merge", "--quiet", "--no-edit", "main_then"]);
    clone.replace(CONTRACT, "times: 2.0", "times: 2.5");
    clone.commit("undone");
    let crossed = clone.review(&["--base", "main", "--head", "change"]);
    assert!(crossed.out.contains("part at 2 commits"), "{crossed:?}");
    // As the note says.
    clone.git(&["merge", "--quiet", "--no-edit", "main"]);
    let merged = clone.review(&["--base", "main", "--head", "change"]);
    assert_eq!(merged.code, 1, "{merged:?}");
    assert!(merged.out.contains("25 % looser") && !merged.out.contains("note:"), "{merged:?}");
}

#[test]
fn a_branch_that_only_the_remote_has_is_named() {
    let (origin, clone) = (Clone::new(), Clone { folder: TempDir::new().expect("a folder") });
    let from = format!("file://{}", origin.folder.path().display());
    clone.git(&["clone", "--quiet", &from, "."]);
    clone.git(&["switch", "--quiet", "--create", "change"]);
    clone.git(&["branch", "--quiet", "-D", "main"]);
    let said = clone.review(&["--base", "main"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.error.contains("`main` names no commit here, but `origin/main` does"), "{said:?}");
    assert_eq!(clone.review(&["--base", "origin/main"]).code, 0);
}

#[test]
fn names_that_are_no_commits_are_never_options() {
    let clone = Clone::new();
    let hostile = [
        "--output=stolen",
        "-h",
        "--upload-pack=touch stolen",
        "main --output=stolen",
        "main\n",
        "",
        "no-such-branch",
        "main:contracts",
        "$(touch stolen)",
        "main..HEAD",
    ];
    for name in hostile {
        for arguments in [
            [format!("--base={name}"), String::new()],
            ["--base=main".to_owned(), format!("--head={name}")],
        ] {
            let arguments: Vec<&str> =
                arguments.iter().map(String::as_str).filter(|a| !a.is_empty()).collect();
            let said = clone.review(&arguments);
            assert_eq!(said.code, 2, "{arguments:?}: {said:?}");
            assert!(said.error.contains("names no commit here"), "{arguments:?}: {}", said.error);
        }
    }
    assert!(!clone.path("stolen").exists());
    assert_eq!(clone.git(&["status", "--porcelain"]), "");
}

#[test]
fn shallow_clones_say_what_is_missing() {
    let origin = Clone::new();
    origin.git(&["switch", "--quiet", "--create", "change"]);
    origin.replace(CONTRACT, "times: 2.5", "times: 2.0");
    let change = origin.commit("tighter");
    let shallow = Clone { folder: TempDir::new().expect("a folder") };
    shallow.git(&["init", "--quiet", "--initial-branch=work"]);
    let from = format!("file://{}", origin.folder.path().display());
    shallow.git(&["fetch", "--quiet", "--depth=1", &from, "change"]);
    shallow.git(&["checkout", "--quiet", "--detach", &change]);
    let missing = shallow.review(&["--base", "main"]);
    assert_eq!(missing.code, 2);
    assert!(
        missing.error.contains("in this shallow clone; fetch it (git fetch --depth=1 origin main)"),
        "{}",
        missing.error
    );
    shallow.git(&["fetch", "--quiet", "--depth=1", &from, "main:main"]);
    let both = shallow.review(&["--base", "main"]);
    assert_eq!(both.code, 0, "{}{}", both.out, both.error);
    assert!(
        both.out.contains("20 % tighter") && both.out.contains("git fetch --unshallow"),
        "{}",
        both.out
    );
}

#[test]
fn what_is_no_history_of_this_is_refused() {
    let clone = Clone::new();
    clone.git(&["checkout", "--quiet", "--orphan", "other"]);
    clone.commit("unrelated");
    let unrelated = clone.review(&["--base", "main"]);
    assert_eq!(unrelated.code, 2);
    assert!(unrelated.error.contains("`main` and HEAD share no commit"), "{}", unrelated.error);
    // A base before there were contracts.
    clone.git(&["rm", "-r", "--quiet", "contracts"]);
    clone.commit("none");
    clone.git(&["checkout", "--quiet", "main", "--", "contracts"]);
    let early = clone.review(&["--base", "HEAD"]);
    assert_eq!(early.code, 2);
    assert!(early.error.contains("has no contracts/"), "{}", early.error);
    let nowhere = Clone { folder: TempDir::new().expect("a folder") };
    let outside = nowhere.review(&["--base", "main"]);
    assert_eq!(outside.code, 2);
    assert!(outside.error.contains("no git repository"), "{}", outside.error);
}

#[cfg(unix)]
#[test]
fn what_is_compared_is_no_link_and_no_submodule() {
    use std::os::unix::fs::symlink;
    let refused = |clone: &Clone, path: &str| {
        let working = clone.review(&["--base", "main"]);
        assert_eq!(working.code, 2, "{}", working.out);
        let said = format!("{path} (the working tree): it is no regular file");
        assert!(working.error.contains(&said), "{}", working.error);
        clone.git(&["switch", "--quiet", "--create", "change"]);
        clone.commit("a link");
        let committed = clone.review(&["--base", "main", "--head", "change"]);
        assert_eq!(committed.code, 2, "{}", committed.out);
        assert!(committed.error.contains("it is no regular file"), "{}", committed.error);
        // A change that puts the files themselves there is no change of what was compared before.
        let back = clone.review(&["--base", "change", "--head", "main"]);
        assert_ne!(back.code, 1, "{}", back.out);
    };
    // A file that points out of the tree.
    let clone = Clone::new();
    let secret = clone.path("secret.yaml");
    std::fs::write(&secret, "contract: secret\n").expect("written");
    symlink(&secret, clone.path("contracts/families/linked.yaml")).expect("a link");
    refused(&clone, "contracts/families/linked.yaml");
    // A family whose files lie elsewhere in the tree.
    let clone = Clone::new();
    std::fs::rename(clone.path("contracts/families"), clone.path("contracts/others"))
        .expect("moved");
    symlink("others", clone.path("contracts/families")).expect("a link");
    refused(&clone, "contracts/families");
    // All stored cases at once.
    let clone = Clone::new();
    std::fs::rename(clone.path("corpora"), clone.path("cases")).expect("moved");
    symlink("cases", clone.path("corpora")).expect("a link");
    refused(&clone, "corpora");
    // A repository of its own among the stored cases.
    let clone = Clone::new();
    let other = clone.path("corpora/scale_rows/other");
    std::fs::create_dir(&other).expect("a folder");
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.arg("-C").arg(&other).args(["-c", "user.name=a", "-c", "user.email=a@example.org"]);
        assert!(git.args(arguments).status().expect("git").success());
    };
    git(&["init", "--quiet"]);
    git(&["commit", "--quiet", "--allow-empty", "--message", "other"]);
    refused(&clone, "corpora/scale_rows/other");
    // Elsewhere a link is another file.
    let clone = Clone::new();
    symlink("contracts", clone.path("shown")).expect("a link");
    let beside = clone.review(&["--base", "main"]);
    assert_eq!(beside.code, 0, "{}", beside.error);
    assert!(beside.out.contains("is to be read: shown"), "{}", beside.out);
}

#[cfg(unix)]
#[test]
fn names_that_are_no_text_are_two_files() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let clone = Clone::new();
    let named = |byte: u8| {
        let name = [b"corpora/scale_rows/odd_", [byte].as_slice(), b".yaml"].concat();
        clone.folder.path().join(OsStr::from_bytes(&name))
    };
    let case = std::fs::read(clone.path("corpora/scale_rows/pads.yaml")).expect("a case");
    let other = std::fs::read(clone.path("corpora/scale_rows/tail_65.yaml")).expect("a case");
    // Some file systems take no such name.
    if std::fs::write(named(0xfe), case).is_err() {
        return;
    }
    std::fs::write(named(0xff), other).expect("written");
    clone.commit("odd names");
    std::fs::remove_file(named(0xfe)).expect("removed");
    let gone = clone.review(&["--base", "main"]);
    assert_eq!(gone.code, 1, "{}", gone.out);
    assert!(
        gone.out.contains("odd_\\xfe.yaml deleted") && gone.out.contains("1 loosened;"),
        "{}",
        gone.out
    );
    // What git does not have yet is read under its own name too.
    let pads = std::fs::read(clone.path("corpora/scale_rows/pads.yaml")).expect("a case");
    std::fs::write(named(0xff), &pads).expect("written");
    std::fs::write(named(0xfd), &pads).expect("written");
    let said = clone.review(&["--base", "main"]);
    assert!(said.out.contains("odd_\\xff.yaml edited"), "{}", said.out);
    assert!(!said.out.contains("odd_\\xff.yaml deleted"), "{}", said.out);
    assert!(said.out.contains("`regressions.odd_\\xfd`"), "{}", said.out);
}

#[test]
fn golden_answers_that_are_no_text_are_followed() {
    let clone = Clone::new();
    let bytes: Vec<u8> = (0..=255).collect();
    std::fs::write(clone.path("corpora/golden/bits.bin"), &bytes).expect("written");
    clone.commit("bits");
    std::fs::rename(clone.path("corpora/golden/bits.bin"), clone.path("corpora/golden/more.bin"))
        .expect("moved");
    let moved = clone.review(&["--base", "main"]);
    assert_eq!(moved.code, 0, "{}", moved.out);
    assert!(moved.out.contains("bits.bin are now called more.bin"), "{}", moved.out);
    std::fs::write(clone.path("corpora/golden/more.bin"), &bytes[1..]).expect("written");
    assert_eq!(clone.review(&["--base", "main"]).code, 1);
}

#[test]
fn a_report_is_shown_again_and_nothing_else() {
    let clone = Clone::new();
    clone.replace(CONTRACT, "times: 2.5", "times: 4.0");
    let report = clone.path("report.json");
    let report = report.to_str().expect("a path");
    let first = clone.review(&["--base", "main", "--format", "markdown", "--report", report]);
    let again = clone.review(&["--render", report, "--format", "markdown"]);
    assert_eq!((again.code, again.out), (1, first.out));
    let forged = r#"{"base":"x","head":"y","contracts":[],"kernels":[],"run":"rm"}"#;
    std::fs::write(clone.path("report.json"), forged).expect("written");
    let refused = clone.review(&["--render", report]);
    assert_eq!(refused.code, 2);
    assert!(refused.error.contains("unknown field `run`"), "{}", refused.error);
    std::fs::remove_file(clone.path("report.json")).expect("removed");
    assert_eq!(clone.review(&["--render", report]).code, 2);
    assert_eq!(clone.review(&["--render", "."]).code, 2);
    #[cfg(unix)]
    {
        // A pipe nobody writes to would be waited for.
        let made = Command::new("mkfifo").arg(report).status().expect("mkfifo");
        assert!(made.success());
        let pipe = clone.review(&["--render", report]);
        assert_eq!(pipe.code, 2);
        assert!(pipe.error.contains("no regular file"), "{}", pipe.error);
    }
}

#[test]
fn an_error_is_reported_where_a_comment_is_made_of_it() {
    let clone = Clone::new();
    clone.replace(CONTRACT, "kind: kernel", "kind: <b>kernel</b> @everyone");
    let report = clone.path("report.json");
    let report = report.to_str().expect("a path");
    let first = clone.review(&["--base", "main", "--format", "markdown", "--report", report]);
    assert_eq!(first.code, 2);
    assert!(first.out.contains("### Contract review: nothing could be compared"), "{}", first.out);
    assert!(first.out.contains("scale\\_rows.yaml \\(the working tree\\)"), "{}", first.out);
    // Between backquotes nothing is markup and nobody is called.
    let outside: String = first.out.split('`').step_by(2).collect();
    assert!(!outside.contains("<b>") && !outside.contains("@everyone"), "{}", first.out);
    let again = clone.review(&["--render", report, "--format", "markdown"]);
    assert_eq!((again.code, again.out), (2, first.out));
    // A person is told once.
    let terminal = clone.review(&["--base", "main"]);
    assert_eq!((terminal.code, terminal.out.as_str()), (2, ""));
}
