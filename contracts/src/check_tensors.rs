//! The rules for what is in memory: tensors, stores, scalars and the generators that fill them.

use crate::check::{
    Checked, at, check_dim_name, check_list_name, check_tensor_name, distinct, ensure, found,
};
use crate::clause::{accesses, allowed_dtypes};
use crate::expr::Expr;
use crate::format::{Access, By, Contract, Derivation, Domain, Joint, LayoutKind, Tensor, Values};
use crate::load::suggestion;
use crate::names::{Kind, Visible, expect};
use std::collections::HashSet;

/// Most axes of a tensor.
const MOST_AXES: usize = 8;

/// Whether the first axis is exactly this dim.
pub(crate) fn first_axis(tensor: &Tensor) -> Option<&str> {
    match tensor.shape.first() {
        Some(Expr::Name(name)) => Some(name),
        _ => None,
    }
}

pub(crate) fn check_tensor(contract: &Contract, name: &str, tensor: &Tensor) -> Checked {
    let path = format!("tensors.{name}");
    ensure(
        tensor.shape.len() <= MOST_AXES,
        &format!("{path}.shape"),
        "more than 8 axes",
        "join some axes",
    )?;
    ensure(
        !tensor.shape.is_empty(),
        &format!("{path}.shape"),
        "no axes",
        "write [\"1\"], with layout rank0 where callers may pass none",
    )?;
    for (index, extent) in tensor.shape.iter().enumerate() {
        let path = format!("{path}.shape[{index}]");
        expect(contract, extent, Visible::Structure, Kind::Int).map_err(at(&path))?;
    }
    if let Some(when) = &tensor.when {
        let path = format!("{path}.when");
        expect(contract, when, Visible::Choices, Kind::Bool).map_err(at(&path))?;
    }
    check_dtype_ref(contract, &format!("{path}.dtype"), &tensor.dtype.0)?;
    check_by(contract, &format!("{path}.access"), &tensor.access)?;
    check_layouts(contract, &path, tensor)?;
    if let Some(live) = &tensor.live {
        check_live(contract, &format!("{path}.live.by"), tensor, &live.by)?;
    }
    check_contents(contract, name, &path, tensor)
}

pub(crate) fn check_dtype_ref(contract: &Contract, path: &str, name: &str) -> Checked {
    let fixed = crate::dtype::DType::ALL.iter().map(|dtype| dtype.name());
    let known = contract.dtypes.keys().map(String::as_str).chain(fixed);
    ensure(
        known.clone().any(|dtype| dtype == name),
        path,
        &format!("`{name}` is neither a type nor a dtype symbol"),
        &suggestion(name, known),
    )
}

/// A switch names one option and is total over its words.
fn check_by<T>(contract: &Contract, path: &str, value: &By<T>) -> Checked {
    let By::Option { by } = value else { return Ok(()) };
    let Some((option, table)) = by.first().filter(|_| by.len() == 1) else {
        return Err(found(
            path,
            "`by` switches on exactly one option",
            "write {by: {option: {word: value}}}",
        ));
    };
    let Some(words) = contract.options.get(option) else {
        let known = contract.options.keys().map(String::as_str);
        return Err(found(path, format!("`{option}` is no option"), suggestion(option, known)));
    };
    for word in words {
        ensure(
            table.contains_key(word),
            path,
            &format!("`by` says nothing for `{option}: {word}`"),
            &format!("add `{word}:`"),
        )?;
    }
    match table.keys().find(|word| !words.contains(word)) {
        None => Ok(()),
        Some(word) => {
            let remedy = suggestion(word, words.iter().map(String::as_str));
            Err(found(path, format!("`{word}` is no value of `{option}`"), remedy))
        }
    }
}

fn check_layouts(contract: &Contract, path: &str, tensor: &Tensor) -> Checked {
    let layout_path = format!("{path}.layout");
    ensure(distinct(&tensor.layout), &layout_path, "a layout repeats", "list each once")?;
    for layout in &tensor.layout {
        let fits = match layout {
            LayoutKind::Dense | LayoutKind::Offset => true,
            LayoutKind::RowPadded | LayoutKind::OuterPadded | LayoutKind::Wide => {
                tensor.shape.len() >= 2
            }
            LayoutKind::Permuted => tensor.shape.len() >= 3,
            LayoutKind::OddUnitStrides => !tensor.shape.is_empty(),
            LayoutKind::Rank0 => tensor.shape == [Expr::Int(1)],
        };
        let word = layout_word(*layout);
        ensure(
            fits,
            &layout_path,
            &format!("`{word}` does not fit this shape"),
            "rank0 needs shape [\"1\"]; padded and wide layouts need two axes, permuted three",
        )?;
    }
    let Some(align) = tensor.align else { return Ok(()) };
    let sizes_fit = allowed_dtypes(contract, tensor).all(|dtype| align % dtype.size_bytes() == 0);
    ensure(
        align.is_power_of_two() && align <= 256 && sizes_fit,
        &format!("{path}.align"),
        &format!("{align} is no alignment of this tensor"),
        "write a power of two, at least the element's size and at most 256",
    )
}

/// The word used in YAML.
pub(crate) fn layout_word(layout: LayoutKind) -> &'static str {
    match layout {
        LayoutKind::Dense => "dense",
        LayoutKind::RowPadded => "row_padded",
        LayoutKind::OuterPadded => "outer_padded",
        LayoutKind::Offset => "offset",
        LayoutKind::Permuted => "permuted",
        LayoutKind::OddUnitStrides => "odd_unit_strides",
        LayoutKind::Wide => "wide",
        LayoutKind::Rank0 => "rank0",
    }
}

fn check_live(contract: &Contract, path: &str, tensor: &Tensor, by: &str) -> Checked {
    check_list_name(contract, path, by)?;
    let list = &contract.lists[by];
    let pool = list.slots.as_ref().map(|s| &s.pool).or_else(|| list.ids.as_ref().map(|i| &i.below));
    let axis = first_axis(tensor);
    let over_segments = axis
        .and_then(|axis| contract.dims.get(axis)?.segments.as_ref())
        .is_some_and(|segments| contract.lists.get(segments).is_some_and(|l| l.each == list.each));
    let fits =
        pool.is_some_and(|pool| axis == Some(pool) || axis == Some(&list.each) || over_segments);
    ensure(
        fits,
        path,
        &format!("`{by}` does not select along this tensor's first axis"),
        "name a list of slots or ids whose pool, whose axis, or the segments of whose axis, is the first axis",
    )
}

fn check_contents(contract: &Contract, name: &str, path: &str, tensor: &Tensor) -> Checked {
    let written = accesses(tensor).any(|access| access != Access::Read);
    let read = accesses(tensor).any(|access| access != Access::Write);
    let in_joint = joint_tensors(contract).any(|member| member == name);
    if let Some(derivation) = &tensor.from {
        let path = format!("{path}.from");
        ensure(
            !written,
            &path,
            "a derived tensor is written",
            "remove `from`, or make the access read",
        )?;
        ensure(
            tensor.domain.is_none() && tensor.values.is_empty() && !in_joint,
            &path,
            "a derived tensor has values of its own",
            "remove `domain`, `values` and its joint generator",
        )?;
        return check_derivation(contract, &path, tensor, derivation);
    }
    if !read {
        ensure(
            tensor.domain.is_none() && tensor.values.is_empty() && !in_joint,
            path,
            "a tensor that is only written has values",
            "remove `domain`, `values` and its joint generator",
        )?;
        return Ok(());
    }
    let Some(domain) = &tensor.domain else {
        return Err(found(path, "a tensor that is read has no `domain`", "add `domain:`"));
    };
    let domain_path = format!("{path}.domain");
    check_by(contract, &domain_path, domain)?;
    match domain {
        By::Always(domain) => check_domain(&domain_path, domain)?,
        By::Option { by } => by
            .values()
            .flat_map(|table| table.values())
            .try_for_each(|domain| check_domain(&domain_path, domain))?,
    }
    ensure(
        tensor.values.is_empty() == in_joint,
        path,
        "values come from exactly one place",
        "write `values:`, or name the tensor in one joint generator",
    )?;
    check_values(contract, &format!("{path}.values"), &tensor.values)
}

fn check_derivation(
    contract: &Contract,
    path: &str,
    tensor: &Tensor,
    derivation: &Derivation,
) -> Checked {
    let (Derivation::Copy(list) | Derivation::PrefixSum(list)) = derivation;
    check_list_name(contract, path, list)?;
    let each = &contract.lists[list].each;
    let extent = match derivation {
        Derivation::Copy(_) => each.clone(),
        Derivation::PrefixSum(_) => format!("{each} + 1"),
    };
    ensure(
        tensor.shape.len() == 1 && tensor.shape[0].to_string() == extent,
        path,
        &format!("the contents of `{list}` do not have this shape"),
        &format!("write shape: [\"{extent}\"]"),
    )?;
    let integers = allowed_dtypes(contract, tensor).all(|dtype| !dtype.is_float());
    ensure(integers, path, "a derived tensor is not of integers", "write dtype: i32 or i64")
}

fn check_domain(path: &str, domain: &Domain) -> Checked {
    let fits = match domain {
        Domain::Range([low, high]) | Domain::RangeOrInfinite([low, high]) => {
            low <= high && low.is_finite() && high.is_finite()
        }
        Domain::RowNorm(most) => *most > 0.0 && most.is_finite(),
        Domain::AtMost(most) => most.is_finite(),
        _ => true,
    };
    ensure(fits, path, "the domain is empty or not finite", "write finite bounds, low first")
}

pub(crate) fn check_values(contract: &Contract, path: &str, values: &[Values]) -> Checked {
    for (index, value) in values.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let fits = match value {
            Values::Constant(value) => value.is_finite(),
            Values::Normal(sigma) => *sigma >= 0.0 && sigma.is_finite(),
            Values::Uniform([low, high]) | Values::LogUniform([low, high]) => {
                low <= high && low.is_finite() && high.is_finite()
            }
            Values::CorrelatedRows(shares) => {
                !shares.is_empty() && shares.iter().all(|share| (0.0..=1.0).contains(share))
            }
            Values::AxisRows(places) => *places > 0,
            Values::Ties { places } => !places.is_empty(),
            Values::Crowd { band: [low, high], count } => {
                low <= high && low.is_finite() && high.is_finite() && *count > 0
            }
            Values::Contenders(most) => *most > 0,
            Values::Comb { every, width, values, .. } => {
                !values.is_empty()
                    && values.iter().all(|value| value.0.is_finite())
                    && !every.is_empty()
                    && *width > 0
                    && every.iter().all(|every| every >= width)
            }
            Values::Masked { survivors } => !survivors.is_empty(),
            Values::Planted { at, .. } => !at.is_empty(),
            Values::Runs(values) => !values.is_empty(),
            Values::Literal(bits) => (1..=64).contains(&bits.len()),
            Values::ModelScale(dim) => {
                check_dim_name(contract, &path, dim)?;
                true
            }
            _ => true,
        };
        ensure(
            fits,
            &path,
            "the generator's numbers are empty, out of order or out of range",
            "see its entry in the documentation",
        )?;
    }
    Ok(())
}

/// Every tensor a joint generator writes.
fn joint_tensors(contract: &Contract) -> impl Iterator<Item = &str> {
    contract.joint.values().flat_map(Joint::tensors)
}

pub(crate) fn check_stores(contract: &Contract) -> Checked {
    let mut held = HashSet::new();
    for (name, store) in &contract.stores {
        let path = format!("stores.{name}");
        check_dim_name(contract, &format!("{path}.along"), &store.along)?;
        ensure(
            store.holds.len() >= 2,
            &format!("{path}.holds"),
            "fewer than two tensors",
            "name two or more",
        )?;
        for (index, member) in store.holds.iter().enumerate() {
            let path = format!("{path}.holds[{index}]");
            check_tensor_name(contract, &path, member)?;
            ensure(
                held.insert(member),
                &path,
                &format!("`{member}` is already in a store"),
                "hold it once",
            )?;
            let (tensor, first) = (&contract.tensors[member], &contract.tensors[&store.holds[0]]);
            ensure(
                tensor.dtype == first.dtype && first_axis(tensor) == Some(&store.along),
                &path,
                &format!("`{member}` has another dtype or first axis than the store"),
                &format!(
                    "hold tensors of dtype {} whose first axis is {}",
                    first.dtype.0, store.along
                ),
            )?;
        }
    }
    Ok(())
}

pub(crate) fn check_scalars_and_joint(contract: &Contract) -> Checked {
    for (name, scalar) in &contract.scalars {
        let path = format!("scalars.{name}");
        check_domain(&format!("{path}.domain"), &scalar.domain)?;
        ensure(
            !matches!(scalar.domain, Domain::RowNorm(_)),
            &path,
            "a number has no rows",
            "write an elementwise domain",
        )?;
        ensure(
            !scalar.values.is_empty(),
            &path,
            "no values are drawn",
            "add a generator to `values`",
        )?;
        check_values(contract, &format!("{path}.values"), &scalar.values)?;
    }
    for (name, joint) in &contract.joint {
        let path = format!("joint.{name}.gdn_gates");
        let Joint::GdnGates { classes, .. } = joint;
        let members: Vec<&str> = joint.tensors().collect();
        for member in &members {
            check_tensor_name(contract, &path, member)?;
        }
        ensure(distinct(&members), &path, "one tensor has two roles", "name a tensor once")?;
        ensure(
            !classes.is_empty() && distinct(classes),
            &format!("{path}.classes"),
            "the classes are empty or repeat",
            "list each class once",
        )?;
    }
    Ok(())
}
