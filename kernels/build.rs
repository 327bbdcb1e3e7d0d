//! Lists the generated PTX files that exist, so that the crate embeds exactly those: a kernel whose
//! PTX was never made still builds, and the command that makes it can run.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=ptx");
    println!("cargo::rerun-if-changed=build.rs");
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?).join("ptx");
    let mut files = Vec::new();
    match fs::read_dir(&folder) {
        Ok(entries) => {
            for entry in entries {
                let path = entry?.path();
                if path.extension().is_some_and(|extension| extension == "ptx") {
                    files.push(path);
                }
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    files.sort();
    let mut table = String::from("&[\n");
    for path in &files {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        // Resolved where the crate is compiled: checkouts may share a target folder.
        let file = format!("/ptx/{stem}.ptx");
        writeln!(
            table,
            "    ({stem:?}, include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), {file:?}))),"
        )
        .map_err(io::Error::other)?;
    }
    table.push(']');
    let out = Path::new(&env::var("OUT_DIR").map_err(io::Error::other)?).join("ptx_table.rs");
    fs::write(out, table)
}
