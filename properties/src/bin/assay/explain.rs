//! `assay explain`: contracts in sentences; `assay schema`: their format for an editor.

use crate::{Failure, Outcome, say, subjects};
use properties::report;

#[derive(clap::Args)]
pub struct Arguments {
    /// Contracts.
    #[arg(required = true, value_name = "CONTRACT")]
    contracts: Vec<String>,
}

pub fn run(arguments: Arguments) -> Result<Outcome, Failure> {
    let texts: Vec<_> = subjects(&arguments.contracts)?.into_iter().map(report::explain).collect();
    say(&texts.join("\n"))?;
    Ok(Outcome::Clean)
}

pub fn schema() -> Result<Outcome, Failure> {
    say(&format!("{:#}\n", contracts::format::Contract::json_schema()))?;
    Ok(Outcome::Clean)
}
