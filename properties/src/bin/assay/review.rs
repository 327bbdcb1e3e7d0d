//! `assay review`: what a change weakens, and whether it says why. Exit code 1 where a weakening has no
//! reason. The report of another run can be shown again, so that a job that may comment on a pull
//! request never runs its code.

use crate::{Failure, Outcome, say};
use clap::ValueEnum;
use properties::report::Paint;
use properties::review::{Git, Review, ReviewError, review_repository, show};
use std::path::{Path, PathBuf};

/// Largest report shown again.
const LIMIT_BYTES: u64 = 32 << 20;

#[derive(clap::Args)]
pub struct Arguments {
    /// What the change grew from: a branch, a tag or a commit. The commit where it and the head part is compared.
    #[arg(
        long,
        value_name = "REF",
        required_unless_present = "render",
        allow_hyphen_values = true
    )]
    base: Option<String>,
    /// What the change came to; the working tree when not given.
    #[arg(long, value_name = "REF", conflicts_with = "render", allow_hyphen_values = true)]
    head: Option<String>,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Form::Terminal)]
    format: Form,
    /// Also write the report as JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Where the clone is; the current folder when not given.
    #[arg(long, value_name = "FOLDER")]
    repository: Option<PathBuf>,
    /// Show a report that was written before, and compare nothing.
    #[arg(long, value_name = "FILE", conflicts_with = "base")]
    render: Option<PathBuf>,
}

/// Whom the review is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A person at a terminal.
    Terminal,
    /// A pull request's comment.
    Markdown,
    /// A program.
    Json,
}

pub fn run(arguments: Arguments) -> Result<Outcome, Failure> {
    let review = match &arguments.render {
        Some(file) => read(file)?,
        None => compared(&arguments).unwrap_or_else(|error| Review::failed(error.to_string())),
    };
    if let Some(file) = &arguments.report {
        let named = |error: std::io::Error| Failure(format!("{}: {error}", file.display()));
        std::fs::write(file, show::json(&review)).map_err(named)?;
    }
    // For a person the message is enough; a comment or a program is told in its own form as well.
    if review.error.is_none() || arguments.format != Form::Terminal {
        say(&match arguments.format {
            Form::Terminal => show::terminal(&review, Paint::stdout()),
            Form::Markdown => show::markdown(&review),
            Form::Json => format!("{}\n", show::json(&review)),
        })?;
    }
    match (&review.error, review.unjustified()) {
        (Some(error), _) => Err(Failure(show::one_line(error))),
        (None, 0) => Ok(Outcome::Clean),
        (None, _) => Ok(Outcome::Found),
    }
}

fn compared(arguments: &Arguments) -> Result<Review, ReviewError> {
    let here = PathBuf::from(".");
    let git = Git::open(arguments.repository.as_ref().unwrap_or(&here))?;
    let base = arguments.base.as_deref().unwrap_or_default();
    review_repository(&git, base, arguments.head.as_deref())
}

fn read(file: &Path) -> Result<Review, Failure> {
    let named = |what: String| Failure(format!("{}: {what}", file.display()));
    let about = std::fs::metadata(file).map_err(|error| named(error.to_string()))?;
    // A pipe or a device would be waited for, or never end.
    if !about.is_file() {
        return Err(named("no regular file; name the file that --report wrote".to_owned()));
    }
    let len_bytes = about.len();
    if len_bytes > LIMIT_BYTES {
        return Err(named(format!("{len_bytes} bytes are more than the limit of {LIMIT_BYTES}")));
    }
    let text = std::fs::read_to_string(file).map_err(|error| named(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| {
        named(format!("no report of `assay review --report`: {error}; write it with this version"))
    })
}
