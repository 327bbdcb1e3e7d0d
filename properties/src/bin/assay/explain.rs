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

#[derive(clap::Args)]
pub struct SchemaArguments {
    /// Contracts of kernels, or of protocols.
    #[arg(long, value_enum, default_value_t = Kind::Kernel)]
    kind: Kind,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Kind {
    Kernel,
    Protocol,
}

pub fn schema(arguments: SchemaArguments) -> Result<Outcome, Failure> {
    let schema = match arguments.kind {
        Kind::Kernel => contracts::format::Contract::json_schema(),
        Kind::Protocol => contracts::protocol::Protocol::json_schema(),
    };
    say(&format!("{schema:#}\n"))?;
    Ok(Outcome::Clean)
}
