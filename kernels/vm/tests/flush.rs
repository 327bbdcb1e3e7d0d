//! Results about the least normal number against an H200, every form of `flushes`.

mod flushes;
mod support;

#[test]
fn results_about_the_least_normal_number_are_the_hardwares() {
    let all = flushes::compared();
    let failures: Vec<&String> = all.iter().flat_map(|(_, wrong)| wrong.iter().take(3)).collect();
    assert!(failures.is_empty(), "{failures:#?}");
}
