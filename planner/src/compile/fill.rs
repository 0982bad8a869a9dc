//! Fills the digests of a plan that was made without weights.

use super::{PlanError, weights};
use crate::arch;
use crate::container::CheckedPlan;
use crate::plan::{BufferKind, Plan};
use crate::source::ModelSource;

/// What a model and a plan without weights disagree about.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FillError {
    /// Nothing to fill.
    #[error(
        "the plan of {model} has the digests of its weights; leave out --fill to plan another model"
    )]
    Filled {
        /// Model.
        model: String,
    },
    /// A model without weights.
    #[error("the model has no weights to fill the plan from; give the whole model")]
    NoWeights,
    /// Another model than was planned.
    #[error(
        "{what} is {found} in the model, the plan was made for {expected}; plan this model anew"
    )]
    Differs {
        /// Fact or tensor.
        what: String,
        /// In the model.
        found: String,
        /// In the plan.
        expected: String,
    },
}

/// The plan with files and digests of a whole model, whose shapes, types, end token and rotation must
/// be those that were planned. Everything else stays, so only the `model` layer of identity changes.
///
/// # Errors
/// [`PlanError::Fill`], and what is wrong with the model itself.
pub fn fill(plan: &CheckedPlan, source: &ModelSource) -> Result<CheckedPlan, PlanError> {
    if plan.model.has_weights() {
        let model = plan.model.name.clone();
        return Err(FillError::Filled { model }.into());
    }
    if !source.table().weights {
        return Err(FillError::NoWeights.into());
    }
    let bound = arch::bind(source.table())?;
    let mut filled: Plan = (**plan).clone();
    let model = &mut filled.model;
    same("architecture", bound.arch.name, &model.arch)?;
    same(
        "geometry",
        format!("{:?}", bound.geometry),
        format!("{:?}", model.geometry),
    )?;
    same(
        "end token",
        format!("{:?}", bound.eos),
        format!("{:?}", model.eos),
    )?;
    same(
        "number of tensors",
        bound.weights.len(),
        model.tensors.len(),
    )?;
    for (weight, tensor) in bound.weights.iter().zip(&model.tensors) {
        let shape = |name: &str, dtype, rows, cols| format!("{name} {dtype} [{cols}, {rows}]");
        let found = shape(&weight.info.name, weight.dtype, weight.rows, weight.cols);
        let expected = shape(&tensor.name, tensor.dtype, tensor.rows, tensor.cols);
        same(&format!("tensor {}", tensor.name), found, expected)?;
    }
    let rope = weights::rope(source, &bound)?;
    let mut constants = plan
        .buffers
        .iter()
        .filter(|buffer| buffer.kind == BufferKind::Constant);
    if !constants.any(|buffer| buffer.content == rope) {
        same("rotation table", "another one", "the plan's")?;
    }
    model.files = weights::files(source)?;
    let digests = weights::digests(source, &bound)?;
    for ((tensor, weight), digest) in model.tensors.iter_mut().zip(&bound.weights).zip(digests) {
        tensor.stored = weight.stored;
        tensor.load.clone_from(&weight.info.ops);
        tensor.file_offset = weight.info.offset;
        tensor.file_bytes = weight.info.bytes;
        tensor.more.clone_from(&weight.info.more);
        tensor.digest = digest;
    }
    if let Some(name) = bound.name {
        model.name = name;
    }
    Ok(CheckedPlan::check(filled)?)
}

fn same(what: &str, found: impl ToString, expected: impl ToString) -> Result<(), FillError> {
    let (found, expected) = (found.to_string(), expected.to_string());
    match found == expected {
        true => Ok(()),
        false => Err(FillError::Differs {
            what: what.to_owned(),
            found,
            expected,
        }),
    }
}
