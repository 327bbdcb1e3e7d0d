use super::*;
use crate::subject::Subject;
use crate::verdict::{Disagreement, FaultReport, Verdict};
use contracts::case::{CaseTensor, Decisions, Fill, Found, Schedule};
use contracts::case_yaml::write_case;
use contracts::dtype::{DType, Poison};
use std::collections::BTreeMap;
use std::io::Write as _;

fn subject() -> &'static Subject {
    crate::subject::subject("argmax_rows").expect("a production subject")
}

fn case(columns: i64) -> Case {
    let ids = CaseTensor { layout: Layout::Dense, content: Content::Output };
    let at = BTreeMap::from([(1, 0x7fa5_a5a5)]);
    let x = CaseTensor {
        layout: Layout::RowPadded(3),
        content: Content::Sparse { fill: Fill::Bits(0), at },
    };
    let words = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    };
    Case {
        contract: "argmax_rows".to_owned(),
        version: subject().contract.version,
        found: None,
        dtypes: [("x".to_owned(), DType::F32)].into_iter().collect(),
        options: words(&[("value_kind", "none")]),
        variants: words(&[("blocks_per_row", "1")]),
        dims: [("R".to_owned(), 2), ("V".to_owned(), columns)].into_iter().collect(),
        lists: Decisions::new(),
        scalars: Decisions::new(),
        stores: Decisions::new(),
        poison: Poison::Quiet,
        schedule: Schedule::InOrder,
        tensors: [("x".to_owned(), x), ("ids".to_owned(), ids)].into_iter().collect(),
    }
}

fn disagreement() -> Verdict {
    Verdict::Disagree(Box::new(Disagreement {
        clause: "tolerance.ids.all".to_owned(),
        tensor: Some("ids".to_owned()),
        index: vec![1],
        expected: "0 (0x00000000)".to_owned(),
        observed: "4 (0x00000004)".to_owned(),
        written_by: String::new(),
        error: None,
        note: String::new(),
    }))
}

fn fault() -> Verdict {
    let text = "reads past x\nat line 3".to_owned();
    Verdict::Fault(Box::new(FaultReport {
        clause: "house.bounds".to_owned(),
        text,
        tensor: None,
        source: None,
    }))
}

fn corpora() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let root = folder.path().join("corpora");
    (folder, root)
}

fn names(root: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(root.join("argmax_rows"))
        .expect("the folder exists")
        .map(|entry| entry.expect("listed").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    names
}

#[test]
fn a_regression_is_written_once_and_reads_back_bit_for_bit() {
    let (_keep, root) = corpora();
    let path =
        write_regression(&root, subject(), &case(5), &disagreement(), "vm").expect("written");
    let again = write_regression(&root, subject(), &case(5), &disagreement(), "vm").expect("known");
    assert_eq!(path, again);
    let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
    assert!(
        name.starts_with("tolerance_ids_all-")
            && name.len() == "tolerance_ids_all-1a2b3c4d.yaml".len(),
        "{name}"
    );
    let all = read_all(&root, subject().contract);
    let [(found, Ok(read))] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!(found, &path);
    let backend = "vm".to_owned();
    assert_eq!(
        read.found,
        Some(Found { clause: "tolerance.ids.all".to_owned(), backend, issue: None })
    );
    assert_eq!(read.tensors["x"].content.bits(DType::F32, 1), 0x7fa5_a5a5);
    assert_eq!(Case { found: None, ..read.clone() }, case(5));
    assert_eq!(names(&root), [name]);
}

#[test]
fn another_case_or_clause_gets_a_file_of_its_own() {
    let (_keep, root) = corpora();
    for (columns, verdict) in [(5, disagreement()), (6, disagreement()), (5, fault())] {
        write_regression(&root, subject(), &case(columns), &verdict, "vm").expect("written");
    }
    let files = files(&root, "argmax_rows").expect("listed");
    assert_eq!(files.len(), 3);
    assert!(files[0].to_string_lossy().contains("house_bounds-"));
    assert!(files.is_sorted());
}

#[test]
fn the_header_says_what_it_shows_and_how_to_see_it_again() {
    let (_keep, root) = corpora();
    let path = write_regression(&root, subject(), &case(5), &fault(), "vm").expect("written");
    let text = std::fs::read_to_string(&path).expect("readable");
    let header = format!(
        "# house.bounds: reads past x\n# at line 3\n\
         # x=f32 value_kind=none blocks_per_row=1 R=2 V=5 x row_padded 3\n\
         # cargo run --release -- replay {}\ncase: 1\n",
        path.display()
    );
    assert!(text.starts_with(&header), "{text}");
}

#[test]
fn a_broken_file_is_an_error_in_its_place_and_unfinished_ones_are_no_files() {
    let (_keep, root) = corpora();
    let path =
        write_regression(&root, subject(), &case(5), &disagreement(), "vm").expect("written");
    let folder = root.join("argmax_rows");
    std::fs::write(folder.join("a.yaml"), "case: 1\ncontract: argmax_rows\nsurprise: 3\n")
        .expect("written");
    std::fs::write(folder.join(".x1.tmp"), "case").expect("written");
    std::fs::write(folder.join(".x1.yaml"), "case").expect("written");
    let large = std::fs::File::create(folder.join("b.yaml")).expect("made");
    large.set_len(CASE_LIMIT_BYTES as u64 + 1).expect("sparse");
    let all = read_all(&root, subject().contract);
    assert_eq!(all.len(), 3);
    let error = |place: usize| all[place].1.as_ref().expect_err("broken").to_string();
    assert!(error(0).contains("a.yaml") && error(0).contains("surprise"), "{}", error(0));
    assert!(
        error(1).contains("b.yaml: 4194305 bytes are more than the limit of 4194304"),
        "{}",
        error(1)
    );
    assert!(all[2].1.is_ok() && all[2].0 == path);
}

#[test]
fn what_cannot_be_written_leaves_nothing_behind_and_says_what_to_do() {
    let (keep, root) = corpora();
    let file = keep.path().join("file");
    std::fs::write(&file, "").expect("written");
    let error =
        write_regression(&file, subject(), &case(5), &fault(), "vm").expect_err("no folder");
    assert!(
        error.to_string().contains("making the folder failed")
            && error.to_string().contains("--corpora"),
        "{error}"
    );
    // Both names the case could have are taken by folders.
    let path = write_regression(&root, subject(), &case(5), &fault(), "vm").expect("written");
    std::fs::remove_file(&path).expect("removed");
    let digest = fnv(write_case(&case(5), subject().contract, None).as_bytes());
    for digits in [8, 16] {
        let name = format!("house_bounds-{}.yaml", &format!("{digest:016x}")[..digits]);
        std::fs::create_dir(root.join("argmax_rows").join(name)).expect("made");
    }
    let error =
        write_regression(&root, subject(), &case(5), &fault(), "vm").expect_err("in the way");
    assert!(error.to_string().contains("writing failed"), "{error}");
    assert_eq!(names(&root).len(), 2, "nothing half-written");
}

#[test]
fn errors_name_permission_and_room() {
    let path = Path::new("corpora/argmax_rows/x.yaml");
    let text = |kind| CorpusError::io(path, "writing", io::Error::from(kind)).to_string();
    assert!(
        text(io::ErrorKind::PermissionDenied)
            .contains("no permission for writing; change its owner")
    );
    assert!(
        text(io::ErrorKind::StorageFull).contains("no space left, nothing was written; make room")
    );
}

#[test]
fn a_passing_verdict_is_no_regression_and_a_missing_folder_no_error() {
    let (_keep, root) = corpora();
    let error =
        write_regression(&root, subject(), &case(5), &Verdict::Agree, "vm").expect_err("it agrees");
    assert!(matches!(error, CorpusError::NotAFailure));
    assert!(!root.exists() && read_all(&root, subject().contract).is_empty());
    assert_eq!(KnownFailures::read(&root).expect("none"), KnownFailures::default());
}

#[test]
fn a_case_that_changed_meanwhile_is_neither_replaced_nor_removed() {
    let (_keep, root) = corpora();
    let path = write_regression(&root, subject(), &case(5), &fault(), "vm").expect("written");
    let before = std::fs::read_to_string(&path).expect("read");
    let edited = format!("{before}# a person's\n");
    std::fs::write(&path, &edited).expect("written");
    let contract = subject().contract;
    let replaced = |before: &str| replace_case(&path, before, &case(6), contract, None);
    for refused in [replaced(&before), remove_case(&path, &before)] {
        let error = refused.expect_err("it changed").to_string();
        assert!(
            error.ends_with("it was changed meanwhile and stays as it is; run the command again")
        );
        assert_eq!(std::fs::read_to_string(&path).expect("read"), edited);
    }
    replaced(&edited).expect("as it was read");
    let text = std::fs::read_to_string(&path).expect("read");
    assert!(text.contains("a person's") && text != edited, "{text}");
    #[cfg(unix)]
    {
        let link = root.join("link.yaml");
        std::os::unix::fs::symlink(&path, &link).expect("linked");
        replace_case(&link, &text, &case(5), contract, None).expect("through the link");
        assert!(link.is_symlink());
        assert_ne!(std::fs::read_to_string(&path).expect("read"), text);
    }
    let text = std::fs::read_to_string(&path).expect("read");
    remove_case(&path, &text).expect("as it was read");
    assert!(remove_case(&path, &text).is_err(), "it is gone");
}

#[test]
fn known_failures_are_read_from_the_root() {
    let (_keep, root) = corpora();
    let path = write_regression(&root, subject(), &case(5), &fault(), "vm").expect("written");
    let stem = path.file_stem().and_then(|stem| stem.to_str()).expect("a name");
    let entry = format!(
        "- contract: argmax_rows\n  case: {stem}\n  clause: house.bounds\n  issue: https://example.org/1\n  expires: 9999-12-31\n"
    );
    std::fs::write(root.join("known_failures.yaml"), entry).expect("written");
    let known = KnownFailures::read(&root).expect("well formed");
    assert!(known.tolerates("argmax_rows", stem, "house.bounds").is_some());
    std::fs::remove_file(&path).expect("removed");
    let error = KnownFailures::read(&root).expect_err("its case is gone").to_string();
    assert!(error.contains("known_failures.yaml") && error.contains("is stored"), "{error}");
}

#[test]
fn long_lists_are_cut_in_the_middle() {
    assert_eq!(shortened(&[1, 2]), "[1,2]");
    let long: Vec<i64> = (0..40).collect();
    assert_eq!(shortened(&long), "[0,1,2,3,4,5,6,7,…31 more…,39]");
}

#[test]
fn only_the_repositorys_own_cases_have_a_short_path_in_their_command() {
    let ours = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../corpora"));
    let command = replay_command(&ours.join("argmax_rows/x.yaml"), ours);
    assert_eq!(command, "cargo run --release -- replay corpora/argmax_rows/x.yaml");
    let (_keep, root) = corpora();
    let command = replay_command(&root.join("argmax_rows/x.yaml"), &root);
    let full = root.join("argmax_rows/x.yaml");
    assert_eq!(command, format!("cargo run --release -- replay {}", full.display()));
}

#[test]
fn what_would_never_be_replayed_is_named() {
    let (_keep, root) = corpora();
    write_regression(&root, subject(), &case(5), &fault(), "vm").expect("written");
    for folder in ["golden", "argmax_row", "argmax_rows/old.md"] {
        std::fs::create_dir(root.join(folder)).expect("made");
    }
    for file in [
        "README.md",
        "known_failures.yaml",
        "loose.yaml",
        "golden/x.safetensors",
        "argmax_rows/README.md",
        "argmax_rows/.half.tmp",
        "argmax_rows/case.yml",
    ] {
        std::fs::write(root.join(file), "").expect("written");
    }
    let strays = strays(&root, &["argmax_rows"]).expect("listed");
    let texts: Vec<_> = strays.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 4, "{texts:?}");
    assert!(texts[0].contains("argmax_row: no contract is named `argmax_row`; give"), "{texts:?}");
    assert!(texts[1].contains("case.yml: its name is no stored case's; end it in .yaml"));
    assert!(texts[2].contains("old.md: its name is no stored case's"), "{texts:?}");
    assert!(texts[3].contains("loose.yaml: it lies in no contract's folder; move"));
    assert!(super::strays(&root.join("none"), &[]).expect("no corpora").is_empty());
}

/// Opening a pipe waits for its other end: one in a file's place is refused or replaced, never opened.
#[cfg(unix)]
#[test]
fn a_pipe_hangs_neither_reading_nor_writing() {
    let (_keep, root) = corpora();
    let path = write_regression(&root, subject(), &case(5), &fault(), "vm").expect("written");
    std::fs::remove_file(&path).expect("removed");
    let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo");
    assert!(made.success());
    let error = read(&path, subject().contract).expect_err("a pipe").to_string();
    assert!(error.contains("no regular file"), "{error}");
    let other = write_regression(&root, subject(), &case(5), &fault(), "vm").expect("written");
    assert!(other != path && read(&other, subject().contract).is_ok());
}

/// In sysfs nobody makes folders, root neither.
#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_may_not_be_made_is_named() {
    let root = Path::new("/sys/assay-corpora");
    let error = write_regression(root, subject(), &case(5), &fault(), "vm").expect_err("refused");
    let text = error.to_string();
    assert!(text.contains("/sys/assay-corpora"), "{text}");
    assert!(text.contains("no permission for making the folder; change its owner"), "{text}");
}

/// `/dev/full` takes no byte: what a full disk does, without one.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told_apart() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
    let error = (&full).write_all(b"x").expect_err("no room");
    let told = CorpusError::io(Path::new("corpora/x.yaml"), "writing", error).to_string();
    assert!(told.contains("no space left, nothing was written"), "{told}");
}
