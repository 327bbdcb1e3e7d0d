//! A watch names the last store to a byte, whatever form it has, and changes no result.

mod support;

use ptx_vm::{
    BufferId, Coverage, Launch, Limits, Memory, Module, Options, Stats, Stop, Watch, Write,
    launch_watched, marks,
};
use support::{Gdn, Parameters, Random, bf16, bytes_f32, bytes32, from_bf16, gemm, top_k, words};

/// A kernel `t(p)` with `%rd1` = p, `%r1` = tid, `%rd3` = &p[tid], `%r2` = block.
fn kernel(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry t(.param .u64 p)\n{{\n\
         .reg .pred %p<4>;.reg .b16 %rs<4>;.reg .f32 %f<4>;.reg .b32 %r<9>;.reg .b64 %rd<9>;\n\
         ld.param.u64 %rd1, [p];mov.u32 %r1, %tid.x;mul.wide.u32 %rd2, %r1, 4;\n\
         add.s64 %rd3, %rd1, %rd2;mov.u32 %r2, %ctaid.x;\n{body}\nret;\n}}\n"
    )
}

/// PTX line of the first line of a body.
const FIRST: u32 = 9;

struct Watched {
    memory: Memory,
    watch: Watch,
    result: Result<Stats, Stop>,
}

const X: BufferId = BufferId(0);

fn run(body: &str, blocks: u32, threads: u32) -> Watched {
    let module = Module::parse(&kernel(body)).unwrap();
    let mut memory = Memory::new();
    // Where two blocks store, they store the same.
    let x = memory.allocate("x", 1024, &[], marks::SAME_VALUE);
    memory.write(x, 0, &bytes32(&[7; 256]));
    let mut watch = Watch::new();
    watch.add(&memory, x, 40..48);
    let result = again(&module, &mut memory, &mut watch, blocks, threads);
    Watched { memory, watch, result }
}

fn again(
    module: &Module,
    memory: &mut Memory,
    watch: &mut Watch,
    blocks: u32,
    threads: u32,
) -> Result<Stats, Stop> {
    let parameters = Parameters::default().u64(memory.address(X, 0)).0;
    let what = Launch {
        entry: "t",
        grid: [blocks, 1, 1],
        block: [threads, 1, 1],
        dynamic_shared_bytes: 0,
        parameters: &parameters,
    };
    let limits = Limits { instructions: 10_000, ..Limits::default() };
    let mut coverage = Coverage::new();
    launch_watched(module, memory, &what, &limits, &Options::default(), &mut coverage, watch)
}

impl Watched {
    #[track_caller]
    fn last(&self, offset: u64) -> &Write {
        self.result.as_ref().unwrap();
        self.watch.last(X, offset).expect("a store")
    }
}

#[test]
fn a_store_is_named_with_thread_line_and_value() {
    let run = run("mul.lo.s32 %r3, %r1, 3;\nst.global.u32 [%rd3], %r3;", 2, 64);
    let write = run.last(40);
    assert_eq!((write.ptx_line, write.block, write.thread), (FIRST + 1, [1, 0, 0], [10, 0, 0]));
    assert_eq!((&*write.values, write.offset, write.width_bytes), (&[30][..], 40, 4));
    assert_eq!(write.instruction, "st.global.u32 [%rd3], %r3;");
    assert_eq!(run.last(44).thread, [11, 0, 0]);
    // Two elements, two blocks.
    assert_eq!(run.watch.stores(X, 40), 4);
    assert_eq!(
        write.to_string(),
        "PTX line 10: st.global.u32 [%rd3], %r3, t, block [1, 0, 0], thread [10, 0, 0], \
         storing 0x0000001e (30), computed by PTX line 9: mul.lo.s32 %r3, %r1, 3"
    );
    assert_eq!(format!("{write:#}").lines().count(), 4);
}

#[test]
fn scattered_and_generic_stores_are_seen() {
    // Threads in the reverse order: no run of addresses.
    let body = "mov.u32 %r3, 31;sub.u32 %r3, %r3, %r1;mul.wide.u32 %rd4, %r3, 4;add.s64 %rd5, %rd1, %rd4;\n\
                st.u32 [%rd5], %r1;";
    assert_eq!(run(body, 1, 32).last(40).thread, [21, 0, 0]);
}

#[test]
fn a_vector_store_has_all_its_values() {
    let body = "setp.eq.u32 %p1, %r1, 3;mov.f32 %f0, 0f3f800000;mov.f32 %f1, 0fc0000000;\n\
                @%p1 st.global.v4.f32 [%rd1+32], {%f0, %f1, %f0, %f1};";
    let run = run(body, 1, 32);
    let write = run.last(44);
    assert_eq!((write.thread, write.offset), ([3, 0, 0], 32));
    assert_eq!(write.values, [0x3f80_0000, 0xc000_0000, 0x3f80_0000, 0xc000_0000]);
    assert!(write.to_string().contains("0x3f800000 (1.0), 0xc0000000 (-2.0)"), "{write}");
}

#[test]
fn bytes_have_writers_of_their_own() {
    let body = "setp.ne.u32 %p1, %r1, 0;@%p1 bra $two;st.global.u32 [%rd1+40], %r1;bra.uni $end;\n\
                $two:\nst.global.u8 [%rd1+42], %r1;\n$end:";
    let run = run(body, 1, 2);
    let lines = [40, 41, 42, 43].map(|at| run.last(at).ptx_line);
    let (word, byte) = (lines[0], lines[2]);
    assert_ne!(word, byte);
    assert_eq!(lines, [word, word, byte, word]);
}

#[test]
fn what_nobody_stores_to_has_no_writer() {
    let near = "setp.eq.u32 %p1, %r1, 99;@%p1 st.global.u32 [%rd1+40], %r1;\n\
                st.global.u32 [%rd1+36], %r1;st.global.u32 [%rd1+48], %r1;ld.global.u32 %r3, [%rd1+40];";
    let run = run(near, 1, 1);
    run.result.as_ref().unwrap();
    assert_eq!((run.watch.last(X, 40), run.watch.stores(X, 40)), (None, 0));
    // Nor has what nobody watches.
    assert_eq!(run.watch.last(X, 36), None);
}

#[test]
fn atomics_say_what_they_found() {
    let body = "atom.global.add.u32 %r3, [%rd1+40], 5;\nred.global.max.u32 [%rd1+44], %r1;";
    let found = run(body, 1, 3);
    let write = found.last(40);
    assert_eq!((write.thread, write.atomic, write.before), ([2, 0, 0], true, Some(17)));
    assert_eq!(write.values, [5]);
    assert_eq!(words(&found.memory, X)[10], 22);
    let write = found.last(44);
    assert_eq!((write.ptx_line, write.before, &*write.values), (FIRST + 1, None, &[2][..]));
    // The result may replace the operand.
    let swap = run("mov.u32 %r3, 7;atom.global.cas.b32 %r3, [%rd1+40], %r3, 9;", 1, 1);
    let write = swap.last(40);
    assert_eq!((&*write.values, write.before), (&[7, 9][..], Some(7)));
}

#[test]
fn the_last_of_several_launches_counts() {
    let module = Module::parse(&kernel("st.global.u32 [%rd3], %r1;")).unwrap();
    let mut first = run("st.global.u32 [%rd1+44], %r1;", 1, 1);
    again(&module, &mut first.memory, &mut first.watch, 1, 11).unwrap();
    assert_eq!((first.last(40).launch, first.last(44).launch), (1, 0));
}

#[test]
fn a_fault_keeps_the_stores_before_it() {
    let run = run("st.global.u32 [%rd1+40], %r1;\nst.global.u32 [%rd1+1024], %r1;", 1, 1);
    assert!(matches!(run.result, Err(Stop::Fault(_))));
    assert_eq!(run.watch.last(X, 40).map(|write| write.ptx_line), Some(FIRST));
}

/// Runs a kernel again under a watch of what it wrote, and compares results and costs.
#[track_caller]
fn same_under_watch(
    module: &Module,
    memory: &mut Memory,
    what: (&str, [u32; 3], u32),
    scalars: &[u32],
    outputs: &[(BufferId, Vec<u8>)],
    plain: Stats,
) {
    let (entry, grid, threads) = what;
    let mut parameters = Parameters::default();
    for buffer in memory.buffers() {
        parameters = parameters.u64(memory.address(buffer, 0));
    }
    for scalar in scalars {
        parameters = parameters.u32(*scalar);
    }
    let all = |memory: &Memory, buffer: BufferId| {
        let mut bytes = vec![0; memory.len_bytes(buffer) as usize];
        memory.read(buffer, 0, &mut bytes);
        bytes
    };
    let mut watch = Watch::new();
    let mut expected = Vec::new();
    for (buffer, before) in outputs {
        expected.push(all(memory, *buffer));
        memory.write(*buffer, 0, before);
        watch.add(memory, *buffer, 0..before.len() as u64);
    }
    let launch = Launch {
        entry,
        grid,
        block: [threads, 1, 1],
        dynamic_shared_bytes: 0,
        parameters: &parameters.0,
    };
    let (limits, options) = (Limits::default(), Options::default());
    let cost = launch_watched(
        module,
        memory,
        &launch,
        &limits,
        &options,
        &mut Coverage::new(),
        &mut watch,
    );
    assert_eq!(cost.unwrap(), plain);
    for ((buffer, before), expected) in outputs.iter().zip(expected) {
        assert_eq!(all(memory, *buffer), expected);
        for at in 0..before.len() as u64 {
            let write = watch.last(*buffer, at).expect("every byte is stored to");
            let value = write.values[((at - write.offset) / u64::from(write.width_bytes)) as usize];
            let byte = (at - write.offset) % u64::from(write.width_bytes);
            assert_eq!(value.to_le_bytes()[byte as usize], expected[at as usize], "byte {at}");
        }
    }
}

#[test]
fn a_watch_changes_no_result() {
    let mut memory = Memory::new();
    let options = Options::default();
    let mut random = Random(4);

    let module = Module::parse(include_str!("ptx/topk.sm80.ptx")).unwrap();
    let row: Vec<f32> = (0..777).map(|_| (random.unit() * 50.0).floor()).collect();
    let (index, value, cost) = top_k(&module, &mut memory, &row, 32, &options).unwrap();
    let outputs = [index, value].map(|b| (b, vec![0xee; 128]));
    let what = ("topk_rows", [1, 1, 1], 256);
    same_under_watch(&module, &mut memory, what, &[777, 32], &outputs, cost);

    let module = Module::parse(include_str!("ptx/gemm.sm80.ptx")).unwrap();
    let many: Vec<f32> = (0..64 * 64).map(|_| from_bf16(bf16(random.unit()))).collect();
    let (c, cost) = gemm(&module, &mut memory, &many, &many, [64; 3], &options).unwrap();
    let outputs = [(c, vec![0xee; 64 * 64 * 2])];
    let what = ("gemm_bf16", [1, 1, 1], 128);
    same_under_watch(&module, &mut memory, what, &[64; 3], &outputs, cost);

    let module = Module::parse(include_str!("ptx/gdn.sm80.ptx")).unwrap();
    let case = Gdn::new(2, 32, 5);
    let (state, out, cost) = case.run(&module, &mut memory, &options).unwrap();
    let outputs = [(state, bytes_f32(&case.state)), (out, vec![0xee; 2 * 32 * 2])];
    let what = ("gdn_32", [2, 1, 1], 128);
    let scalars = [2, 2, 1e-6f32.to_bits()];
    same_under_watch(&module, &mut memory, what, &scalars, &outputs, cost);
}

#[test]
fn the_value_is_followed_to_its_only_definition() {
    let line = |body: &str| {
        let run = run(body, 1, 32);
        run.last(40)
            .computed
            .as_ref()
            .map(|computed| (computed.ptx_line, computed.instruction.clone()))
    };
    let expect = |at: u32, text: &str| Some((FIRST + at, text.to_owned()));
    // Through moves and conversions, and out of a vector.
    let chain = "cvt.rn.f32.u32 %f1, %r1;\nadd.f32 %f2, %f1, %f1;\nmov.b32 %r3, %f2;mov.u32 %r4, %r3;\n\
                 st.global.u32 [%rd3], %r4;";
    assert_eq!(line(chain), expect(1, "add.f32 %f2, %f1, %f1"));
    let vector = "ld.global.v2.u32 {%r3, %r4}, [%rd1+64];\n@%p1 add.u32 %r5, %r4, 1;\n\
                  st.global.v2.u32 [%rd1+40], {%r4, %r3};";
    let vector = vector.replace("@%p1 add", "setp.eq.u32 %p1, %r1, 0;@%p1 add");
    assert_eq!(line(&vector), expect(0, "ld.global.v2.u32 {%r3, %r4}, [%rd1+64]"));
    let second = "add.u32 %r3, %r1, 1;\nadd.u32 %r4, %r1, 2;\nst.global.v2.u32 [%rd1+32], {%r3, 7};\n\
                  st.global.v2.u32 [%rd1+40], {5, %r4};";
    let second = run(second, 1, 1);
    assert_eq!(second.last(40).computed, None, "an immediate");
    let computed = second.last(44).computed.as_ref().map(|computed| computed.ptx_line);
    assert_eq!(computed, Some(FIRST + 1));
    // Two definitions: the text does not say which was last.
    let two = "mov.u32 %r3, 1;setp.gt.u32 %p1, %r1, 3;\n@%p1 add.u32 %r3, %r1, 4;\n\
               st.global.u32 [%rd3], %r3;";
    assert_eq!(line(two), None);
    // An immediate is computed nowhere.
    assert_eq!(line("st.global.u32 [%rd3], 5;"), None);
}

#[test]
fn a_line_of_an_inlined_function_names_the_call_too() {
    let body = "\t.loc\t1 40 5\nmov.u32 %r4, 1;\n\
                \t.loc\t2 7 3, function_name $L__info_string0, inlined_at 1 40 5\n\
                mul.lo.s32 %r3, %r1, 3;\n\
                \t.loc\t2 9 1, function_name $L__info_string1+4, inlined_at 2 7 3\n\
                st.global.u32 [%rd3], %r3;\n\t.loc\t1 41 5";
    let last = "ld.global.u32 %r3, [%rd3+4096];";
    let text = |body: &str| kernel(body) + "\t.file\t1 \"step.cu\"\n\t.file\t2 \"row.cuh\"\n";
    let mut memory = Memory::new();
    let x = memory.allocate("x", 1024, &[0], marks::INIT);
    let mut watch = Watch::new();
    watch.add(&memory, x, 40..44);
    again(&Module::parse(&text(body)).unwrap(), &mut memory, &mut watch, 1, 32).unwrap();
    let write = watch.last(X, 40).unwrap();
    let source = write.source.as_ref().unwrap();
    assert_eq!((&*source.file, source.line), ("row.cuh", 9));
    assert_eq!(source.to_string(), "row.cuh:9, inlined at row.cuh:7, inlined at step.cu:40");
    let said = write.to_string();
    assert!(said.contains("(row.cuh:7, inlined at step.cu:40)"), "computed there: {said}");
    assert!(said.contains("st.global.u32 [%rd3], %r3 (row.cuh:9, inlined at row.cuh:7"), "{said}");

    // A fault in the function, and one after it.
    for (body, said) in [
        (
            body.replace("st.global.u32 [%rd3]", "st.global.u32 [%rd3+4096]"),
            "; row.cuh:9, inlined at row.cuh:7, inlined at step.cu:40)",
        ),
        (format!("{body}\n{last}"), "; step.cu:41)"),
    ] {
        let module = Module::parse(&text(&body)).unwrap();
        let stop = again(&module, &mut memory, &mut watch, 1, 32).unwrap_err();
        assert!(stop.to_string().ends_with(said), "{stop}");
    }
}

#[test]
fn calls_of_compiled_kernels_lead_to_the_kernel() {
    for text in [include_str!("ptx/gdn.sm121a.ptx"), include_str!("../../ptx/ple_gather.ptx")] {
        let module = Module::parse(text).unwrap();
        let blocks = module.entries().flat_map(|entry| entry.blocks());
        let lines: Vec<_> = blocks.filter_map(|block| block.source.as_ref()).collect();
        let mut inlined = 0;
        for line in &lines {
            let mut outermost = *line;
            while let Some(call) = &outermost.called_from {
                outermost = call;
            }
            assert!(outermost.file.ends_with(".cu"), "{line}");
            inlined += usize::from(line.called_from.is_some());
        }
        assert!(0 < inlined && inlined < lines.len(), "{inlined} of {}", lines.len());
    }
}
