//! Arguments that are more than a number or a buffer: tensor maps with their boxes, structs of pieces.

use super::{assay, folder, run, shows};

const BOXES: &str = "\
.version 8.7
.target sm_90
.address_size 64
.visible .entry boxes(.param .align 64 .b8 map[128], .param .u64 out)
{
    .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %rd<6>;
    .shared .align 128 .b8 line[128]; .shared .align 8 .b64 full;
    mov.b64 %rd1, map; cvta.param.u64 %rd1, %rd1; ld.param.u64 %rd2, [out];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, line; mov.u32 %r4, full; mov.u32 %r5, 0;
    mov.u32 %r6, %cluster_nctarank;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared::cta.b64 [%r4], 1;
    bar.sync 0;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 128;
    @%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r3], [%rd1, {%r5, %r2}], [%r4];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r4], 0;
    @!%p2 bra WAIT;
    mad.lo.u32 %r7, %r1, 4, %r3; ld.shared.u32 %r8, [%r7]; add.u32 %r8, %r8, %r6;
    mad.lo.u32 %r9, %r2, 32, %r1; mul.wide.u32 %rd3, %r9, 4; add.u64 %rd3, %rd2, %rd3;
    st.global.u32 [%rd3], %r8;
    ret;
}
";

#[test]
fn tensor_maps_and_clusters() {
    let folder = folder();
    std::fs::write(folder.path().join("boxes.ptx"), BOXES).expect("written");
    let with = |rest: &[&str], map: &str| {
        let launch = ["run", "boxes.ptx", "--grid", "4", "--block", "32"];
        let args = ["--arg", map, "--arg", "out:u32:4x32=out.npy"];
        assay(folder.path(), &[&launch, rest, &args[..]].concat())
    };
    // Each block adds the size of its cluster to a line of sevens; the last block's is outside.
    shows(&with(&["--cluster", "2"], "tensormap:1x32:fill:u32:3x32:7"), 0, &["clean"]);
    let bytes = std::fs::read(folder.path().join("out.npy")).expect("saved");
    let last = |n: usize| bytes[bytes.len() - 128 * n..][..4].to_vec();
    assert_eq!((last(4), last(1)), (vec![9, 0, 0, 0], vec![2, 0, 0, 0]));
    shows(&with(&[], "tensormap:1x32+swizzle128:in:x.npy"), 2, &["x.npy"]);
    shows(
        &with(&["--cluster", "3"], "tensormap:1x32:fill:u32:3x32:7"),
        2,
        &["no whole number of clusters"],
    );
    shows(
        &with(&[], "tensormap:1x32:uninit:u32:3x32"),
        1,
        &["bytes that nobody wrote", "cp.async.bulk.tensor"],
    );
    shows(&with(&[], "tensormap:32:fill:u32:3x32:7"), 2, &["the box has 1 extents, the buffer 2"]);
    shows(
        &with(&[], "tensormap:1x3:fill:u32:3x32:7"),
        2,
        &["`box_dims` must be a multiple of 16 bytes"],
    );
    shows(&with(&[], "null"), 2, &["tensormap:BOX:BUFFER"]);
}

/// A struct of a pointer, a count and four bytes of nothing: `count` at `out`.
const IN_A_STRUCT: &str = "\
.version 8.0
.target sm_80
.address_size 64
.visible .entry _Z5storeILi7EEv6Target(.param .align 8 .b8 target[16]) {
    .reg .b32 %r1; .reg .b64 %rd1;
    ld.param.u64 %rd1, [target];
    ld.param.u32 %r1, [target+8];
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry other() { ret; }
";

#[test]
fn a_struct_is_given_by_its_pieces() {
    let folder = folder();
    let affine =
        |f: &str| run(folder.path(), "affine", "1", "4", &[], &[f, "fill:f64:3:5", "out:f64:3"]);
    shows(&affine("struct:0=f64:2;8=f64:-1;16=i32:3"), 0, &["3 of 3 elements written, least 9"]);
    for (text, says) in [
        ("struct:0=f64:2;20=f64:1", "affine_param_0 has 24 bytes; `f64:1` at 20 ends at 28"),
        ("struct:0=f64:2;4=i32:1", "affine_param_0 has another piece where `i32:1` at 4 is"),
        ("struct:0=5", "`0=5` is no piece of a struct; write AT=PIECE"),
        ("struct:0=struct:0=i32:1", "is no piece of a struct"),
        ("struct:x=i32:5", "`x=i32:5` is no piece of a struct"),
        ("struct:", "`` is no piece of a struct"),
        ("tensormap:8:fill:f32:8:0", "24 bytes, a tensor map 128: struct:0="),
    ] {
        shows(&affine(text), 2, &[says]);
    }
    std::fs::write(folder.path().join("struct.ptx"), IN_A_STRUCT).expect("written");
    let launch = ["run", "struct.ptx", "--grid", "1", "--block", "1"];
    // A part of a mangled name is enough, where one kernel has it.
    let with = |entry: &str, text: &str, rest: &[&str]| {
        assay(folder.path(), &[&launch, &["--entry", entry, "--arg", text][..], rest].concat())
    };
    let target = "struct:0=out:i32:2=y.npy;8=i32:9";
    let written = "i32 [2]: 1 of 2 elements written, least 9";
    shows(&with("store", target, &["--watch", "0[0]"]), 0, &[written, "0[0] = 9"]);
    assert!(folder.path().join("y.npy").is_file());
    shows(&with("store", "struct:0=fill:i32:2:0;8=i32:9", &[]), 1, &["must not be written"]);
    shows(&with("store", "struct:8=i32:9", &["--watch", "0[0]"]), 2, &["nor a struct with one"]);
    shows(&with("o", target, &[]), 2, &["the PTX has no kernel `o`"]);
}
