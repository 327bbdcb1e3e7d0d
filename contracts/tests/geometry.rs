//! Layouts, buffers, liveness and legality of cases.

mod common;

use common::{plain_sample, sample};
use contracts::{Case, CaseTensor, Content, Contract, Fill, Geometry, Layout, StoreForm, contract};

fn gdn_decode() -> (&'static Contract, Case) {
    let contract = contract("gdn_decode").expect("gdn_decode");
    let mut case = plain_sample(contract, 1);
    for (name, size) in [("N", 3), ("Hk", 1), ("Hv", 2), ("Dk", 32), ("Dv", 64), ("slots", 4)] {
        case.dims[name] = size;
    }
    case.lists["slot"] = vec![2, -1, 0];
    case.stores.values_mut().for_each(|form| *form = StoreForm::Separate);
    for tensor in case.tensors.values_mut() {
        tensor.layout = Layout::Dense;
        if matches!(tensor.content, Content::Dense(_) | Content::Sparse { .. }) {
            tensor.content = Content::Sparse { fill: Fill::Bits(0), at: Default::default() };
        }
    }
    (contract, case)
}

fn message(contract: &Contract, case: &Case) -> String {
    Geometry::of(contract, case).expect_err("legal").to_string()
}

fn with_layout(layout: Layout, tensor: &str) -> contracts::TensorGeometry {
    let (contract, mut case) = gdn_decode();
    case.tensors[tensor].layout = layout;
    let geometry = Geometry::layout_only(contract, &case).unwrap_or_else(|e| panic!("{e}"));
    let placed = geometry.tensor(tensor).expect(tensor).clone();
    let last = placed.element_offset(placed.count() - 1) + 1;
    let buffer = &geometry.buffers[placed.buffer];
    assert_eq!(
        buffer.len_bytes,
        last * placed.dtype.size_bytes(),
        "the buffer ends with the last element"
    );
    placed
}

#[test]
fn each_layout_moves_what_it_says() {
    let dense = with_layout(Layout::Dense, "v");
    assert_eq!(
        (dense.shape.as_slice(), dense.strides.as_slice(), dense.offset),
        (&[3, 2, 64][..], &[128, 64, 1][..], 0)
    );
    assert_eq!(dense.contiguous_run(), 384);
    let padded = with_layout(Layout::RowPadded(8), "v");
    assert_eq!((padded.strides.as_slice(), padded.offset), (&[136, 64, 1][..], 0));
    assert_eq!(padded.contiguous_run(), 128);
    let offset = with_layout(Layout::Offset(16), "v");
    assert_eq!((offset.strides.as_slice(), offset.offset), (&[128, 64, 1][..], 16));
    let pool = with_layout(Layout::OuterPadded(12), "s");
    assert_eq!(pool.strides, [2 * 64 * 32 + 12, 64 * 32, 32, 1]);
    assert_eq!(pool.coordinates(pool.row_count() + 33), [1, 0, 1, 1]);
}

#[test]
fn wide_begins_its_last_row_beyond_two_to_the_32() {
    let contract = contract("ple_gather").expect("ple_gather");
    for rows in [7, 33, 2_500_012] {
        let mut case = sample(contract, 3);
        case.dims["R"] = rows;
        case.dims["n"] = 2;
        case.lists["id"] = vec![0, rows - 1];
        let fill = Content::Sparse { fill: Fill::Bits(0x38), at: Default::default() };
        case.tensors["codes"] = CaseTensor { layout: Layout::Wide, content: fill };
        let geometry = Geometry::of(contract, &case).unwrap_or_else(|e| panic!("{e}"));
        let codes = geometry.tensor("codes").expect("codes");
        let last = codes.element_offset((rows as u64 - 1) * 160);
        assert!(last > 1 << 32 && last < (1 << 32) + (1 << 26), "{rows} rows: {last}");
        assert_eq!(codes.strides[0] % 16, 0);
        let live = codes.live.as_ref().expect("live");
        assert_eq!(live.iter().filter(|touched| **touched).count(), 2);
    }
    let (decode, mut case) = gdn_decode();
    case.tensors["g"].layout = Layout::Wide;
    assert!(
        message(decode, &case)
            .contains("tensors.g.layout: the contract does not allow this layout")
    );
}

#[test]
fn a_rank_zero_scale_has_no_axis() {
    let contract = contract("ple_gather").expect("ple_gather");
    let mut case = sample(contract, 3);
    for (layout, shape) in [(Layout::Dense, &[1][..]), (Layout::Rank0, &[][..])] {
        case.tensors["scale"].layout = layout;
        let geometry = Geometry::of(contract, &case).unwrap_or_else(|e| panic!("{e}"));
        let scale = geometry.tensor("scale").expect("scale");
        assert_eq!((scale.shape.as_slice(), scale.count(), scale.element_offset(0)), (shape, 1, 0));
        assert_eq!(geometry.buffers[scale.buffer].len_bytes, 2);
    }
}

#[test]
fn permuted_axes_change_places_and_axes_of_one_index_have_any_stride() {
    let contract = contract("canary_rows").expect("canary_rows");
    let mut case = sample(contract, 3);
    for (dim, size) in [("R", 3), ("H", 2), ("C", 4)] {
        case.dims[dim] = size;
    }
    let zero = |case: &mut Case, layout| {
        let content = Content::Sparse { fill: Fill::Bits(0), at: Default::default() };
        case.tensors["x"] = CaseTensor { layout, content };
    };
    zero(&mut case, Layout::Permuted);
    let geometry = Geometry::layout_only(contract, &case).unwrap_or_else(|e| panic!("{e}"));
    let x = geometry.tensor("x").expect("x");
    assert_eq!(x.strides, [8, 1, 2]);
    let mut places: Vec<u64> = (0..x.count()).map(|flat| x.element_offset(flat)).collect();
    places.sort_unstable();
    assert!(places.into_iter().eq(0..24), "every place once");
    case.dims["H"] = 1;
    zero(&mut case, Layout::OddUnitStrides(5));
    let geometry = Geometry::layout_only(contract, &case).unwrap_or_else(|e| panic!("{e}"));
    let x = geometry.tensor("x").expect("x");
    assert_eq!(x.strides, [4, 9, 1]);
    assert_eq!(geometry.buffers[x.buffer].len_bytes, 12 * x.dtype.size_bytes());
}

#[test]
fn a_packed_row_holds_its_members_one_after_another() {
    let (contract, mut case) = gdn_decode();
    case.stores["qkv"] = StoreForm::Packed { pad: 8 };
    let geometry = Geometry::of(contract, &case).unwrap_or_else(|e| panic!("{e}"));
    let [q, k, v] = ["q", "k", "v"].map(|name| geometry.tensor(name).expect(name));
    let pitch = 32 + 32 + 128 + 8;
    assert_eq!([q.offset, k.offset, v.offset], [0, 32, 64]);
    assert_eq!([&q.strides, &v.strides], [&vec![pitch, 32, 1], &vec![pitch, 64, 1]]);
    assert!(q.buffer == k.buffer && k.buffer == v.buffer);
    let buffer = &geometry.buffers[q.buffer];
    assert_eq!((buffer.name.as_str(), buffer.len_bytes), ("qkv", 3 * pitch * q.dtype.size_bytes()));
    assert_eq!(geometry.buffers.iter().filter(|buffer| buffer.name == "qkv").count(), 1);

    case.stores["qkv"] = StoreForm::Packed { pad: 1 };
    assert!(message(contract, &case).contains("no multiple of 16"));
    case.stores["qkv"] = StoreForm::Packed { pad: 8 };
    case.tensors["k"].layout = Layout::RowPadded(8);
    assert!(message(contract, &case).contains("a packed tensor has its store's layout"));
}

#[test]
fn liveness_follows_slots_and_segments() {
    let (contract_, case) = gdn_decode();
    let geometry = Geometry::of(contract_, &case).unwrap_or_else(|e| panic!("{e}"));
    let live = |name: &str| geometry.tensor(name).expect(name).live.clone();
    assert_eq!(live("s"), Some(vec![true, false, true, false]), "the pool: what is listed");
    assert_eq!(live("o"), Some(vec![true, false, true]), "the axis: what is no pad");
    assert_eq!(live("q"), None);

    let chunk = contract("gdn_chunk").expect("gdn_chunk");
    let mut case = sample(chunk, 5);
    for (name, size) in [("N", 3), ("rows", 7), ("slots", 3)] {
        case.dims[name] = size;
    }
    case.lists["seq_len"] = vec![2, 1, 2];
    case.lists["slot"] = vec![1, -1, 0];
    let geometry = Geometry::layout_only(chunk, &case).unwrap_or_else(|e| panic!("{e}"));
    let live = |name: &str| geometry.tensor(name).expect(name).live.clone();
    assert_eq!(
        live("o"),
        Some(vec![true, true, false, true, true, false, false]),
        "segments of no pad"
    );
    assert_eq!(
        live("q"),
        Some(vec![true, true, true, true, true, false, false]),
        "rows past the last"
    );
    assert_eq!(geometry.tensor("cu_seqlens").expect("cu").derived, Some(vec![0, 2, 3, 5]));
    assert_eq!(geometry.tensor("slot_of").expect("slots").derived, Some(vec![1, -1, 0]));
}

#[test]
fn empty_tensors_have_a_place() {
    let (contract, mut case) = gdn_decode();
    case.dims["N"] = 0;
    case.lists["slot"] = vec![];
    case.tensors["q"].layout = Layout::Offset(8);
    let geometry = Geometry::of(contract, &case).unwrap_or_else(|e| panic!("{e}"));
    let q = geometry.tensor("q").expect("q");
    assert_eq!((q.count(), geometry.buffers[q.buffer].len_bytes), (0, 8 * q.dtype.size_bytes()));
    assert_eq!(geometry.tensor("s").expect("s").live, Some(vec![false; 4]));
}

#[test]
fn every_sampled_case_is_legal_and_its_elements_are_apart() {
    for contract in contracts::builtin().iter().chain(contracts::canary()) {
        for seed in 0..60 {
            let case = sample(contract, seed);
            let geometry =
                Geometry::of(contract, &case).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            assert_eq!(geometry, Geometry::layout_only(contract, &case).expect("layout"));
            let mut taken: Vec<std::collections::HashSet<u64>> =
                vec![Default::default(); geometry.buffers.len()];
            for tensor in geometry.tensors.iter().filter(|tensor| tensor.count() < 4000) {
                let buffer = &geometry.buffers[tensor.buffer];
                assert_eq!(buffer.dtype, tensor.dtype);
                for flat in 0..tensor.count() {
                    let at = tensor.element_offset(flat);
                    assert!((at + 1) * tensor.dtype.size_bytes() <= buffer.len_bytes);
                    assert!(taken[tensor.buffer].insert(at), "two elements share a place");
                }
            }
        }
    }
}

#[test]
fn illegal_cases_say_what_is_wrong() {
    type Edit = fn(&mut Case);
    let table: [(Edit, &str); 22] = [
        (
            |c| c.contract = "other".into(),
            "contract: the case is for `other`; use the contract `gdn_decode`",
        ),
        (|c| c.version = 3, "version: the case is for version 3, the contract is 2"),
        (|c| c.dims.retain(|name, _| name != "N"), "dims.N: it is undecided; add `N:` to dims"),
        (|c| c.dims.extend([("M".to_owned(), 1)]), "dims.M: the contract has no `M`"),
        (|c| c.dims["Dk"] = 33, "dims.Dk: 33 is not allowed; write one of [32, 64, 128]"),
        (|c| c.dims["N"] = -1, "dims.N: -1 is no size"),
        (|c| c.dims["slots"] = 2, "dims.slots: 2 is below `max(N, 1)`; write at least 3"),
        (|c| c.dims["Hk"] = 0, "dims.Hv: 2 is no multiple of `Hk`, 0"),
        (
            |c| (c.dims["Hk"], c.dims["Hv"]) = (0, 0),
            "requires.some_heads: `Hk >= 1 and Hv >= 1` does not hold",
        ),
        (|c| c.lists["slot"] = vec![0], "lists.slot: 1 elements for 3 of `N`"),
        (|c| c.lists["slot"][0] = 4, "lists.slot[0]: 4 is outside `slots`"),
        (|c| c.lists["slot"][0] = -2, "lists.slot[0]: -2 is outside `slots`"),
        (|c| c.lists["slot"][0] = 0, "lists.slot[2]: 0 is named twice"),
        (
            |c| c.options["head_map"] = "blocks".into(),
            "options.head_map: `blocks` is no value of `head_map`; write `block`",
        ),
        (|c| drop(c.tensors.shift_remove("k")), "tensors.k: the tensor is missing"),
        (
            |c| c.tensors["q"].layout = Layout::Offset(1),
            "tensors.q: base 1 or row stride 32 is not a multiple of",
        ),
        (
            |c| c.tensors["o"].content = Content::Dense(vec![]),
            "tensors.o: the contents are of another sort; write no contents",
        ),
        (
            |c| c.tensors["slot_of"].content = Content::Output,
            "tensors.slot_of: the contents are of another sort; write derived",
        ),
        (
            |c| c.tensors["q"].content = Content::Dense(vec![0; 3]),
            "tensors.q: 3 bytes of contents for the shape [3, 1, 32]",
        ),
        (
            |c| fill(c, "beta", 0x4000_0000),
            "tensors.beta: the fill 2 (0x40000000) is outside the domain",
        ),
        (|c| fill(c, "g", 1 << 40), "tensors.g: 0x10000000000 has more bits than f32"),
        (|c| c.scalars["scale"] = 0, "scalars.scale: 0 is outside the domain"),
    ];
    for (edit, expected) in table {
        let (contract, mut case) = gdn_decode();
        edit(&mut case);
        let found = message(contract, &case);
        assert!(found.starts_with(expected), "expected {expected}\nfound    {found}");
    }
}

fn fill(case: &mut Case, tensor: &str, bits: u64) {
    case.tensors[tensor].content =
        Content::Sparse { fill: Fill::Bits(bits), at: Default::default() };
}

#[test]
fn domains_bind_live_elements_and_spare_planted_nan() {
    let (contract, mut case) = gdn_decode();
    case.dtypes["io"] = contracts::DType::F32;
    let at = |pairs: &[(u64, f32)]| Content::Sparse {
        fill: Fill::Bits(0),
        at: pairs.iter().map(|(flat, value)| (*flat, u64::from(value.to_bits()))).collect(),
    };
    case.tensors["q"].content = at(&[(0, 0.8), (1, 0.6)]);
    assert!(Geometry::of(contract, &case).is_ok());
    case.tensors["q"].content = at(&[(0, 0.8), (1, 0.8)]);
    assert!(message(contract, &case).contains("tensors.q[0, 0, 0]: the row's norm is 1.13"));
    case.tensors["q"].content = at(&[(0, f32::NAN)]);
    assert!(Geometry::of(contract, &case).is_ok(), "NaN may be planted in q");
    case.tensors["q"].content = at(&[(0, f32::INFINITY)]);
    assert!(message(contract, &case).contains("outside the domain"));
    case.tensors["q"].content = at(&[]);
    // Slot 1 is dead, slot 2 is live.
    let slot = 2 * 64 * 32;
    case.tensors["s"].content = at(&[(slot, 1e9)]);
    assert!(Geometry::of(contract, &case).is_ok());
    case.tensors["s"].content = at(&[(2 * slot, 1e9)]);
    assert!(message(contract, &case).contains("tensors.s[2, 0, 0, 0]"));
    case.tensors["s"].content = at(&[]);
    case.tensors["g"].content = at(&[(0, f32::NAN)]);
    assert!(Geometry::of(contract, &case).is_ok(), "NaN may be planted in g");
    let mut strict = contract.clone();
    strict.nan.as_mut().expect("a policy").into.retain(|tensor| tensor != "g");
    assert!(message(&strict, &case).contains("tensors.g[0, 0]: NaN"));
    // A bound above alone: minus infinity is no decay left.
    case.tensors["g"].content = at(&[(0, f32::NEG_INFINITY)]);
    assert!(Geometry::of(&strict, &case).is_ok());
    // What q may hold depends on who normalises it.
    case.tensors["g"].content = at(&[]);
    case.tensors["q"].content = at(&[(0, 0.8), (1, 0.8)]);
    case.options["qk_norm"] = "l2".into();
    assert!(Geometry::of(contract, &case).is_ok());
}

#[test]
fn memory_is_limited_before_it_is_taken() {
    let argmax = contract("argmax_rows").expect("argmax_rows");
    let mut case = sample(argmax, 1);
    case.dims["R"] = 1 << 30;
    case.dims["V"] = 1 << 30;
    assert!(
        Geometry::layout_only(argmax, &case)
            .expect_err("too large")
            .to_string()
            .contains("more than")
    );
    case.dims["R"] = 2;
    case.dims["V"] = 100;
    case.tensors["x"].layout = Layout::RowPadded(1 << 36);
    assert!(
        Geometry::layout_only(argmax, &case)
            .expect_err("too large")
            .to_string()
            .contains("exceed the largest buffer")
    );
    case.tensors["x"].layout = Layout::RowPadded(u64::MAX);
    assert!(Geometry::layout_only(argmax, &case).is_err());
}

#[test]
fn an_illegal_call_can_still_be_laid_out() {
    let argmax = contract("argmax_rows").expect("argmax_rows");
    let mut case = sample(argmax, 1);
    case.dims["V"] = 0;
    case.tensors["x"].layout = Layout::Dense;
    assert!(
        Geometry::layout_only(argmax, &case).expect_err("legal").path == "requires.some_column"
    );
    assert!(
        Geometry::lay_out(argmax, &case).is_ok()
            && contracts::check_structure(argmax, &case).is_ok()
    );
}
