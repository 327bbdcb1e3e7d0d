//! What is written twice agrees: fuzz targets and registry, contracts on disk and in the binary.

use properties::fuzz_targets;
use properties::subject::{canary, subjects, test_kernels};
use std::collections::BTreeSet;
use std::path::Path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[test]
fn every_contract_has_its_fuzz_target() {
    let manifest =
        std::fs::read_to_string(Path::new(ROOT).join("fuzz/Cargo.toml")).expect("readable");
    let wanted = fuzz_targets::manifest(&manifest).expect("the manifest has its mark");
    assert!(
        manifest == wanted,
        "fuzz/Cargo.toml is behind the registry: run `{}`",
        fuzz_targets::COMMAND
    );
}

#[test]
fn every_contract_on_disk_is_in_the_registry() {
    let mut on_disk = BTreeSet::new();
    for family in std::fs::read_dir(Path::new(ROOT).join("contracts")).expect("readable") {
        let family = family.expect("readable").path();
        if !family.is_dir() || family.ends_with("src") || family.ends_with("tests") {
            continue;
        }
        for file in std::fs::read_dir(&family).expect("readable") {
            let file = file.expect("readable").path();
            if file.extension().is_some_and(|extension| extension == "yaml") {
                on_disk.insert(file.file_stem().expect("a stem").to_string_lossy().into_owned());
            }
        }
    }
    let all = subjects().iter().chain(canary()).chain(test_kernels());
    let mut registered: BTreeSet<String> = all.map(|subject| subject.name().to_owned()).collect();
    registered.extend(contracts::protocols().map(|protocol| protocol.contract.clone()));
    assert_eq!(
        on_disk, registered,
        "add the missing word to `registry!` in contracts/src/builtin.rs"
    );
    assert!(!registered.is_empty());
}

#[test]
fn every_registered_kernel_is_a_subject() {
    assert_eq!(subjects().len(), kernels::registry::KERNELS.len());
}

/// The source edit of every mutant stands beside the kernels, under the mutant's id, and still applies.
#[test]
fn every_mutant_has_an_edit_that_applies_once() {
    let sources = Path::new(ROOT).join("kernels/cuda");
    let table = std::fs::read_to_string(sources.join("mutants.tsv")).expect("readable");
    let mut edits = BTreeSet::new();
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<String> =
            line.split('\t').map(|field| field.replace("\\n", "\n")).collect();
        let [contract, id, file, stands, _instead] = fields.as_slice() else {
            panic!("five fields are needed: {line}")
        };
        let source = std::fs::read_to_string(sources.join(file)).expect("the file of a mutant");
        let places = source.matches(stands.as_str()).count();
        assert_eq!(places, 1, "{contract}.{id}: `{stands}` stands {places} times in {file}");
        assert!(edits.insert((contract.clone(), id.clone())), "{contract}.{id} is there twice");
    }
    let declared: BTreeSet<_> = subjects()
        .iter()
        .flat_map(|s| s.contract.mutants.keys().map(|id| (s.name().to_owned(), id.clone())))
        .collect();
    assert_eq!(edits, declared, "contracts and kernels/cuda/mutants.tsv name different mutants");
    assert!(!declared.is_empty());
}
