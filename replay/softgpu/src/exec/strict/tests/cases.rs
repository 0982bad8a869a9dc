//! Launches of every kernel of the catalog: sizes and control words come from `shapes`; grid,
//! arguments and buffer lengths from the catalog row.

use super::shapes::{SHAPES, Shape};
use super::support::{Gpu, Random, bytes};
use super::tools::{dispatch, extent, weight};
use crate::exec::Dispatch;
use refrain_kernels::{Access, ArgKind, CONTROL_BYTES, Dtype, KernelRow, Op, Word, WordValues};
use refrain_kernels::{Arg, Need, catalog};

/// One launch.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) kernel: &'static str,
    pub(super) dispatch: Dispatch,
    /// Buffers that it writes, with what they hold before it.
    outputs: Vec<(u64, Vec<u8>)>,
}

impl Case {
    /// Puts back what the launch wrote.
    pub(super) fn restore(&self, gpu: &Gpu) {
        for (va, before) in &self.outputs {
            gpu.memory.write_bytes(*va, before).unwrap();
        }
    }

    /// What lies in the buffers that it writes.
    pub(super) fn result(&self, gpu: &Gpu) -> Vec<Vec<u8>> {
        let read = |(va, before): &(u64, Vec<u8>)| {
            let mut now = vec![0; before.len()];
            gpu.memory.read_bytes(*va, &mut now).unwrap();
            now
        };
        self.outputs.iter().map(read).collect()
    }
}

/// All cases, on buffers of `gpu`. Twice the same call gives the same addresses' contents.
pub(super) fn all(gpu: &Gpu) -> Vec<Case> {
    catalog().iter().flat_map(|row| of_row(gpu, row)).collect()
}

/// The cases of one kernel.
pub(super) fn of_row(gpu: &Gpu, row: &'static KernelRow) -> Vec<Case> {
    let mut random = Random(41);
    let shapes = SHAPES.iter().filter(|shape| shape.ops.contains(&row.op));
    shapes
        .flat_map(|shape| shape.at.iter().map(move |words| (shape, *words)))
        .map(|(shape, words)| case(gpu, row, shape, words, &mut random))
        .collect()
}

fn case(
    gpu: &Gpu,
    row: &'static KernelRow,
    shape: &Shape,
    at: &[(Word, u32)],
    random: &mut Random,
) -> Case {
    let imms: Vec<u32> = row.imms().map(|arg| imm(row, arg, shape)).collect();
    row.check(&imms).unwrap();
    let mut words = WordValues::default();
    for (word, value) in at {
        words.set(*word, *value);
    }
    // At a position at the end of the numbers no row of a cache is read, and there is no such cache.
    let mut reached = words;
    reached.set(Word::Pos, words.get(Word::Pos) % 1024);
    let mut outputs = Vec::new();
    let mut pointers = Vec::new();
    for arg in row.pointers() {
        let contents = if arg.name == "control" {
            words.to_bytes().to_vec()
        } else {
            let len = extent(row, arg.name, &imms, &reached) as usize;
            fill(row, arg, len, shape, random)
        };
        let va = gpu.buffer(arg.name, &contents);
        pointers.push((arg.name, va));
        if matches!(arg.kind, ArgKind::Pointer(access) if access.writes()) {
            outputs.push((va, contents));
        }
    }
    Case {
        name: format!("{} {imms:x?} {at:x?}", row.symbol),
        kernel: row.symbol,
        dispatch: dispatch(gpu, row, &pointers, &imms),
        outputs,
    }
}

fn imm(row: &KernelRow, arg: &Arg, shape: &Shape) -> u32 {
    let f32_value = match arg.name {
        "eps" => Some(1e-6f32),
        "norm_eps" => Some(1e-5),
        "scale" => Some(0.125),
        "inv_temperature" => Some(1.25),
        "top_p" => Some(0.9),
        _ => None,
    };
    let given = shape.imms.iter().find(|(name, _)| *name == arg.name);
    // A cache in planes is declared by the whole width of its rows.
    let width = match (row.head_dim, arg.name) {
        (Some(dim), "kv_dim") => shape
            .imms
            .iter()
            .find(|i| i.0 == "kv_heads")
            .map(|i| i.1 * dim),
        _ => None,
    };
    let given = width.or(given.map(|(_, v)| *v));
    let value = f32_value.map(f32::to_bits).or(given);
    let value = value.unwrap_or_else(|| panic!("{} needs {}", row.symbol, arg.name));
    row.needs.iter().fold(value, |value, need| match need {
        Need::MultipleOf(name, n) if *name == arg.name => value.next_multiple_of(*n),
        _ => value,
    })
}

/// Whether the argument's elements have the row's type.
fn is_typed(row: &KernelRow, arg: &Arg) -> bool {
    match arg.name {
        "weights" => false,
        "kcache" | "vcache" => true,
        "table" => row.op == Op::Embed,
        name => name.starts_with('w'),
    }
}

fn fill(row: &KernelRow, arg: &Arg, len: usize, shape: &Shape, random: &mut Random) -> Vec<u8> {
    let dwords = len / 4;
    match (arg.name, arg.kind) {
        (_, ArgKind::Pointer(Access::Write)) => return vec![0; len],
        ("prompt", _) => return bytes(30..30 + dwords as u32),
        // Distinct, and one past the last expert, which the kernels clamp.
        ("ids", _) => return bytes((0..dwords as u32).map(|slot| 5 - 2 * slot.min(2))),
        ("logits", _) if shape.ties => return bytes((0..dwords).map(|_| f32::INFINITY.to_bits())),
        _ => {}
    }
    let dtype = row.dtype.filter(|_| is_typed(row, arg));
    let dtype = dtype.unwrap_or(Dtype::F32);
    let elements = match dtype {
        Dtype::F32 if arg.name == "x" && row.habit.is_some() => return codes(len, random),
        Dtype::F32 => dwords,
        Dtype::F16 | Dtype::BF16 => len / 2,
        _ => return codes(len, random),
    };
    let data = weight(dtype, &[random.floats(elements)]).bytes;
    assert_eq!(data.len(), len, "{} {}", row.symbol, arg.name);
    data
}

/// Codes and scales: no byte that is the upper one of an infinity or a NaN.
fn codes(len: usize, random: &mut Random) -> Vec<u8> {
    (0..len).map(|_| random.next() as u8 & 0x3f).collect()
}

/// A kernel that joins the catalog must get a shape.
#[test]
fn every_kernel_of_the_catalog_has_a_launch() {
    for row in catalog() {
        let shape = SHAPES.iter().find(|shape| shape.ops.contains(&row.op));
        let launches = shape.map_or(0, |shape| shape.at.len());
        assert!(
            launches > 0,
            "no shape in shapes.rs launches {}",
            row.symbol
        );
    }
    assert_eq!(
        CONTROL_BYTES as usize,
        WordValues::default().to_bytes().len()
    );
}
