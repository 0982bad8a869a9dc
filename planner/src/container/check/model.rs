//! Files and tensors of the model: where bytes lie and what is done to them when they are loaded.

use super::error::{CheckError, Place};
use crate::gguf;
use crate::plan::{Plan, Tensor};
use crate::source::{load, pieces};

/// Most files of a model. Published ones have some 200 shards.
const FILES: usize = 1 << 12;

pub(super) fn check(plan: &Plan) -> Result<(), CheckError> {
    files(plan)?;
    let absent = plan
        .model
        .tensors
        .iter()
        .filter(|t| t.digest.is_none())
        .count();
    if absent != 0 && absent != plan.model.tensors.len() {
        let expected = format!("none or all {}", plan.model.tensors.len());
        return Err(CheckError::mismatch(
            Place::Model,
            "tensors without digest",
            absent,
            expected,
        ));
    }
    for tensor in &plan.model.tensors {
        loading(tensor)?;
        place(plan, tensor)?;
    }
    Ok(())
}

/// Each file is as long as its head, and no head is longer than the readers allow.
fn files(plan: &Plan) -> Result<(), CheckError> {
    let files = &plan.model.files;
    let wrong = |what, found: String, expected: String| {
        Err(CheckError::mismatch(Place::Model, what, found, expected))
    };
    if files.is_empty() || files.len() > FILES {
        return wrong("files", files.len().to_string(), format!("1 to {FILES}"));
    }
    // The header's end is rounded up to the alignment of tensors.
    let longest = gguf::limits::MAX_HEADER_BYTES + gguf::limits::MAX_ALIGNMENT;
    let mut total = 0u64;
    for file in files {
        let most = longest.min(file.bytes);
        if file.header_bytes == 0 || file.header_bytes > most {
            let expected = format!("1 to {most}");
            return wrong("header_bytes", file.header_bytes.to_string(), expected);
        }
        total = match total.checked_add(file.bytes) {
            Some(total) => total,
            None => return wrong("file lengths", "their sum overflows".into(), "a u64".into()),
        };
    }
    Ok(())
}

fn loading(tensor: &Tensor) -> Result<(), CheckError> {
    let shape = (u64::from(tensor.rows), u64::from(tensor.cols));
    load::check(
        &tensor.load,
        (tensor.stored.into(), tensor.dtype.into()),
        shape,
    )
    .map_err(|error| {
        let place = Place::Tensor(tensor.name.clone());
        CheckError::mismatch(
            place,
            "load",
            error.to_string(),
            "changes that fit the tensor",
        )
    })
}

/// Each piece of a tensor lies between the head and the end of one file. A tensor without a digest
/// may have no place.
fn place(plan: &Plan, tensor: &Tensor) -> Result<(), CheckError> {
    if tensor.digest.is_none() && tensor.file_offset == 0 && tensor.more.is_empty() {
        return Ok(());
    }
    let wrong = |what, found: String, expected: String| {
        let place = Place::Tensor(tensor.name.clone());
        Err(CheckError::mismatch(place, what, found, expected))
    };
    let count = tensor.more.len() as u64 + 1;
    if count > u64::from(tensor.rows) || !tensor.file_bytes.is_multiple_of(count) {
        let expected = format!(
            "equal parts of {} rows and {} bytes",
            tensor.rows, tensor.file_bytes
        );
        return wrong("pieces", count.to_string(), expected);
    }
    for (offset, bytes) in pieces(tensor.file_offset, tensor.file_bytes, &tensor.more) {
        if let Some(expected) = misplaced(plan, offset, bytes) {
            return wrong("end in file", format!("{offset} + {bytes}"), expected);
        }
    }
    Ok(())
}

/// Where a piece must lie, if it does not.
fn misplaced(plan: &Plan, offset: u64, bytes: u64) -> Option<String> {
    let end = offset.checked_add(bytes);
    let mut base = 0u64;
    for file in &plan.model.files {
        let (first, limit) = (base + file.header_bytes, base + file.bytes);
        if offset < limit {
            let inside = offset >= first && end.is_some_and(|end| end <= limit);
            return (!inside).then(|| format!("from {first} to {limit}, the data of one file"));
        }
        base = limit;
    }
    Some(format!("at most {base}"))
}
