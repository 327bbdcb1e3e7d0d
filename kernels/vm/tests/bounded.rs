//! Memory that copies under way take: a process of its own, whose memory is measured.

mod support;

use ptx_vm::{Memory, Module, Options};
use support::go;

#[test]
fn copies_that_no_phase_completes_take_no_more_memory_than_shared_memory_has() {
    // The mbarrier waits for an arrival that never comes, while copies come and go.
    let body = ".shared .align 8 .b64 m;.shared .align 128 .b8 s[8192];mbarrier.init.shared.b64 [m], 1;mov.u64 %rd2, g;mov.u32 %r1, 0;\
        L: mbarrier.expect_tx.relaxed.cta.shared.b64 [m], 8192;\
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%rd2], 8192, [m];\
        add.u32 %r1, %r1, 1;setp.lt.u32 %p1, %r1, 6000;@%p1 bra L;";
    let text = format!(
        ".version 8.4\n.target sm_90\n.address_size 64\n.global .align 16 .b8 g[8192];\n.visible .entry t()\n{{\n\
         .reg .pred %p<4>;.reg .b32 %r<9>;.reg .b64 %rd<9>;\n{body}\nret;\n}}\n"
    );
    let module = Module::parse(&text).unwrap();
    let mut memory = Memory::new();
    let before = resident_bytes();
    go(&module, &mut memory, "t", [1; 3], [1; 3], &[], &Options::default()).unwrap();
    // 48 MB were copied.
    assert!(resident_bytes() < before + (16 << 20));
}

/// Of this process.
fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|n| n.parse::<usize>().ok()).unwrap_or(0) * 4096
}
