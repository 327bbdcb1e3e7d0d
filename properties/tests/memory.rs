//! How much memory a search takes: what its cases need, not what its largest cases ever needed.
#![cfg(all(feature = "command", target_os = "linux"))]

use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The most memory that a process had until it ended, in bytes.
fn peak_bytes(process: &mut Child) -> u64 {
    let status = format!("/proc/{}/status", process.id());
    let mut peak = 0;
    while process.try_wait().expect("it runs").is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        peak = peak.max(kib.unwrap_or(0) * 1024);
        std::thread::sleep(Duration::from_millis(10));
    }
    peak
}

/// Rows of tensors of every size, far apart and close together, some thousands of cases of them: of all
/// contracts this one's searches took the most, 760 MiB before pages of rows far apart were small, and
/// the memory of one case was kept for the next within a limit.
#[test]
fn a_search_does_not_take_what_its_largest_cases_took_for_ever() {
    const LIMIT: u64 = 256 << 20;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut search = Command::new(env!("CARGO_BIN_EXE_assay"));
    search.args(["search", "ple_gather", "--cases", "100", "--threads", "1", "--seconds", "200"]);
    search.arg("--corpora").arg(folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = search.spawn().expect("the binary runs");
    let peak = peak_bytes(&mut process);
    assert!(process.wait().expect("it ended").success());
    assert!(peak > 10 << 20, "{peak} bytes were measured");
    assert!(peak <= LIMIT, "the search took {} MiB", peak >> 20);
}
