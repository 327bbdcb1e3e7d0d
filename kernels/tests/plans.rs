//! What all launch functions plan: arguments that fit every entry of the PTX, grids, scratch, empty work and
//! callers' layouts.

mod support;

use contracts::dtype::DType;
use kernels::call::Call;
use kernels::launch::Argument;
use std::collections::BTreeSet;
use support::calls::{
    IO, argmax, canary, conv, convert, draft, fused, gdn, kda, kda_gate, kda_qk_norm, ple, scatter,
    topk, verify,
};
use support::{edit, fits, parameters, plan, set_word};

#[test]
fn planned_arguments_match_every_entry_of_the_ptx() {
    let mut planned = BTreeSet::new();
    let mut modules = BTreeSet::new();
    let mut check = |name: &str, call: &Call| {
        for launch in plan(name, call).expect("a legal call").launches {
            planned.insert(fits(&launch));
            modules.insert(launch.module);
        }
    };
    for io in IO {
        for key_dim in [32, 64, 128] {
            for state in [DType::F32, DType::F16] {
                let mut step = gdn(io, key_dim, 64, 3, 3);
                edit(&mut step, "s").dtype = state;
                check("gdn_decode", &step);
                let mut step = fused(io, state, key_dim, 64, 3);
                check("gdn_decode", &step);
                set_word(&mut step, "epilogue", "apart");
                check("gdn_decode", &step);
                set_word(&mut step, "epilogue", "fused");
                set_word(&mut step, "output_gate", "none");
                check("gdn_decode", &step);
                if key_dim == 128 {
                    set_word(&mut step, "retention", "shared");
                    check("gdn_decode", &step);
                }
            }
            check("gdn_chunk", &gdn(io, key_dim, 32, 3, 130));
            check("kda_decode", &kda(io, key_dim, 32, 3, 3));
            check("kda_chunk", &kda(io, key_dim, 32, 3, 130));
            check("kda_qk_norm", &kda_qk_norm(io, key_dim));
            for state in [DType::F32, DType::F16] {
                check("gdn_verify", &verify(io, state, key_dim));
            }
        }
        for width in [2, 3, 4] {
            for out in IO {
                check("causal_conv1d", &conv(io, out, width, "rows"));
                check("causal_conv1d", &conv(io, out, width, "tiles"));
            }
        }
        for channels in [40, 5] {
            check("draft_conv", &draft(io, channels, 5));
        }
        check("kda_gate", &kda_gate(io, "softplus"));
        check("kda_gate", &kda_gate(io, "lb_sigmoid"));
        check("state_scatter", &scatter(io));
        check("ple_gather", &ple(io, 40));
        check("argmax_rows", &argmax(io, 3, 1000, "1"));
        check("argmax_rows", &argmax(io, 3, 1000, "4"));
        check("row_topk", &topk(io, 3, 1000, 10, "1"));
        check("row_topk", &topk(io, 3, 1000, 64, "4"));
    }
    for direction in ["narrow", "widen"] {
        for count in [40, 33] {
            check("state_convert", &convert(direction, 2, count));
        }
    }
    check("canary_row_sum", &canary());
    for module in modules {
        for (entry, _) in parameters(kernels::ptx::embedded(module).expect("checked above")) {
            assert!(planned.contains(&entry), "no plan reaches entry `{entry}` of `{module}`");
        }
    }
}

#[test]
fn grids_cover_the_work_and_scratch_its_bound() {
    let decode = plan("gdn_decode", &gdn(DType::BF16, 128, 64, 70_000, 70_000)).expect("legal");
    assert_eq!(decode.launches[0].grid, [2, 4, 65_535], "later sequences are taken in turn");
    assert_eq!(decode.launches[0].block, [128, 1, 1]);

    // A norm needs its head whole, so a block has all value channels; apart, the step leaves it f32.
    let mut gated = fused(DType::BF16, DType::F16, 128, 128, 3);
    let launches = plan("gdn_decode", &gated).expect("legal").launches;
    assert_eq!((launches[0].grid, launches[0].block), ([1, 4, 3], [256, 1, 1]));
    let narrow = plan("gdn_decode", &fused(DType::BF16, DType::F16, 128, 32, 3)).expect("legal");
    assert_eq!(narrow.launches[0].block, [128, 1, 1]);
    set_word(&mut gated, "epilogue", "apart");
    let apart = plan("gdn_decode", &gated).expect("legal");
    assert_eq!((apart.launches[0].grid, apart.launches[0].block), ([4, 4, 3], [64, 1, 1]));
    assert_eq!((apart.launches[1].grid, apart.launches[1].block), ([4, 3, 1], [128, 1, 1]));
    assert_eq!((apart.scratch[0].dtype, &*apart.scratch[0].shape), (DType::F32, &[3, 4, 128][..]));

    let chunk = plan("gdn_chunk", &gdn(DType::F32, 32, 64, 3, 130)).expect("legal");
    let grids: Vec<_> = chunk.launches.iter().map(|launch| launch.grid[0]).collect();
    assert_eq!(grids, [(130 / 64 + 3) * 4, 3 * 4 * 2, (130 / 64 + 3) * 4]);
    let shapes: Vec<_> = chunk.scratch.iter().map(|scratch| scratch.shape.clone()).collect();
    assert_eq!(shapes[0], [130, 4, 2]);
    assert_eq!(shapes[3], [5, 4, 64, 32], "value channels, then key channels");

    let mut short = gdn(DType::BF16, 128, 128, 3, 130);
    set_word(&mut short, "C", "32");
    let short = plan("gdn_chunk", &short).expect("legal");
    let grids: Vec<_> = short.launches.iter().map(|launch| launch.grid[0]).collect();
    assert_eq!(grids, [(130 / 32 + 3) * 2, 3 * 4 * 2], "key heads, then halves of value heads");
    assert_eq!(short.scratch[1].shape, [7, 4, 32, 32]);
    assert_eq!(short.launches[1].block, [320, 1, 1]);
    assert_eq!(short.launches[1].dynamic_shared_bytes, 169_984, "InterTiles<128>::kBytes");

    let wide = plan("argmax_rows", &argmax(DType::F16, 2, 1001, "4")).expect("legal");
    assert_eq!(wide.launches[0].grid, [2, 4, 1]);
    assert_eq!(wide.launches[0].arguments.last(), Some(&Argument::I32(256)), "whole vectors");

    let zeroed: Vec<_> = wide.scratch.iter().map(|scratch| scratch.zeroed).collect();
    assert_eq!(zeroed, [false, true], "only the counters are");

    let split = plan("row_topk", &topk(DType::F32, 2, 1001, 64, "4")).expect("legal");
    assert_eq!(split.launches[0].grid, [2, 4, 1]);
    assert_eq!(split.launches[0].block, [128, 1, 1], "four warps can offer 64 candidates");
    assert_eq!(split.scratch[0].shape, [2, 128, 4]);
    assert_eq!(split.scratch[1].len_bytes(), 8);
    assert!(split.scratch[1].zeroed);
    let whole = plan("row_topk", &topk(DType::F32, 2, 151_936, 1, "1")).expect("legal");
    assert_eq!((whole.launches[0].block, whole.scratch.len()), ([512, 1, 1], 0));

    let gather = plan("ple_gather", &ple(DType::F32, 0)).expect("legal");
    assert_eq!(gather.launches[0].grid, [1, 1, 1], "the status word is written without ids too");
}

#[test]
fn empty_work_plans_nothing_but_what_an_empty_sequence_needs() {
    assert!(plan("gdn_decode", &gdn(DType::F32, 32, 32, 0, 0)).expect("legal").launches.is_empty());
    assert!(plan("gdn_chunk", &gdn(DType::F32, 32, 32, 0, 5)).expect("legal").launches.is_empty());
    assert!(
        plan("argmax_rows", &argmax(DType::F32, 0, 5, "4")).expect("legal").launches.is_empty()
    );
    let no_rows = plan("row_topk", &topk(DType::F32, 0, 5, 8, "2")).expect("legal");
    assert!(no_rows.launches.is_empty() && no_rows.scratch.is_empty());
    let sequences_of_no_rows = plan("gdn_chunk", &gdn(DType::F32, 32, 32, 2, 0)).expect("legal");
    assert_eq!(sequences_of_no_rows.launches.len(), 3, "a zero state may have to be written");
}

#[test]
fn layouts_callers_may_use_are_accepted_and_passed_on() {
    let mut padded = gdn(DType::BF16, 64, 64, 3, 130);
    edit(&mut padded, "s").strides[0] += 8;
    edit(&mut padded, "v").strides[0] += 16;
    edit(&mut padded, "v").offset_bytes = 16;
    let plan_of = plan("gdn_chunk", &padded).expect("padded rows are legal");
    assert!(plan_of.launches[1].arguments.contains(&Argument::I64(4 * 64 + 16)));
    assert!(plan_of.launches[1].arguments.contains(&Argument::I64(4 * 64 * 64 + 8)));

    // Slices of one packed [q | k | v] row interleave without overlap.
    let mut packed = gdn(DType::F32, 32, 32, 3, 3);
    for (name, offset) in [("q", 0), ("k", 64), ("v", 128)] {
        let slice = edit(&mut packed, name);
        (slice.buffer, slice.offset_bytes, slice.strides[0]) = (0, 4 * offset, 256);
    }
    plan("gdn_decode", &packed).expect("a packed row is legal");

    let mut rank0 = ple(DType::F16, 3);
    let scale = edit(&mut rank0, "scale");
    (scale.shape, scale.strides) = (vec![], vec![]);
    plan("ple_gather", &rank0).expect("a scale of rank 0 is legal");

    let mut ids_only = argmax(DType::F32, 3, 7, "1");
    set_word(&mut ids_only, "value_kind", "none");
    ids_only.tensors.retain(|(name, _)| name != "values");
    let launches = plan("argmax_rows", &ids_only).expect("values are optional").launches;
    assert!(launches[0].arguments.contains(&Argument::Null));
}
