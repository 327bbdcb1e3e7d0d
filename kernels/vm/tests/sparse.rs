//! A tensor of 2³³ elements costs what is touched of it. Alone in its process, whose memory it
//! measures.

mod support;

use ptx_vm::{FaultKind, Memory, Module, Options, Stop, marks};
use support::{Parameters, go};

const ELEMENTS: u64 = 1 << 33;
const ROWS: u64 = 64;
const STRIDE: u64 = ELEMENTS / ROWS;
const COLUMNS: u64 = 4096;

/// Block b doubles the first elements of row b.
const KERNEL: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry t(.param .u64 p, .param .u64 stride)
{
.reg .pred %p<3>;.reg .f32 %f<3>;.reg .b32 %r<9>;.reg .b64 %rd<9>;
ld.param.u64 %rd1, [p];ld.param.u64 %rd2, [stride];
mov.u32 %r1, %ctaid.x;cvt.u64.u32 %rd3, %r1;mul.lo.s64 %rd3, %rd3, %rd2;add.s64 %rd1, %rd1, %rd3;
mov.u32 %r2, %tid.x;
L: mul.wide.u32 %rd4, %r2, 4;add.s64 %rd4, %rd4, %rd1;
ld.global.f32 %f1, [%rd4];add.f32 %f1, %f1, %f1;st.global.f32 [%rd4], %f1;
add.u32 %r2, %r2, 256;setp.lt.u32 %p1, %r2, 4096;@%p1 bra L;
ret;
}
";

/// The most memory the process ever had, in bytes.
#[cfg(target_os = "linux")]
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn rows_far_apart_cost_their_pages() {
    let module = Module::parse(KERNEL).unwrap();
    let mut memory = Memory::new();
    let x = memory.allocate("x", ELEMENTS * 4, &1.5f32.to_le_bytes(), marks::INIT);
    let launch = |memory: &mut Memory, stride: u64| {
        let parameters = Parameters::default().u64(memory.address(x, 0)).u64(stride).0;
        let grid = [ROWS as u32, 1, 1];
        go(&module, memory, "t", grid, [256, 1, 1], &parameters, &Options::default())
    };
    launch(&mut memory, STRIDE * 4).unwrap();
    let written = memory.written_ranges(x);
    let rows: Vec<_> =
        (0..ROWS).map(|row| row * STRIDE * 4..row * STRIDE * 4 + COLUMNS * 4).collect();
    assert_eq!(written, rows);
    let mut last = [0; 4];
    memory.read(x, rows[63].end - 4, &mut last);
    assert_eq!(f32::from_le_bytes(last), 3.0);
    memory.read(x, ELEMENTS * 4 - 4, &mut last);
    assert_eq!(f32::from_le_bytes(last), 1.5);
    // Faults are as exact out there: the last row of a stride too large lies outside.
    match launch(&mut memory, STRIDE * 4 + STRIDE / 8) {
        Err(Stop::Fault(fault)) => match fault.kind {
            FaultKind::OutOfBounds { buffer: Some(place), .. } => {
                assert!(place.offset >= place.len_bytes as i64);
            }
            other => panic!("{other}"),
        },
        other => panic!("expected a fault, got {other:?}"),
    }
    // And a row that two blocks share races.
    match launch(&mut memory, COLUMNS * 4 - 4) {
        Err(Stop::Fault(fault)) => match fault.kind {
            FaultKind::BlockRace { buffer: Some(place), .. } => {
                assert_eq!(place.offset, COLUMNS as i64 * 4 - 4);
            }
            other => panic!("{other}"),
        },
        other => panic!("expected a fault, got {other:?}"),
    }
    #[cfg(target_os = "linux")]
    assert!(peak_bytes() < 100 << 20, "{} bytes at the peak", peak_bytes());
}
