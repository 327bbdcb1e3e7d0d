//! Corpora as people and accidents leave them: files edited into nonsense, processes that write at once,
//! processes killed while they write. Errors name the file and the way out; nothing is lost.
#![cfg(feature = "command")]

mod support;

use contracts::case::Case;
use contracts::case_yaml::write_case;
use properties::choices::{Seeded, mix};
use properties::corpus::{self, write_regression};
use properties::generate::draw;
use properties::subject::{Subject, canary, subject};
use properties::verdict::{FaultReport, Verdict};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{Said, shows};

fn assay(arguments: &[&str]) -> Said {
    support::assay(arguments, |_| {})
}

fn argmax() -> &'static Subject {
    subject("argmax_rows").expect("a production subject")
}

fn drawn(subject: &Subject, number: u64) -> Case {
    draw(subject, &mut Seeded { seed: mix(0x1057, number) }).expect("drawn").case
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// Corpora with some small cases of argmax_rows; the folder of that contract.
fn corpora(cases: u64) -> (tempfile::TempDir, PathBuf) {
    let root = folder();
    let of_contract = root.path().join("argmax_rows");
    std::fs::create_dir(&of_contract).expect("made");
    for number in 0..cases {
        let text = write_case(&drawn(argmax(), number), argmax().contract, None);
        std::fs::write(of_contract.join(format!("case-{number:04}.yaml")), text).expect("written");
    }
    (root, of_contract)
}

fn replayed(root: &Path, more: &[&str]) -> Said {
    let root = root.to_str().expect("a path");
    assay(&[&["replay", "--corpora", root], more].concat())
}

#[test]
fn a_file_edited_into_nonsense_is_named_and_hides_no_other() {
    let (root, of_contract) = corpora(6);
    let good = std::fs::read_to_string(of_contract.join("case-0000.yaml")).expect("read");
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(of_contract.join(name), bytes).expect("written");
    };
    write("cut.yaml", &good.as_bytes()[..good.len() / 2]);
    write("empty.yaml", b"");
    write("types.yaml", good.replace("dims: {", "dims: [").as_bytes());
    write("unknown.yaml", format!("{good}surprise: 1\n").as_bytes());
    write("huge.yaml", good.replace("R: ", "R: 99999999999999999999").as_bytes());
    write("large.yaml", good.replace("V: ", "V: 99999999999").as_bytes());
    write("bytes.yaml", b"\xff\xfe\x00case: 1\n");
    write("deep.yaml", "[".repeat(200_000).as_bytes());
    write("renamed.yaml", good.replace("V: ", "vocabulary: ").as_bytes());
    let elsewhere = subject("row_topk").expect("it is registered");
    let text = write_case(&drawn(elsewhere, 1), elsewhere.contract, None);
    write("elsewhere.yaml", text.as_bytes());
    write("other.yaml", b"case: 1\ncontract: nobody\nversion: 1\n");
    let endless = std::fs::File::create(of_contract.join("endless.yaml")).expect("made");
    endless.set_len(100 << 20).expect("sparse");
    std::fs::create_dir(of_contract.join("folder.yaml")).expect("made");
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("loop.yaml", of_contract.join("loop.yaml")).expect("linked");
        std::os::unix::fs::symlink("nowhere", of_contract.join("lost.yaml")).expect("linked");
    }
    let said = replayed(root.path(), &["argmax_rows"]);
    shows(
        &said,
        2,
        &[
            "cut.yaml",
            "empty.yaml",
            "types.yaml",
            "huge.yaml",
            "large.yaml",
            "deep.yaml",
            "unknown.yaml:",
            "unknown field `surprise`",
            "bytes.yaml: ",
            "valid UTF-8",
            "endless.yaml: 104857600 bytes are more than the limit of 4194304",
            "folder.yaml: ",
            "no regular file",
            "other.yaml:2: contract: no contract is named `nobody`",
            "dims.V: it is undecided, and the contract has no `vocabulary`",
            "contract: `row_topk`, in the folder of `argmax_rows`; move the file to the folder of its contract",
            "nested more than",
            "empty.yaml: null is not allowed here; write a map with case, contract",
            "0 of 6 replays not as they should be",
        ],
    );
    #[cfg(unix)]
    shows(&said, 2, &["loop.yaml: reading failed", "lost.yaml: reading failed"]);
    // The files that read them all agree, and none of them changes or removes one.
    let before = names(&of_contract);
    let root = root.path().to_str().expect("a path");
    for what in [["minimize", "--write"], ["migrate", "--write"]] {
        let said = assay(&["corpus", "--corpora", root, what[0], "argmax_rows", what[1]]);
        let elsewhere =
            "elsewhere.yaml: contract: `row_topk`, in the folder of `argmax_rows`; move";
        shows(&said, 2, &["unknown.yaml", "endless.yaml", "folder.yaml", elsewhere]);
    }
    let inputs = folder();
    let to = inputs.path().to_str().expect("a path");
    let said = assay(&["corpus", "--corpora", root, "export", "argmax_rows", "--to", to]);
    shows(&said, 2, &["argmax_rows: 6 inputs", "unknown.yaml"]);
    assert_eq!(names(&of_contract), before);
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("listed").flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_known_failure_is_counted_and_one_past_its_day_is_refused() {
    let (root, _) = corpora(1);
    let canary = canary().expect("the canary loads");
    // The planted bug: a tail past 64 columns.
    let (case, verdict) = failing_canary();
    let path = write_regression(root.path(), canary, &case, &verdict, "vm").expect("written");
    let path = path.to_str().expect("a path");
    let stem = Path::new(path).file_stem().expect("a name").to_str().expect("text").to_owned();
    let clause = verdict.clause().expect("it fails").to_owned();
    shows(&replayed(root.path(), &[path]), 1, &["1 of 1 replays not as they should be"]);
    let known = |more: &str| {
        let entry = format!(
            "- contract: canary_row_sum\n  case: {stem}\n  clause: {clause}\n  issue: https://example.org/1\n{more}"
        );
        std::fs::write(root.path().join("known_failures.yaml"), entry).expect("written");
        replayed(root.path(), &[path])
    };
    shows(
        &known("  expires: 9999-12-31\n"),
        0,
        &["tolerated", "known: https://example.org/1", "0 of 1 replays", "1 failing as known"],
    );
    shows(&known(""), 2, &["[0].expires: it is missing; write expires: YYYY-MM-DD"]);
    shows(&known("  expires: 2026-02-30\n"), 2, &["[0].expires: `2026-02-30` is no day"]);
    shows(&known("  expires: 2020-01-01\n"), 2, &["[0].expires: ", "may fail until 2020-01-01"]);
    // Nor does it hide what became of the cases, its own among them.
    let all = [path, "argmax_rows"];
    shows(
        &replayed(root.path(), &all),
        2,
        &["fails     ", "passes    ", "1 of 2 replays", "may fail until 2020-01-01"],
    );
    let other = format!(
        "- {{contract: canary_row_sum, case: {stem}, clause: house.races, issue: \"https://example.org/1\", expires: 9999-12-31}}\n"
    );
    std::fs::write(root.path().join("known_failures.yaml"), other).expect("written");
    shows(
        &replayed(root.path(), &[path]),
        1,
        &["on vm though known_failures.yaml tolerates only house.races"],
    );
    // An entry about a case that passes fails the run.
    let entry = "- {contract: argmax_rows, case: case-0000, clause: house.bounds, issue: \"https://example.org/2\", expires: 9999-01-01}\n";
    std::fs::write(root.path().join("known_failures.yaml"), entry).expect("written");
    shows(
        &replayed(root.path(), &["argmax_rows"]),
        1,
        &["though known_failures.yaml says it fails", "1 of 1 replays not as they should be"],
    );
}

/// What holds for cases holds for histories of rounds.
#[test]
fn a_history_that_passes_is_no_known_failure_and_one_that_fails_may_be() {
    let root = folder();
    let of_rounds = root.path().join("speculative_round");
    std::fs::create_dir(&of_rounds).expect("made");
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpora/speculative_round");
    let mut files = corpus::files(&stored, "").expect("listed");
    files.retain(|path| path.to_string_lossy().contains("fresh_slot"));
    let text = std::fs::read_to_string(files.first().expect("a history")).expect("read");
    let path = of_rounds.join("fresh_slot-1.yaml");
    std::fs::write(&path, &text).expect("written");
    let known = |clause: &str| {
        let entry = format!(
            "- {{contract: speculative_round, case: fresh_slot-1, clause: {clause}, issue: \"https://example.org/1\", expires: 9999-12-31}}\n"
        );
        std::fs::write(root.path().join("known_failures.yaml"), entry).expect("written");
        replayed(root.path(), &["speculative_round"])
    };
    shows(
        &known("invariants.fresh_slot"),
        1,
        &["though known_failures.yaml says it fails (https://example.org/1); remove its entry"],
    );
    // The fault that is planted breaks another promise than this says.
    std::fs::write(&path, text.replace("invariants.fresh_slot,", "invariants.restores,"))
        .expect("written");
    shows(&known("invariants.restores"), 0, &["tolerated ", "known: https://example.org/1"]);
    shows(
        &known("invariants.refusals"),
        1,
        &["FAILS, ", "though known_failures.yaml tolerates only invariants.refusals"],
    );
}

/// A drawn case that the canary's kernel gets wrong.
fn failing_canary() -> (Case, Verdict) {
    let canary = canary().expect("the canary loads");
    let mut machine = kernels::backend::vm::VmBackend::new();
    let mut workspace = properties::check::Workspace::new();
    let mut counters = properties::counters::Counters::default();
    (0..2_000)
        .find_map(|number| {
            let case = draw(canary, &mut Seeded { seed: mix(5, number) }).ok()?.case;
            let verdict = properties::check::check(
                canary,
                &case,
                &properties::examine::Examine::Kernel,
                &mut machine,
                &mut workspace,
                &mut counters,
            );
            let verdict = verdict.expect("the tool works");
            (verdict.is_failure() && case.dims["R"] > 1).then_some((case, verdict))
        })
        .expect("the planted bug shows")
}

#[test]
fn a_stored_case_shrinks_in_place_and_a_passing_one_is_said_to_pass() {
    let (root, of_contract) = corpora(1);
    let canary = canary().expect("the canary loads");
    let (case, verdict) = failing_canary();
    let path = write_regression(root.path(), canary, &case, &verdict, "vm").expect("written");
    let mut text = std::fs::read_to_string(&path).expect("read");
    text = text.replace("case: 1\n", "# seen on a Tuesday\ncase: 1\n");
    std::fs::write(&path, &text).expect("written");
    let file = path.to_str().expect("a path");
    let root = root.path().to_str().expect("a path");
    let shrink = |more: &[&str]| assay(&[&["shrink", file, "--corpora", root], more].concat());

    let printed = shrink(&[]);
    shows(
        &printed,
        1,
        &["dims: {R: 1, n: 6", "# seen on a Tuesday", "no single step makes it smaller"],
    );
    assert_eq!(std::fs::read_to_string(&path).expect("read"), text, "nothing is written unasked");
    for threads in ["1", "2", "7"] {
        assert_eq!(shrink(&["--threads", threads]).out, printed.out, "{threads} threads");
    }
    shows(&shrink(&["--write"]), 1, &["holds the smaller case"]);
    assert_eq!(std::fs::read_to_string(&path).expect("read"), printed.out);
    shows(&replayed(Path::new(root), &[file]), 1, &["1 of 1 replays not as they should be"]);

    // Shrunk under its old name, it is still the tool's and no work of people.
    let shrunk = std::fs::read_to_string(&path).expect("read");
    assert!(shrunk.contains("\n# rewritten, digest "), "{shrunk}");

    let passing = of_contract.join("case-0000.yaml");
    let said = assay(&["shrink", passing.to_str().expect("a path"), "--corpora", root]);
    shows(&said, 0, &["case-0000.yaml passes: there is no failure to keep"]);
    let said = assay(&["shrink", "no_such_file.yaml", "--corpora", root]);
    shows(&said, 2, &["no_such_file.yaml"]);
}

#[test]
fn small_cases_replay_by_the_thousand_and_in_order() {
    let (root, _) = corpora(1_000);
    let started = Instant::now();
    let said = replayed(root.path(), &["--contract", "argmax_rows", "--format", "json"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(started.elapsed() < Duration::from_secs(120), "{:?}", started.elapsed());
    let all: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    let all = all.as_array().expect("a list");
    assert_eq!(all.len(), 1_000);
    assert!(all.iter().all(|one| one["meaning"] == "passes"));
    let alone = replayed(root.path(), &["argmax_rows", "--format", "json", "--threads", "1"]);
    assert!(alone.out == said.out, "the order depends on the threads");
}

/// What a writing process stores as its so many-th regression.
fn nth(number: u64) -> (Case, Verdict) {
    let fault = FaultReport {
        clause: "house.bounds".to_owned(),
        text: "planted".to_owned(),
        tensor: None,
        source: None,
    };
    (drawn(argmax(), number), Verdict::Fault(Box::new(fault)))
}

const WRITER_FOLDER: &str = "ASSAY_TEST_WRITER_FOLDER";
const WRITER_FIRST: &str = "ASSAY_TEST_WRITER_FIRST";
const WRITER_CASES: &str = "ASSAY_TEST_WRITER_CASES";

/// Not a test: the process that the tests below start, and kill.
#[test]
#[ignore = "the tests below run it as a process of its own"]
fn writer() {
    let folder = std::env::var_os(WRITER_FOLDER).expect("the folder to write into");
    let number = |name: &str| -> u64 {
        std::env::var(name).ok().and_then(|n| n.parse().ok()).expect("a number")
    };
    let first = number(WRITER_FIRST);
    for number in first..first + number(WRITER_CASES) {
        let (case, verdict) = nth(number);
        write_regression(Path::new(&folder), argmax(), &case, &verdict, "vm").expect("written");
    }
}

fn start_writer(root: &Path, first: u64, cases: u64) -> Child {
    Command::new(std::env::current_exe().expect("this test"))
        .args(["writer", "--exact", "--ignored", "--test-threads", "1"])
        .env(WRITER_FOLDER, root)
        .env(WRITER_FIRST, first.to_string())
        .env(WRITER_CASES, cases.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the writer starts")
}

/// Every file is a whole case; how many there are.
fn whole_cases(root: &Path) -> usize {
    let all = corpus::read_all(root, argmax().contract);
    for (path, case) in &all {
        assert!(case.is_ok(), "{}: {case:?}", path.display());
    }
    all.len()
}

#[test]
fn processes_that_write_the_same_and_other_cases_at_once_lose_none() {
    const CASES: u64 = 60;
    let root = folder();
    let writers: Vec<_> = (0..4).map(|_| start_writer(root.path(), 0, CASES)).collect();
    for writer in writers {
        let output = writer.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let mut bodies: Vec<String> =
        (0..CASES).map(|n| write_case(&nth(n).0, argmax().contract, None)).collect();
    bodies.sort();
    bodies.dedup();
    assert_eq!(whole_cases(root.path()), bodies.len(), "each case once, under a name of its own");
    let names = names(&root.path().join("argmax_rows"));
    assert!(names.iter().all(|name| name.ends_with(".yaml")), "{names:?}");
}

#[cfg(unix)]
#[test]
fn a_process_killed_while_it_writes_leaves_whole_files_and_nothing_for_ever() {
    let root = folder();
    let of_contract = root.path().join("argmax_rows");
    let is_whole = |name: &String| name.ends_with(".yaml");
    let files = || {
        let entries = std::fs::read_dir(&of_contract).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(is_whole).count()
    };
    let (mut seen, mut killed) = (0, 0);
    for round in 0u64..24 {
        let mut writer = start_writer(root.path(), round * 10_000, 10_000);
        // At some moment of some write; now and then before the first.
        let started = Instant::now();
        while round % 6 > 0 && files() <= seen && started.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(Duration::from_micros(mix(9, round) % 8_000));
        writer.kill().expect("it was running");
        let status = writer.wait().expect("it ended");
        killed += usize::from(status.code().is_none());
        let now = whole_cases(root.path());
        assert!(now >= seen, "{now} files after {seen}");
        seen = now;
    }
    assert!(killed >= 20 && seen >= 20, "{killed} killed, {seen} files");
    // The next writer removes what the killed ones left, and takes no turn away from anybody.
    std::fs::write(root.path().join("argmax_rows/.left.tmp"), "case").expect("written");
    let (case, verdict) = nth(1_000_000);
    write_regression(root.path(), argmax(), &case, &verdict, "vm").expect("no lock is left");
    let names = names(&root.path().join("argmax_rows"));
    assert!(names.iter().all(|name| name.ends_with(".yaml")), "{names:?}");
    assert_eq!(whole_cases(root.path()), names.len());
}
