//! The rules for what a contract promises: tolerances total and disjoint over the choices, relations,
//! refusals, fixtures and mutants that mention only what exists.

use crate::check::{
    Checked, at, check_dim_name, check_list_name, check_name, check_tensor_name, ensure, found,
    one_form,
};
use crate::check_history;
use crate::check_tensors::{check_dtype_ref, check_values, first_axis, layout_word};
use crate::clause::{
    Assignment, EXCUSABLE_RULES, HOUSE_RULES, MOST_ASSIGNMENTS, accesses, allowed_dtypes,
    assignments, clauses, is_written,
};
use crate::expr::Expr;
use crate::format::{
    Access, By, Contract, Copies, Fixture, Joint, LayoutKind, Named, Path, Rejection, Relation,
    Tensor, Tolerance,
};
use crate::load::suggestion;
use crate::names::{Kind, Visible, expect, words_of};

/// Most literals of a fixture.
const MOST_LITERALS: usize = 64;

pub(crate) fn check(contract: &Contract) -> Checked {
    for (name, requirement) in &contract.requires {
        let path = format!("requires.{name}.that");
        expect(contract, &requirement.that, Visible::Structure, Kind::Bool).map_err(at(&path))?;
    }
    check_tolerances(contract)?;
    check_drifts(contract)?;
    check_nan(contract)?;
    for (name, relation) in &contract.relations {
        check_relation(contract, &format!("relations.{name}"), relation)?;
    }
    for (name, path) in &contract.paths {
        check_path(contract, &format!("paths.{name}"), path)?;
    }
    for (name, rejection) in &contract.rejects {
        check_name(&format!("rejects.{name}"), name)?;
        check_rejection(contract, &format!("rejects.{name}"), rejection)?;
    }
    for (section, fixtures) in
        [("fixtures", &contract.fixtures), ("production", &contract.production)]
    {
        for (name, fixture) in fixtures {
            check_fixture(contract, &format!("{section}.{name}"), fixture)?;
        }
    }
    check_history::check(contract)?;
    for rule in contract.except.keys() {
        let is_house_rule = HOUSE_RULES.iter().any(|(known, _)| known == rule);
        let wrong = if is_house_rule {
            format!("`{rule}` cannot be excepted: a run that breaks it ends there")
        } else {
            format!("`{rule}` is no house rule")
        };
        let known = EXCUSABLE_RULES.into_iter();
        ensure(known.clone().any(|k| k == rule), "except", &wrong, &suggestion(rule, known))?;
    }
    check_mutants(contract)
}

fn condition(contract: &Contract, path: &str, when: Option<&Expr>) -> Checked {
    match when {
        None => Ok(()),
        Some(when) => {
            let path = format!("{path}.when");
            expect(contract, when, Visible::Choices, Kind::Bool).map_err(at(&path))
        }
    }
}

/// A number that only loosens when it grows.
fn coefficient(path: &str, value: f64) -> Checked {
    ensure(
        value >= 0.0 && value.is_finite(),
        path,
        &format!("{value} is no coefficient"),
        "write a finite number, 0 or more",
    )
}

fn check_tolerances(contract: &Contract) -> Checked {
    for (name, classes) in &contract.tolerance {
        let path = format!("tolerance.{name}");
        check_tensor_name(contract, &path, name)?;
        let written = accesses(&contract.tensors[name]).any(|access| access != Access::Read);
        ensure(written, &path, "a tensor that is only read cannot be judged", "remove it")?;
        for (class, tolerance) in classes {
            let path = format!("{path}.{class}");
            check_name(&path, class)?;
            condition(contract, &path, tolerance.when.as_ref())?;
            one_form(
                &path,
                &[("bits", tolerance.bits.is_some()), ("bound", tolerance.bound.is_some())],
            )?;
            if let Some(bound) = &tolerance.bound {
                let path = format!("{path}.bound");
                check_dtype_ref(contract, &format!("{path}.round_out"), &bound.round_out.0)?;
                coefficient(&format!("{path}.floor"), bound.floor)?;
                for (magnitude, term) in &bound.terms {
                    let path = format!("{path}.terms.{magnitude}");
                    check_name(&path, magnitude)?;
                    coefficient(&format!("{path}.times"), term.times)?;
                    check_dtype_ref(contract, &format!("{path}.unit"), &term.unit.0)?;
                }
            }
        }
        check_coverage(contract, name, classes)?;
    }
    for (name, tensor) in &contract.tensors {
        let written = accesses(tensor).any(|access| access != Access::Read);
        let what = format!("the written tensor `{name}` has no tolerance");
        let place = format!("tensors.{name}");
        ensure(
            !written || contract.tolerance.contains_key(name),
            &place,
            &what,
            &format!("add `{name}:` under `tolerance:`"),
        )?;
    }
    Ok(())
}

/// Exactly one class admits each choice for which the tensor is present and written.
fn check_coverage(contract: &Contract, name: &str, classes: &Named<Tolerance>) -> Checked {
    let path = format!("tolerance.{name}");
    let tensor = &contract.tensors[name];
    let conditions = classes.values().filter_map(|class| class.when.as_ref()).chain(&tensor.when);
    let all = assignments(contract, conditions, Some(&tensor.access), None);
    let limit = format!("more than {MOST_ASSIGNMENTS} combinations of choices");
    ensure(all.len() < MOST_ASSIGNMENTS, &path, &limit, "condition on fewer choices")?;
    for assignment in &all {
        let holds = |expr: &Expr| expr.eval_bool(assignment).unwrap_or(false);
        if !tensor.when.as_ref().is_none_or(holds) || !is_written(tensor, assignment) {
            continue;
        }
        let admitting: Vec<&str> = classes
            .iter()
            .filter(|(_, class)| class.when.as_ref().is_none_or(holds))
            .map(|(class, _)| class.as_str())
            .collect();
        let choice = spelled(assignment);
        match admitting.as_slice() {
            [_] => {}
            [] => {
                return Err(found(
                    path,
                    format!("no class admits {choice}"),
                    "widen a `when`, or add a class",
                ));
            }
            several => {
                let what = format!("{} all admit {choice}", several.join(" and "));
                return Err(found(path, what, "narrow their `when` until one remains"));
            }
        }
    }
    Ok(())
}

fn spelled(assignment: &Assignment<'_>) -> String {
    if assignment.0.is_empty() {
        return "any case".to_owned();
    }
    assignment.0.iter().map(|(name, word)| format!("{name}: {word}")).collect::<Vec<_>>().join(", ")
}

fn check_drifts(contract: &Contract) -> Checked {
    for (name, classes) in &contract.drift {
        let path = format!("drift.{name}");
        check_tensor_name(contract, &path, name)?;
        let tensor = &contract.tensors[name];
        let written = accesses(tensor).any(|access| access != Access::Read);
        ensure(written, &path, "a tensor that is only read cannot be judged", "remove it")?;
        for (class, drift) in classes {
            let path = format!("{path}.{class}");
            check_name(&path, class)?;
            check_name(&format!("{path}.of"), &drift.of)?;
            condition(contract, &path, drift.when.as_ref())?;
            coefficient(&format!("{path}.times"), drift.times)?;
            coefficient(&format!("{path}.plus"), drift.plus)?;
            ensure(
                drift.axes < tensor.shape.len(),
                &format!("{path}.axes"),
                &format!(
                    "`{name}` has {} axes, and a group needs one of its own",
                    tensor.shape.len()
                ),
                "write fewer leading axes",
            )?;
        }
    }
    Ok(())
}

fn check_nan(contract: &Contract) -> Checked {
    let Some(nan) = &contract.nan else { return Ok(()) };
    for (index, name) in nan.into.iter().enumerate() {
        let path = format!("nan.into[{index}]");
        check_tensor_name(contract, &path, name)?;
        let tensor = &contract.tensors[name];
        let read = accesses(tensor).any(|access| access != Access::Write);
        let floats = allowed_dtypes(contract, tensor).all(|dtype| dtype.is_float());
        ensure(
            read && floats,
            &path,
            &format!("`{name}` is not read, or cannot hold a NaN"),
            "name floating-point inputs",
        )?;
    }
    for name in nan.reach.keys() {
        let path = format!("nan.reach.{name}");
        check_tensor_name(contract, &path, name)?;
        let written = accesses(&contract.tensors[name]).any(|access| access != Access::Read);
        ensure(written, &path, &format!("`{name}` is not written"), "name outputs")?;
    }
    Ok(())
}

fn check_relation(contract: &Contract, path: &str, relation: &Relation) -> Checked {
    one_form(path, &relation.forms())?;
    condition(contract, path, relation.when.as_ref())?;
    if let Some(alone) = &relation.alone {
        check_dim_name(contract, &format!("{path}.alone.axis"), &alone.axis)?;
    }
    if let Some(append) = &relation.append_dead {
        let path = format!("{path}.append_dead.axis");
        check_dim_name(contract, &path, &append.axis)?;
        let innermost = contract.tensors.values().any(|tensor| {
            tensor.shape.len() >= 2
                && matches!(tensor.shape.last(), Some(Expr::Name(n)) if **n == *append.axis)
        });
        ensure(
            innermost,
            &path,
            &format!("`{}` is no tensor's innermost axis", append.axis),
            "name the axis rows are made of",
        )?;
    }
    if let Some(split) = &relation.split {
        let path = format!("{path}.split");
        check_list_name(contract, &format!("{path}.list"), &split.list)?;
        let lengths = contract.lists[&split.list].length.is_some();
        ensure(
            lengths,
            &format!("{path}.list"),
            &format!("`{}` has no lengths to split", split.list),
            "name a list of `length`",
        )?;
        let at_path = format!("{path}.at");
        expect(contract, &split.at, Visible::Structure, Kind::Int).map_err(at(&at_path))?;
        for (index, name) in split.carry.iter().enumerate() {
            let path = format!("{path}.carry[{index}]");
            check_tensor_name(contract, &path, name)?;
            let carried =
                accesses(&contract.tensors[name]).any(|access| access == Access::ReadWrite);
            ensure(
                carried,
                &path,
                &format!("`{name}` is not updated in place"),
                "name read_write tensors",
            )?;
        }
    }
    if let Some(same) = &relation.same {
        let path = format!("{path}.same.set");
        ensure(!same.set.is_empty(), &path, "nothing is set", "set an option or a variant")?;
        for (name, word) in &same.set {
            let is_choice =
                contract.options.contains_key(name) || contract.variants.contains_key(name);
            check_word(contract, &path, name, &word.0, is_choice)?;
        }
    }
    if let Some(copies) = &relation.copies {
        check_copies(contract, &format!("{path}.copies"), copies)?;
    }
    check_reruns(contract, path, relation)?;
    if let Some(equals) = &relation.equals {
        check_name(&format!("{path}.equals.contract"), &equals.contract)?;
        check_name(&format!("{path}.equals.adapter"), &equals.adapter)?;
    }
    Ok(())
}

/// Whether an input and an output both have an axis of this dim, and it is not made of segments.
fn is_passed_on(contract: &Contract, dim: &str) -> bool {
    let has_axis = |tensor: &&Tensor| {
        tensor.shape.iter().any(|extent| matches!(extent, Expr::Name(name) if **name == *dim))
    };
    let of = |is_output: bool| {
        let is_such = |tensor: &&Tensor| (tensor.access == By::Always(Access::Read)) != is_output;
        contract.tensors.values().filter(has_axis).any(|tensor| is_such(&tensor))
    };
    let is_segmented = contract.dims.get(dim).is_some_and(|dim| dim.segments.is_some());
    !is_segmented && of(false) && of(true)
}

/// Relations between a run and the same case put otherwise.
fn check_reruns(contract: &Contract, path: &str, relation: &Relation) -> Checked {
    if let Some(permute) = &relation.permute {
        let path = format!("{path}.permute.axis");
        check_dim_name(contract, &path, &permute.axis)?;
        let is_named = |list: &crate::format::List| {
            list.each == permute.axis || crate::layout::pool_of(list) == Some(&*permute.axis)
        };
        let what = format!(
            "`{}` is the axis of no list, no list points into it, and its order is not free",
            permute.axis
        );
        let named = contract.lists.values().any(is_named) || is_passed_on(contract, &permute.axis);
        ensure(
            named,
            &path,
            &what,
            "name an axis or a pool of a list, or an axis of inputs and outputs",
        )?;
    }
    for (form, carried) in [("steps", &relation.steps), ("replay", &relation.replay)] {
        let Some(carried) = carried else { continue };
        check_carried(contract, &format!("{path}.{form}"), &carried.list, &carried.carry)?;
    }
    if let Some(heads) = &relation.heads {
        let path = format!("{path}.heads");
        check_dim_name(contract, &format!("{path}.of"), &heads.of)?;
        check_dim_name(contract, &format!("{path}.with"), &heads.with)?;
        let of = contract.dims[&heads.with].multiple_of.as_ref();
        let multiple = matches!(of, Some(Expr::Name(name)) if **name == *heads.of);
        let what = format!("`{}` is no multiple of `{}`", heads.with, heads.of);
        ensure(multiple, &format!("{path}.with"), &what, "name a dim that is `multiple_of: <of>`")?;
    }
    if let Some(scale) = &relation.scale {
        for (role, names, written) in
            [("tensors", &scale.tensors, false), ("outputs", &scale.outputs, true)]
        {
            for (index, name) in names.iter().enumerate() {
                let path = format!("{path}.scale.{role}[{index}]");
                check_tensor_name(contract, &path, name)?;
                let tensor = &contract.tensors[name];
                let other = if written { Access::Read } else { Access::Write };
                let fits = accesses(tensor).any(|access| access != other)
                    && allowed_dtypes(contract, tensor).all(|dtype| dtype.is_float());
                let what = format!("`{name}` holds no floating-point numbers to scale");
                ensure(fits, &path, &what, "name inputs under tensors, outputs under outputs")?;
            }
        }
        let some = !scale.tensors.is_empty() && !scale.outputs.is_empty() && scale.power != 0;
        let path = format!("{path}.scale");
        ensure(some, &path, "nothing is scaled", "name tensors, outputs and a power not 0")?;
    }
    if let Some(recall) = &relation.recall {
        let path = format!("{path}.recall.change");
        let known = contract.scalars.contains_key(&recall.change);
        let what = format!("`{}` is no scalar", recall.change);
        ensure(known, &path, &what, "name a scalar of this contract")?;
    }
    Ok(())
}

fn check_carried(contract: &Contract, path: &str, list: &str, carry: &[String]) -> Checked {
    check_list_name(contract, &format!("{path}.list"), list)?;
    let what = format!("`{list}` has no lengths");
    let lengths = contract.lists[list].length.is_some();
    ensure(lengths, &format!("{path}.list"), &what, "name a list of `length`")?;
    for (index, name) in carry.iter().enumerate() {
        let path = format!("{path}.carry[{index}]");
        check_tensor_name(contract, &path, name)?;
        let carried = accesses(&contract.tensors[name]).any(|access| access == Access::ReadWrite);
        let what = format!("`{name}` is not updated in place");
        ensure(carried, &path, &what, "name read_write tensors")?;
    }
    Ok(())
}

/// A pool and an output over the list's axis, of one type and one shape but for the first axis.
fn check_copies(contract: &Contract, path: &str, copies: &Copies) -> Checked {
    check_list_name(contract, &format!("{path}.by"), &copies.by)?;
    for (role, name) in [("of", &copies.of), ("into", &copies.into)] {
        check_tensor_name(contract, &format!("{path}.{role}"), name)?;
        let written = accesses(&contract.tensors[name]).any(|access| access != Access::Read);
        let what = format!("`{name}` is not written");
        ensure(written, &format!("{path}.{role}"), &what, "name outputs")?;
    }
    let list = &contract.lists[&copies.by];
    let (of, into) = (&contract.tensors[&copies.of], &contract.tensors[&copies.into]);
    let pool = list.slots.as_ref().map(|slots| slots.pool.as_str());
    let fits = pool.is_some()
        && first_axis(of) == pool
        && first_axis(into) == Some(list.each.as_str())
        && of.dtype == into.dtype
        && of.shape[1..] == into.shape[1..];
    ensure(
        fits,
        path,
        "the two outputs are not slots and rows of one type and shape",
        "name an output in the list's pool and one over the list's axis",
    )
}

fn check_path(contract: &Contract, path: &str, taken: &Path) -> Checked {
    one_form(path, &taken.forms())?;
    let word = taken.word().unwrap_or_default();
    let plain = !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric());
    let what = format!("`{word}` is no word of an entry's name");
    ensure(plain, path, &what, "write letters and digits, what stands between two `_`")?;
    condition(contract, path, taken.when.as_ref())?;
    if let Some(sizes) = &taken.sizes {
        let path = format!("{path}.where");
        expect(contract, sizes, Visible::Structure, Kind::Bool).map_err(at(&path))?;
    }
    for (tensor, elements) in &taken.pieces {
        let path = format!("{path}.pieces.{tensor}");
        check_tensor_name(contract, &path, tensor)?;
        expect(contract, elements, Visible::Structure, Kind::Int).map_err(at(&path))?;
    }
    Ok(())
}

fn check_rejection(contract: &Contract, path: &str, rejection: &Rejection) -> Checked {
    let edits = rejection.set_dtype.len()
        + rejection.set_shape.len()
        + rejection.set_stride.len()
        + rejection.set_dim.len();
    ensure(
        edits == 1,
        path,
        &format!("{edits} edits"),
        "write exactly one of set_dtype, set_shape, set_stride, set_dim, with one entry",
    )?;
    for (name, dtype) in &rejection.set_dtype {
        let path = format!("{path}.set_dtype.{name}");
        check_tensor_name(contract, &path, name)?;
        let legal = allowed_dtypes(contract, &contract.tensors[name]).any(|known| known == *dtype);
        ensure(!legal, &path, &format!("`{name}` may be {dtype}"), "name a type it must not have")?;
    }
    for (name, shape) in &rejection.set_shape {
        check_tensor_name(contract, &format!("{path}.set_shape.{name}"), name)?;
        for (index, extent) in shape.iter().enumerate() {
            let path = format!("{path}.set_shape.{name}[{index}]");
            expect(contract, extent, Visible::Structure, Kind::Int).map_err(at(&path))?;
        }
    }
    for (name, stride) in &rejection.set_stride {
        let path = format!("{path}.set_stride.{name}");
        check_tensor_name(contract, &path, name)?;
        expect(contract, stride, Visible::Structure, Kind::Int).map_err(at(&path))?;
        let rows = contract.tensors[name].shape.len() >= 2;
        ensure(
            rows,
            &path,
            &format!("`{name}` has no row stride"),
            "name a tensor of two or more axes",
        )?;
    }
    for (name, size) in &rejection.set_dim {
        let path = format!("{path}.set_dim.{name}");
        check_dim_name(contract, &path, name)?;
        expect(contract, size, Visible::Structure, Kind::Int).map_err(at(&path))?;
    }
    Ok(())
}

fn check_fixture(contract: &Contract, path: &str, fixture: &Fixture) -> Checked {
    check_name(path, path.rsplit('.').next().unwrap_or(path))?;
    for (name, size) in &fixture.dims {
        let path = format!("{path}.dims.{name}");
        check_dim_name(contract, &path, name)?;
        let dim = &contract.dims[name];
        ensure(
            dim.is.is_none(),
            &path,
            &format!("`{name}` is computed"),
            "fix what it is computed from",
        )?;
        let legal = *size >= 0 && (dim.one_of.is_empty() || dim.one_of.contains(size));
        ensure(
            legal,
            &path,
            &format!("{size} is no size of `{name}`"),
            &format!("write one of {:?}", dim.one_of),
        )?;
    }
    for (name, items) in &fixture.lists {
        let path = format!("{path}.lists.{name}");
        check_list_name(contract, &path, name)?;
        let list = &contract.lists[name];
        ensure(
            list.is.is_none(),
            &path,
            &format!("`{name}` is computed"),
            "fix what it is computed from",
        )?;
        ensure(items.len() <= MOST_LITERALS, &path, "more than 64 literals", "shorten the list")?;
        if let Some(count) = fixture.dims.get(&list.each) {
            let what = format!("{} elements, but {} is {count}", items.len(), list.each);
            ensure(*count == items.len() as i64, &path, &what, "make the two agree")?;
        }
    }
    for (name, dtype) in &fixture.dtypes {
        check_word(
            contract,
            &format!("{path}.dtypes"),
            name,
            dtype.name(),
            contract.dtypes.contains_key(name),
        )?;
    }
    for (name, word) in &fixture.options {
        check_word(
            contract,
            &format!("{path}.options"),
            name,
            &word.0,
            contract.options.contains_key(name),
        )?;
    }
    for (name, word) in &fixture.variants {
        check_word(
            contract,
            &format!("{path}.variants"),
            name,
            &word.0,
            contract.variants.contains_key(name),
        )?;
    }
    for (name, layout) in &fixture.layout {
        let path = format!("{path}.layout.{name}");
        check_tensor_name(contract, &path, name)?;
        let allowed = &contract.tensors[name].layout;
        let legal = allowed.contains(layout) || allowed.is_empty() && *layout == LayoutKind::Dense;
        ensure(
            legal,
            &path,
            &format!("`{name}` is never {}", layout_word(*layout)),
            "name one of its layouts",
        )?;
    }
    for (name, values) in &fixture.values {
        let path = format!("{path}.values.{name}");
        check_tensor_name(contract, &path, name)?;
        let drawn = contract.tensors[name].domain.is_some();
        ensure(drawn, &path, &format!("`{name}` holds nothing that is drawn"), "name an input")?;
        check_values(contract, &path, std::slice::from_ref(values))?;
    }
    for (name, class) in &fixture.joint {
        let path = format!("{path}.joint.{name}");
        let known = contract.joint.keys().map(String::as_str);
        let Some(Joint::GdnGates { classes, .. }) = contract.joint.get(name) else {
            return Err(found(
                path,
                format!("`{name}` is no joint generator"),
                suggestion(name, known),
            ));
        };
        ensure(
            classes.contains(class),
            &path,
            &format!("`{name}` has no class {class:?}"),
            "name one of its classes",
        )?;
    }
    Ok(())
}

fn check_word(
    contract: &Contract,
    section: &str,
    name: &str,
    word: &str,
    declared: bool,
) -> Checked {
    let path = format!("{section}.{name}");
    let words = words_of(contract, name).filter(|_| declared);
    let Some(words) = words else {
        return Err(found(
            path,
            format!("`{name}` is not declared"),
            format!("name one of the contract's {section}"),
        ));
    };
    let unknown = format!("`{word}` is no value of `{name}`");
    ensure(words.contains(&word), &path, &unknown, &suggestion(word, words.iter().copied()))
}

fn check_mutants(contract: &Contract) -> Checked {
    let ids: Vec<String> = clauses(contract).into_iter().map(|clause| clause.id).collect();
    for (name, mutant) in &contract.mutants {
        let path = format!("mutants.{name}");
        let prefix = format!("{}.", mutant.killed_by);
        let exists = ids.iter().any(|id| *id == mutant.killed_by || id.starts_with(&prefix));
        ensure(
            exists && !mutant.killed_by.starts_with("mutants"),
            &format!("{path}.killed_by"),
            &format!("`{}` is no clause", mutant.killed_by),
            &suggestion(
                &mutant.killed_by,
                ids.iter().map(String::as_str).filter(|id| !id.starts_with("mutants")),
            ),
        )?;
        ensure(
            mutant.equivalent.as_ref().is_none_or(|reason| !reason.trim().is_empty()),
            &format!("{path}.equivalent"),
            "no reason is given",
            "say why no case can tell it from the kernel",
        )?;
        if let Some(fixture) = &mutant.with {
            let known = contract.fixtures.keys().map(String::as_str);
            let unknown = format!("`{fixture}` is no fixture");
            ensure(
                contract.fixtures.contains_key(fixture),
                &format!("{path}.with"),
                &unknown,
                &suggestion(fixture, known),
            )?;
        }
    }
    Ok(())
}
