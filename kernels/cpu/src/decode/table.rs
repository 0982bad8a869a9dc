//! Which function executes an operation: one row each.

use refrain_kernels::{Dtype, KernelRow, Op};

use super::launch::Call;
use super::{DecodeError, attention, elementwise, gemv, moe, norm, recurrent, rope, sample};
use crate::Isa;

type Plain = fn(&mut Call<'_>) -> Result<(), DecodeError>;
#[cfg(target_arch = "x86_64")]
type Vector = unsafe fn(&mut Call<'_>) -> Result<(), DecodeError>;

/// One source, compiled for each instruction set.
#[derive(Debug)]
pub(super) struct Function {
    scalar: Plain,
    /// Needs what [`Isa::Avx2`] stands for.
    #[cfg(target_arch = "x86_64")]
    avx2: Vector,
    /// Needs what [`Isa::Avx512`] stands for.
    #[cfg(target_arch = "x86_64")]
    avx512: Vector,
}

impl Function {
    /// Calls the function. `isa` must be at most [`Isa::best`]; a greater one is taken as that.
    pub(super) fn run(&self, isa: Isa, call: &mut Call<'_>) -> Result<(), DecodeError> {
        match isa.min(Isa::best()) {
            Isa::Scalar => (self.scalar)(call),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: at most `Isa::best()`, which is Avx2 only where those features were detected.
            Isa::Avx2 => unsafe { (self.avx2)(call) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above, for Avx512.
            Isa::Avx512 => unsafe { (self.avx512)(call) },
            #[cfg(not(target_arch = "x86_64"))]
            _ => (self.scalar)(call),
        }
    }
}

struct Row {
    op: Op,
    function: Function,
}

/// A row: `$body` is `#[inline(always)]`, so that it is compiled under each set's features.
macro_rules! row {
    ($op:ident, $body:path) => {
        Row {
            op: Op::$op,
            function: {
                fn scalar(call: &mut Call<'_>) -> Result<(), DecodeError> {
                    $body(call)
                }
                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "avx2,fma,f16c")]
                fn avx2(call: &mut Call<'_>) -> Result<(), DecodeError> {
                    $body(call)
                }
                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")]
                fn avx512(call: &mut Call<'_>) -> Result<(), DecodeError> {
                    $body(call)
                }
                Function {
                    scalar,
                    #[cfg(target_arch = "x86_64")]
                    avx2,
                    #[cfg(target_arch = "x86_64")]
                    avx512,
                }
            },
        }
    };
}

static TABLE: &[Row] = &[
    row!(Embed, elementwise::embed),
    row!(RmsNorm, norm::rmsnorm),
    row!(RmsNormQuantise, norm::rmsnorm_quantise),
    row!(Quantise, norm::quantise),
    row!(Rotate, norm::rotate),
    row!(Gemv, gemv::plain),
    row!(GemvAdd, gemv::add),
    row!(GemvBias, gemv::bias),
    row!(GemvSilu, gemv::silu),
    row!(GemvGatedAdd, gemv::gated_add),
    row!(Gemv2, gemv::two),
    row!(Gemv3, gemv::three),
    row!(Gemv4, gemv::four),
    row!(Gemv3Bias, gemv::three_bias),
    row!(QkNorm, norm::qk_norm),
    row!(Rope, rope::rope),
    row!(KvWrite, rope::kv_write),
    row!(QkNormRopeKv, rope::qk_norm_rope_kv),
    row!(RopeKv, rope::rope_kv),
    row!(AttnDecode, attention::decode),
    row!(AttnSplit, attention::split),
    row!(AttnMerge, attention::merge),
    row!(AttnMergeGated, attention::merge_gated),
    row!(QGateSplit, elementwise::q_gate_split),
    row!(SigmoidMul, elementwise::sigmoid_mul),
    row!(ConvSilu, recurrent::conv_silu),
    row!(L2Norm, recurrent::l2_norm),
    row!(DeltaGates, recurrent::delta_gates),
    row!(DeltaStep, recurrent::delta_step),
    row!(GatedNorm, recurrent::gated_norm),
    row!(DeltaNet, recurrent::delta_net),
    row!(ShortConv, recurrent::short_conv),
    row!(MoeRoute, moe::route),
    row!(MoeGemv, moe::gemv),
    row!(MoeGateUp, moe::gate_up),
    row!(MoeDownAdd, moe::down_add),
    row!(GatedAdd, elementwise::gated_add),
    row!(SiluMul, elementwise::silu_mul),
    row!(Argmax, sample::argmax),
    row!(Sample, sample::sample),
    row!(Advance, sample::advance),
];

/// Whether a kernel reads or writes a cache of several planes, which no function knows.
fn in_planes(row: &KernelRow) -> bool {
    matches!(row.op, Op::KvWrite | Op::AttnDecode | Op::AttnSplit) && row.dtype == Some(Dtype::Q8_0)
}

/// The function of a kernel.
pub(super) fn function(row: &'static KernelRow) -> Result<&'static Function, DecodeError> {
    let found = TABLE.iter().find(|entry| entry.op == row.op);
    let entry = found.filter(|_| !in_planes(row));
    let entry = entry.ok_or_else(|| DecodeError::NoFunction {
        symbol: row.symbol,
        op: format!("{:?}", row.op)
            + if in_planes(row) {
                " on a Q8_0 cache"
            } else {
                ""
            },
    })?;
    Ok(&entry.function)
}

#[cfg(test)]
mod tests {
    use super::{TABLE, function, in_planes};
    use refrain_kernels::catalog;
    use std::collections::HashSet;

    #[test]
    fn every_kernel_of_the_catalog_has_a_function_and_every_function_a_kernel() {
        let mut used = HashSet::new();
        for row in catalog().iter().filter(|row| !in_planes(row)) {
            function(row).unwrap_or_else(|error| panic!("{error}"));
            used.insert(row.op);
        }
        let listed: HashSet<_> = TABLE.iter().map(|row| row.op).collect();
        assert_eq!(listed.len(), TABLE.len(), "an operation is listed twice");
        assert_eq!(listed, used);
    }
}
