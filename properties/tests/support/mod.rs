//! The built `assay` as a user runs it: what it said, and what it must have said.

use std::process::Command;

/// What a run of the command came to.
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// Runs the built `assay`, set up further by `set_up`.
pub fn assay(arguments: &[&str], set_up: impl FnOnce(&mut Command)) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_assay"));
    command.args(arguments);
    set_up(&mut command);
    let output = command.output().expect("the binary runs");
    Said {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Demands this exit code, each of the texts in one of the two streams, and no panic.
#[track_caller]
pub fn shows(said: &Said, code: i32, texts: &[&str]) {
    let Said { out, err, .. } = said;
    assert_eq!(said.code, Some(code), "{out}{err}");
    assert!(!err.contains("panicked"), "{err}");
    for text in texts {
        assert!(out.contains(text) || err.contains(text), "no `{text}` in\n{out}{err}");
    }
}
