//! The per-kernel facts of NT_AMDGPU_METADATA (LLVM AMDGPUUsage, "Code Object V3..V6 Metadata").
//! Checks types and bounds of the keys that the loader relies on; unknown keys are ignored, as the
//! format demands.

use super::error::ObjectError;
use super::msgpack::{self, Value};

/// One kernel argument as the compiler describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelArg {
    /// `.name`, empty when the compiler left it out.
    pub name: String,
    /// Byte offset in the kernarg block.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
    /// `.value_kind`: `by_value`, `global_buffer`, `hidden_block_count_x`, …
    pub value_kind: String,
}

/// One entry of `amdhsa.kernels`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelMetadata {
    /// `.name`, as passed to a symbol look-up.
    pub name: String,
    /// `.symbol`, the descriptor's symbol (`NAME.kd`).
    pub symbol: String,
    /// Bytes of kernel arguments.
    pub kernarg_segment_size: u32,
    /// Alignment of the kernarg block, bytes.
    pub kernarg_segment_align: u32,
    /// Static LDS bytes per work-group.
    pub group_segment_fixed_size: u32,
    /// Scratch bytes per work-item.
    pub private_segment_fixed_size: u32,
    /// 32 or 64.
    pub wavefront_size: u32,
    /// Most work-items per work-group that the code was compiled for.
    pub max_flat_workgroup_size: u32,
    /// Work-group size that the code insists on.
    pub reqd_workgroup_size: Option<[u32; 3]>,
    /// `.uses_dynamic_stack`.
    pub uses_dynamic_stack: bool,
    /// `.cluster_dims` present.
    pub has_cluster_dims: bool,
    /// `.kind`, `normal` when absent.
    pub kind: String,
    /// Arguments in declaration order, hidden ones included.
    pub args: Vec<KernelArg>,
}

/// The whole note.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ObjectMetadata {
    pub target: String,
    pub uses_printf: bool,
    pub kernels: Vec<KernelMetadata>,
}

/// Reads the note's descriptor bytes.
pub(crate) fn parse(bytes: &[u8]) -> Result<ObjectMetadata, ObjectError> {
    let root = msgpack::parse(bytes)?;
    let version = root
        .get("amdhsa.version")
        .and_then(Value::as_array)
        .unwrap_or_default();
    if version.first().and_then(Value::as_u64) != Some(1) {
        return Err(error(
            "amdhsa.version is missing or its major number is not 1",
        ));
    }
    let target = root
        .get("amdhsa.target")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let uses_printf = root.get("amdhsa.printf").is_some();
    let entries = root
        .get("amdhsa.kernels")
        .map_or(Some([].as_slice()), Value::as_array);
    let entries = entries.ok_or_else(|| error("amdhsa.kernels is not a list"))?;
    let kernels = entries.iter().map(kernel).collect::<Result<Vec<_>, _>>()?;
    Ok(ObjectMetadata {
        target,
        uses_printf,
        kernels,
    })
}

fn error(what: impl Into<String>) -> ObjectError {
    ObjectError::Metadata {
        offset: 0,
        what: what.into(),
    }
}

fn required_u32(map: &Value<'_>, owner: &str, key: &str) -> Result<u32, ObjectError> {
    map.get(key)
        .and_then(Value::as_u64)
        .and_then(|number| u32::try_from(number).ok())
        .ok_or_else(|| {
            error(format!(
                "`{owner}`: {key} is missing or not a 32-bit number"
            ))
        })
}

fn required_str(map: &Value<'_>, owner: &str, key: &str) -> Result<String, ObjectError> {
    let text = map.get(key).and_then(Value::as_str);
    text.map(str::to_owned)
        .ok_or_else(|| error(format!("`{owner}`: {key} is missing or not a string")))
}

fn kernel(entry: &Value<'_>) -> Result<KernelMetadata, ObjectError> {
    let name = required_str(entry, "amdhsa.kernels", ".name")?;
    let reqd_workgroup_size = match entry.get(".reqd_workgroup_size") {
        None => None,
        Some(value) => Some(
            dims(value)
                .ok_or_else(|| error(format!("`{name}`: .reqd_workgroup_size is not [x,y,z]")))?,
        ),
    };
    let args = match entry.get(".args") {
        None => Vec::new(),
        Some(value) => value
            .as_array()
            .ok_or_else(|| error(format!("`{name}`: .args is not a list")))?
            .iter()
            .map(|item| argument(item, &name))
            .collect::<Result<Vec<_>, _>>()?,
    };
    let kind = entry.get(".kind").map_or(Some("normal"), Value::as_str);
    let stack = entry
        .get(".uses_dynamic_stack")
        .map_or(Some(false), Value::as_bool);
    Ok(KernelMetadata {
        symbol: required_str(entry, &name, ".symbol")?,
        kernarg_segment_size: required_u32(entry, &name, ".kernarg_segment_size")?,
        kernarg_segment_align: required_u32(entry, &name, ".kernarg_segment_align")?,
        group_segment_fixed_size: required_u32(entry, &name, ".group_segment_fixed_size")?,
        private_segment_fixed_size: required_u32(entry, &name, ".private_segment_fixed_size")?,
        wavefront_size: required_u32(entry, &name, ".wavefront_size")?,
        max_flat_workgroup_size: required_u32(entry, &name, ".max_flat_workgroup_size")?,
        reqd_workgroup_size,
        uses_dynamic_stack: stack
            .ok_or_else(|| error(format!("`{name}`: .uses_dynamic_stack is not a flag")))?,
        has_cluster_dims: entry.get(".cluster_dims").is_some(),
        kind: kind
            .ok_or_else(|| error(format!("`{name}`: .kind is not a string")))?
            .to_owned(),
        args,
        name,
    })
}

fn dims(value: &Value<'_>) -> Option<[u32; 3]> {
    let items = value.as_array()?;
    let mut dims = [0; 3];
    if items.len() != 3 {
        return None;
    }
    for (dim, item) in dims.iter_mut().zip(items) {
        *dim = u32::try_from(item.as_u64()?).ok()?;
    }
    Some(dims)
}

fn argument(entry: &Value<'_>, kernel: &str) -> Result<KernelArg, ObjectError> {
    Ok(KernelArg {
        name: entry
            .get(".name")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        offset: required_u32(entry, kernel, ".offset")?,
        size: required_u32(entry, kernel, ".size")?,
        value_kind: required_str(entry, kernel, ".value_kind")?,
    })
}
