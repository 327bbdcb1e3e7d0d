//! The targets of contracts and of rounds are guided by the kernels' branches and by the decisions that
//! made a case (`ptx_vm::guidance`), never by the harness's own code. There, the functions through which
//! instrumented code tells libFuzzer of its branches and comparisons are linked to one that does
//! nothing: they and the counters of 300,000 branches took half of the time. The targets of the virtual
//! machine, whose own code is what they test, keep libFuzzer's.

/// What instrumented code calls: `__sanitizer_cov_` and one of these.
const HOOKS: [&str; 12] = [
    "8bit_counters_init",
    "pcs_init",
    "trace_cmp1",
    "trace_cmp2",
    "trace_cmp4",
    "trace_cmp8",
    "trace_const_cmp1",
    "trace_const_cmp2",
    "trace_const_cmp4",
    "trace_const_cmp8",
    "trace_pc_indir",
    "trace_switch",
];
/// What AddressSanitizer's `memcmp` calls.
const MEMCMP: &str = "__sanitizer_weak_hook_memcmp";
/// `ptx_vm`, built for libFuzzer, has it.
const NOTHING: &str = "__sanitizer_ptx_vm_nothing";

fn main() {
    println!("cargo:rerun-if-changed=Cargo.toml");
    println!("cargo:rerun-if-changed=build.rs");
    let manifest =
        std::fs::read_to_string("Cargo.toml").expect("cargo runs this beside the manifest");
    let hooks = HOOKS.map(|hook| format!("__sanitizer_cov_{hook}"));
    for target in manifest.split("\n[[bin]]\n").skip(1) {
        if target.contains("\"fuzz_targets/ptx_") {
            continue;
        }
        let name = target.split('"').nth(1).expect("an entry begins with its name");
        for hook in hooks.iter().map(String::as_str).chain([MEMCMP]) {
            println!(
                "cargo:rustc-link-arg-bin={name}=-Wl,--wrap={hook},--defsym=__wrap_{hook}={NOTHING}"
            );
        }
    }
}
