//! `assay doctor`: what this machine can do, and what would let it do more.

use crate::{Failure, Format, Outcome, repository, say};
use kernels::compile::{Compiler, PINNED_COMPILER, REQUIREMENTS};
use properties::report::Paint;
use properties::subject::known_subjects;
use serde_json::json;
use std::process::Command;

#[derive(clap::Args)]
pub struct Arguments {
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// One ability.
struct Finding {
    /// What it lets one do.
    ability: &'static str,
    /// What was found, or what is missing and how to get it.
    state: Result<String, String>,
    /// Whether nothing works without it.
    is_needed: bool,
}

pub fn run(arguments: Arguments) -> Result<Outcome, Failure> {
    let compiler = Compiler::find();
    let findings = [
        Finding { ability: "search, test, replay", state: machine(), is_needed: true },
        Finding { ability: "kernels to run", state: ptx(), is_needed: true },
        Finding { ability: "keep regressions", state: corpora(), is_needed: true },
        Finding { ability: "compile kernels", state: nvrtc(&compiler), is_needed: false },
        Finding { ability: "record resources", state: ptxas(&compiler), is_needed: false },
        Finding { ability: "cargo fuzz", state: fuzzing(), is_needed: false },
        Finding { ability: "run on a GPU", state: gpu(), is_needed: false },
    ];
    match arguments.format {
        Format::Text => say(&text(&findings))?,
        Format::Json => say(&format!("{}\n", document(&findings)))?,
    }
    match findings.iter().find(|finding| finding.is_needed && finding.state.is_err()) {
        Some(finding) => Err(Failure(format!("{}: not possible here", finding.ability))),
        None => Ok(Outcome::Clean),
    }
}

fn text(findings: &[Finding]) -> String {
    let paint = Paint::stdout();
    let line = |finding: &Finding| match &finding.state {
        Ok(what) => format!("yes  {:<22} {what}\n", finding.ability),
        Err(why) => format!("{}  {:<22} {why}\n", paint.bad("no "), finding.ability),
    };
    findings.iter().map(line).collect()
}

fn document(findings: &[Finding]) -> serde_json::Value {
    let one = |finding: &Finding| {
        let detail = finding.state.as_ref().unwrap_or_else(|why| why);
        json!({"ability": finding.ability, "here": finding.state.is_ok(), "detail": detail})
    };
    findings.iter().map(one).collect()
}

fn machine() -> Result<String, String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    #[cfg(target_arch = "x86_64")]
    let vectors = if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        "AVX2 and FMA"
    } else {
        "no AVX2 or FMA: some ten times slower on matrix kernels"
    };
    #[cfg(not(target_arch = "x86_64"))]
    let vectors = "the portable build";
    Ok(format!("PTX virtual machine, {cores} cores, {vectors}"))
}

fn ptx() -> Result<String, String> {
    let mut kernels = 0;
    for subject in known_subjects() {
        kernels::ptx::check_fresh(subject.name()).map_err(|error| error.to_string())?;
        kernels += 1;
    }
    Ok(format!("{kernels} modules, as their sources say"))
}

fn corpora() -> Result<String, String> {
    let root = repository().join("corpora");
    crate::search::writable(Some(&root)).map_err(|Failure(text)| text)?;
    Ok(root.display().to_string())
}

fn nvrtc(compiler: &Result<Compiler, kernels::compile::CompileError>) -> Result<String, String> {
    let compiler = compiler.as_ref().map_err(|error| error.to_string())?;
    let (major, minor) = compiler.release().map_err(|error| error.to_string())?;
    let library = compiler.installation().library.display();
    if PINNED_COMPILER.starts_with(&format!("{major}.{minor}.")) {
        return Ok(format!("NVRTC {major}.{minor} at {library}"));
    }
    Err(format!(
        "{library} is NVRTC {major}.{minor}, kernels/ptx is made with {PINNED_COMPILER}: \
         `pip install --no-deps --require-hashes -r {REQUIREMENTS}`"
    ))
}

fn ptxas(compiler: &Result<Compiler, kernels::compile::CompileError>) -> Result<String, String> {
    let found = compiler.as_ref().ok().and_then(Compiler::ptxas);
    found.map(|path| path.display().to_string()).ok_or_else(|| {
        format!("no ptxas: `pip install --no-deps --require-hashes -r {REQUIREMENTS}`")
    })
}

fn fuzzing() -> Result<String, String> {
    if !cfg!(target_os = "linux") {
        return Err("needs Linux".to_owned());
    }
    let version = |program: &str, argument: &str| {
        let output = Command::new(program).arg(argument).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).lines().next()?.to_owned();
        output.status.success().then_some(text)
    };
    let fuzz = version("cargo-fuzz", "--version").ok_or("`cargo install cargo-fuzz --locked`")?;
    let compiler =
        ["c++", "g++", "clang++"].into_iter().find_map(|name| version(name, "--version"));
    let compiler = compiler.ok_or("a C++ compiler is missing (libFuzzer is built with it)")?;
    Ok(format!("{fuzz}, {compiler}"))
}

#[cfg(feature = "cuda")]
fn gpu() -> Result<String, String> {
    let gpu = kernels::backend::cuda::CudaBackend::new().map_err(|error| error.to_string())?;
    Ok(gpu.device())
}

#[cfg(not(feature = "cuda"))]
fn gpu() -> Result<String, String> {
    Err("built without it: `cargo run --release --features properties/cuda -- doctor`".to_owned())
}
