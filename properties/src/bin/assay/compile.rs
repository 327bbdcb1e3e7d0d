//! `assay compile`: kernels/cuda to kernels/ptx with NVRTC. Works with stale PTX: it is the cure.

use crate::{Failure, Outcome, say};
use kernels::compile::{FileState, Options, compile_all};

#[derive(clap::Args)]
pub struct Arguments {
    /// Kernels; all when none is named.
    kernels: Vec<String>,
    /// Only say whether the files are what their sources say; write nothing.
    #[arg(long)]
    check: bool,
    /// Accept another compiler than the pinned one: its bytes will differ from everyone else's.
    #[arg(long)]
    any_version: bool,
}

pub fn run(arguments: Arguments) -> Result<Outcome, Failure> {
    let options = Options {
        only: (!arguments.kernels.is_empty()).then_some(arguments.kernels),
        check: arguments.check,
        any_version: arguments.any_version,
        ..Options::default()
    };
    let (mut stale, mut lines) = (0, String::new());
    let files = compile_all(&options, &mut |file| {
        stale += usize::from(!file.is_current());
        let state = match &file.state {
            FileState::Same => "unchanged".to_owned(),
            FileState::Written => "written".to_owned(),
            FileState::Missing => "missing".to_owned(),
            FileState::Differs { line } => format!("differs from its source at line {line}"),
            FileState::Orphan => "has no source; delete it".to_owned(),
        };
        lines.push_str(&format!("{:<20} {state}\n", file.stem));
        if !file.log.trim().is_empty() {
            lines.push_str(&format!("{}\n", file.log.trim_end()));
        }
    })?;
    say(&lines)?;
    if files.is_empty() {
        return Err(Failure("no kernel was compiled".to_owned()));
    }
    if stale > 0 {
        eprintln!(
            "{stale} of {} files are not what their sources say: run `{}`",
            files.len(),
            kernels::ptx::COMPILE_COMMAND
        );
        return Ok(Outcome::Found);
    }
    Ok(Outcome::Clean)
}
