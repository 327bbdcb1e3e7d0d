//! Real PTX, one kernel a piece: what a mutated module starts from. A piece holds all that its module
//! has outside its kernels, so it stands alone.

use std::sync::OnceLock;

/// Larger pieces are left out: an input should take a millisecond.
const LARGEST_BYTES: usize = 12 << 10;

macro_rules! texts {
    ($($path:literal)*) => { &[$(include_str!(concat!("../../kernels/", $path))),*] };
}

const TEXTS: &[&str] = texts! {
    "ptx/argmax_rows.ptx" "ptx/canary_row_sum.ptx" "ptx/ple_gather.ptx" "ptx/row_topk.ptx"
    "vm/tests/ptx/blocks.sm80.ptx" "vm/tests/ptx/calls.sm90.ptx" "vm/tests/ptx/calls.sm121a.ptx"
    "vm/tests/ptx/gemm.sm80.ptx" "vm/tests/ptx/misc.sm90.ptx" "vm/tests/ptx/pipeline.sm80.ptx"
    "vm/tests/ptx/sim.sm80.ptx" "vm/tests/ptx/sim.sm121a.ptx" "vm/tests/ptx/topk.sm90.ptx"
    "vm/tests/ptx/triton/softmax.sm80.ptx" "vm/tests/ptx/triton/matmul_fp8e5.sm90.ptx"
    "vm/tests/hardware/cluster.ptx"
};

/// Every kernel of the texts that is small enough, as a module of its own.
pub fn pieces() -> &'static [String] {
    static PIECES: OnceLock<Vec<String>> = OnceLock::new();
    PIECES.get_or_init(|| TEXTS.iter().flat_map(|text| split(text)).collect())
}

/// Comments and empty lines say nothing; a kernel goes from its `.entry` to a brace at the start of a
/// line.
fn split(text: &str) -> Vec<String> {
    let mut common = String::new();
    let mut kernels: Vec<String> = Vec::new();
    let mut within = false;
    for line in text.lines() {
        if line.is_empty() || line.trim_start().starts_with("//") || line.starts_with(".file") {
            continue;
        }
        if line.contains(".entry") {
            kernels.push(String::new());
            within = true;
        }
        let to = match kernels.last_mut() {
            Some(kernel) if within => kernel,
            _ => &mut common,
        };
        to.push_str(line.trim_start());
        to.push('\n');
        within &= !line.starts_with('}');
    }
    let modules = kernels.iter().map(|kernel| format!("{common}{kernel}"));
    modules.filter(|module| module.len() <= LARGEST_BYTES).collect()
}
