//! `assay compile`: kernels/cuda to kernels/ptx with NVRTC. Works with stale PTX: it is the cure.

use crate::{Failure, Outcome, say};
use kernels::compile::resources::{FILE, Recorded};
use kernels::compile::{CompiledFile, Compiler, FileState, Options};

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
    let compiler = Compiler::find()?;
    let files = compiler.compile_all(&options, &mut |file| {
        stale += usize::from(!file.is_current());
        lines.push_str(&format!("{:<20} {}\n", file.stem, state(&file.state)));
        if !file.log.trim().is_empty() {
            lines.push_str(&format!("{}\n", file.log.trim_end()));
        }
    })?;
    say(&lines)?;
    if files.is_empty() {
        return Err(Failure("no kernel was compiled".to_owned()));
    }
    let present =
        |file: &&CompiledFile| !matches!(file.state, FileState::Missing | FileState::Orphan);
    let modules: Vec<_> = files.iter().filter(present).map(|file| file.stem.clone()).collect();
    let recorded = compiler.record_resources(
        &options.folder,
        &modules,
        options.only.is_none(),
        options.check,
    )?;
    say(&table(&recorded))?;
    if let Some(spilled) = recorded.spilled {
        return Err(spilled.into());
    }
    stale += usize::from(!matches!(recorded.state, FileState::Same | FileState::Written));
    if stale > 0 {
        eprintln!(
            "{stale} of {} files are not what their sources say: run `{}`",
            files.len() + 1,
            kernels::ptx::COMPILE_COMMAND
        );
        return Ok(Outcome::Found);
    }
    Ok(Outcome::Clean)
}

fn state(state: &FileState) -> String {
    match state {
        FileState::Same => "unchanged".to_owned(),
        FileState::Written => "written".to_owned(),
        FileState::Missing => "missing".to_owned(),
        FileState::Differs { line } => format!("differs from its source at line {line}"),
        FileState::Orphan => "has no source; delete it".to_owned(),
    }
}

/// The resources of what was compiled, a row an entry.
fn table(recorded: &Recorded) -> String {
    let mut text = format!("{:<20} {}\n", FILE, state(&recorded.state));
    let (a, b, c, d) = ("entry", "registers", "shared B", "spilled B");
    text.push_str(&format!("\n{a:<44} {b:>9} {c:>9} {d:>9}\n"));
    for (_, entry) in recorded.measured.rows() {
        text.push_str(&format!(
            "{:<44} {:>9} {:>9} {:>9}\n",
            entry.entry,
            entry.registers,
            entry.shared_bytes,
            entry.spilled_bytes()
        ));
    }
    text
}
