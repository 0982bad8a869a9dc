//! What a catalog row says, and how it is evaluated: kernarg layout, grid, needs.

use crate::{Access, CatalogError, Dtype, Effect, Habit};

pub use crate::rows::catalog;

/// What a kernel computes. The formulas and summation orders stand at the top of each source in
/// `kernels/hip`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Row `token` of an embedding table, widened to f32.
    Embed,
    /// RMS normalisation of a vector with a weight.
    RmsNorm,
    /// The same, and the result as int8 besides.
    RmsNormQuantise,
    /// A vector as int8.
    Quantise,
    /// Each 256 elements of a vector times the orthogonal matrix of rotated weight types.
    Rotate,
    /// Matrix times vector for a range of rows.
    Gemv,
    /// The same plus a residual.
    GemvAdd,
    /// The same plus a bias.
    GemvBias,
    /// silu(Wg x) * (Wu x) for a range of rows.
    GemvSilu,
    /// residual + sigmoid(gate) * (W x) for a range of rows; the gate is one number.
    GemvGatedAdd,
    /// Two matrices times one vector.
    Gemv2,
    /// Three matrices times one vector.
    Gemv3,
    /// Four matrices times one vector.
    Gemv4,
    /// Three matrices times one vector, each plus its bias.
    Gemv3Bias,
    /// RMS normalisation of every query and key head, in place.
    QkNorm,
    /// Rotary position embedding of queries and keys, in place.
    Rope,
    /// Appends key and value to the cache.
    KvWrite,
    /// Per-head RMS normalisation of queries and keys, rotary embedding, append to the cache.
    QkNormRopeKv,
    /// Rotary embedding of queries and keys, append to the cache.
    RopeKv,
    /// Attention of one token over the cache.
    AttnDecode,
    /// The same over interleaved parts of the context, unnormalised.
    AttnSplit,
    /// Merge of the parts.
    AttnMerge,
    /// Merge of the parts, times the sigmoid of the gate that lies beside each query head.
    AttnMergeGated,
    /// Queries and gates apart, from heads of `[query, gate]`.
    QGateSplit,
    /// x * sigmoid(gate).
    SigmoidMul,
    /// Causal depthwise convolution over four positions, then SiLU.
    ConvSilu,
    /// x / |x| of every query and key head of a delta layer, queries times a scale, in place.
    L2Norm,
    /// Decay and write strength of the gated delta rule.
    DeltaGates,
    /// One step of the gated delta rule.
    DeltaStep,
    /// RMS normalisation per head, times silu(z).
    GatedNorm,
    /// [`Op::ConvSilu`], [`Op::DeltaGates`], [`Op::L2Norm`], [`Op::DeltaStep`] and
    /// [`Op::GatedNorm`] in one launch.
    DeltaNet,
    /// B, C, x apart, causal depthwise convolution of B * x over three positions, times C.
    ShortConv,
    /// Softmax over the experts, then the best ones by descending probability, then index.
    MoeRoute,
    /// Matrix of each chosen expert times one vector.
    MoeGemv,
    /// silu(Wg x) * (Wu x) of each chosen expert.
    MoeGateUp,
    /// residual + the weighted sum of the chosen experts' (W x).
    MoeDownAdd,
    /// residual + sigmoid(gate) * x; the gate is one number.
    GatedAdd,
    /// silu(gate) * up.
    SiluMul,
    /// Greedy choice of the next token.
    Argmax,
    /// Seeded choice of the next token by temperature, top-k and top-p.
    Sample,
    /// Moves the control words to the next position and publishes the token.
    Advance,
}

/// The kind of a kernel argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgKind {
    /// A device address, 8 bytes.
    Pointer(Access),
    /// An unsigned integer, 4 bytes.
    U32,
    /// An f32 given by its bits, 4 bytes.
    F32Bits,
}

impl ArgKind {
    /// Bytes in the kernarg segment, which is also the alignment.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            ArgKind::Pointer(_) => 8,
            ArgKind::U32 | ArgKind::F32Bits => 4,
        }
    }

    const fn is_pointer(self) -> bool {
        matches!(self, ArgKind::Pointer(_))
    }
}

/// Alignment in bytes that every pointer argument needs: the widest vector load of any kernel.
pub const POINTER_ALIGN: u64 = 32;

/// One kernel argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arg {
    /// Name, unique in the kernel.
    pub name: &'static str,
    /// Kind and, for a pointer, the access over all of its effects.
    pub kind: ArgKind,
}

/// A value for one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgValue {
    /// A device address.
    Pointer(u64),
    /// The bits of a U32 or F32Bits argument.
    Imm(u32),
}

/// How many work-groups a launch has; always one-dimensional and independent of the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grid {
    /// One.
    One,
    /// One for each `per_block` of the rows `[r0, r1)`.
    Rows {
        /// Rows per work-group.
        per_block: u32,
    },
    /// One for each `per_block` elements.
    Elements {
        /// The immediate that counts elements.
        count: &'static str,
        /// Elements per work-group.
        per_block: u32,
    },
    /// One for each unit of the sum of these immediates (heads).
    Sum(&'static [&'static str]),
    /// One for each `per_block` of the sum of these immediates (rows of several matrices).
    SumOf {
        /// The immediates that are added.
        counts: &'static [&'static str],
        /// Units per work-group.
        per_block: u32,
    },
    /// One for each `per_block` of the product of these immediates.
    Product {
        /// The immediates that are multiplied.
        counts: &'static [&'static str],
        /// Units per work-group.
        per_block: u32,
    },
}

/// What an immediate must satisfy. Every immediate that sizes something must also be at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// At least 1.
    Positive(&'static str),
    /// A multiple of the number.
    MultipleOf(&'static str, u32),
    /// A multiple of another immediate.
    MultipleOfImm(&'static str, &'static str),
    /// Below another immediate.
    Below(&'static str, &'static str),
    /// At most another immediate.
    AtMost(&'static str, &'static str),
    /// 0 or 1.
    Flag(&'static str),
    /// At most the number.
    UpTo(&'static str, u32),
    /// A power of two.
    PowerOfTwo(&'static str),
}

/// One kernel.
#[derive(Clone, Copy, Debug)]
pub struct KernelRow {
    /// Symbol in every code object; the descriptor is `<symbol>.kd`.
    pub symbol: &'static str,
    /// What it computes.
    pub op: Op,
    /// Element type of its table, weight or cache, where it is specialised on one.
    pub dtype: Option<Dtype>,
    /// Head dimension, where it is specialised on one.
    pub head_dim: Option<u32>,
    /// Form of the int8 activation that it multiplies or makes; `None`: f32.
    pub habit: Option<Habit>,
    /// Arguments in kernarg order: pointers first, then immediates.
    pub args: &'static [Arg],
    /// Threads per work-group, one-dimensional.
    pub block: u32,
    /// Work-groups per launch.
    pub grid: Grid,
    /// LDS bytes per work-group, all static.
    pub lds_bytes: u32,
    /// What its immediates must satisfy.
    pub needs: &'static [Need],
    /// Bytes it may read and write, per pointer argument.
    pub effects: &'static [Effect],
    /// Pairs of arguments that may be the same address: each element is read and written by one
    /// thread. Any other overlap with a written argument is an error.
    pub may_alias: &'static [(&'static str, &'static str)],
    /// Whether it writes nothing once the word `done` is set.
    pub idle_when_done: bool,
}

/// The kernel of that symbol.
#[must_use]
pub fn find(symbol: &str) -> Option<&'static KernelRow> {
    catalog().iter().find(|row| row.symbol == symbol)
}

/// The kernel for an operation on f32 activations, by what it is specialised on.
#[must_use]
pub fn find_op(op: Op, dtype: Option<Dtype>, head_dim: Option<u32>) -> Option<&'static KernelRow> {
    find_form(op, dtype, None, head_dim)
}

/// The kernel for an operation, by what it is specialised on and the form of its activation.
///
/// Rotated types that are stored as an unrotated one are multiplied by that one's kernels: the
/// rotation is in the activation. No kernel undoes it for an embedding.
#[must_use]
pub fn find_form(
    op: Op,
    dtype: Option<Dtype>,
    habit: Option<Habit>,
    head_dim: Option<u32>,
) -> Option<&'static KernelRow> {
    let dtype = match dtype {
        Some(Dtype::MQ4_G256) if op != Op::Embed => Some(Dtype::HFQ4_G256),
        Some(Dtype::MQ6_G256) if op != Op::Embed => Some(Dtype::HFQ6_G256),
        other => other,
    };
    catalog().iter().find(|row| {
        row.op == op && row.dtype == dtype && row.habit == habit && row.head_dim == head_dim
    })
}

impl KernelRow {
    /// The immediate arguments in order.
    pub fn imms(&self) -> impl Iterator<Item = &'static Arg> {
        self.args.iter().filter(|arg| !arg.kind.is_pointer())
    }

    /// The pointer arguments in order.
    pub fn pointers(&self) -> impl Iterator<Item = &'static Arg> {
        self.args.iter().filter(|arg| arg.kind.is_pointer())
    }

    /// Each argument with its byte offset in the kernarg segment.
    pub fn layout(&self) -> impl Iterator<Item = (&'static Arg, u32)> {
        self.args.iter().scan(0u32, |next, arg| {
            let offset = next.next_multiple_of(arg.kind.bytes());
            *next = offset + arg.kind.bytes();
            Some((arg, offset))
        })
    }

    /// Bytes of the kernarg segment.
    #[must_use]
    pub fn kernarg_bytes(&self) -> u32 {
        self.layout()
            .last()
            .map_or(0, |(arg, offset)| offset + arg.kind.bytes())
    }

    /// The kernarg segment for these values, in argument order, little-endian.
    ///
    /// # Errors
    /// [`CatalogError::Count`] or [`CatalogError::Kind`] if the values do not fit the row.
    pub fn pack(&self, values: &[ArgValue]) -> Result<Vec<u8>, CatalogError> {
        if values.len() != self.args.len() {
            return Err(self.count("arguments", self.args.len(), values.len()));
        }
        let mut bytes = Vec::with_capacity(self.kernarg_bytes() as usize);
        for ((arg, offset), value) in self.layout().zip(values) {
            bytes.resize(offset as usize, 0);
            match (arg.kind, *value) {
                (ArgKind::Pointer(_), ArgValue::Pointer(address)) => {
                    bytes.extend_from_slice(&address.to_le_bytes());
                }
                (ArgKind::U32 | ArgKind::F32Bits, ArgValue::Imm(imm)) => {
                    bytes.extend_from_slice(&imm.to_le_bytes());
                }
                (kind, _) => {
                    let expected = if kind.is_pointer() {
                        "pointer"
                    } else {
                        "immediate"
                    };
                    return Err(CatalogError::Kind {
                        symbol: self.symbol,
                        arg: arg.name,
                        expected,
                    });
                }
            }
        }
        Ok(bytes)
    }

    /// The named immediate's value; `imms` holds all of them in order.
    ///
    /// # Errors
    /// [`CatalogError::Count`] for another number of values, [`CatalogError::UnknownImm`] if the
    /// kernel has no such immediate.
    pub fn imm(&self, name: &'static str, imms: &[u32]) -> Result<u32, CatalogError> {
        let expected = self.imms().count();
        if imms.len() != expected {
            return Err(self.count("immediates", expected, imms.len()));
        }
        self.imms()
            .zip(imms)
            .find_map(|(arg, value)| (arg.name == name).then_some(*value))
            .ok_or(CatalogError::UnknownImm {
                symbol: self.symbol,
                imm: name,
            })
    }

    /// Work-groups of a launch with these immediates.
    ///
    /// # Errors
    /// As [`KernelRow::imm`], and [`CatalogError::Overflow`] if the number leaves u32.
    pub fn blocks(&self, imms: &[u32]) -> Result<u32, CatalogError> {
        let overflow = CatalogError::Overflow {
            symbol: self.symbol,
            what: "the grid",
        };
        match self.grid {
            Grid::One => Ok(1),
            Grid::Rows { per_block } => {
                let (r0, r1) = (self.imm("r0", imms)?, self.imm("r1", imms)?);
                r1.checked_sub(r0)
                    .map(|rows| rows.div_ceil(per_block))
                    .ok_or(overflow)
            }
            Grid::Elements { count, per_block } => Ok(self.imm(count, imms)?.div_ceil(per_block)),
            Grid::Sum(names) => self.fold(names, imms, 0, u32::checked_add),
            Grid::SumOf { counts, per_block } => self
                .fold(counts, imms, 0, u32::checked_add)
                .map(|sum| sum.div_ceil(per_block)),
            Grid::Product { counts, per_block } => self
                .fold(counts, imms, 1, u32::checked_mul)
                .map(|product| product.div_ceil(per_block)),
        }
    }

    fn fold(
        &self,
        names: &[&'static str],
        imms: &[u32],
        start: u32,
        step: fn(u32, u32) -> Option<u32>,
    ) -> Result<u32, CatalogError> {
        names.iter().try_fold(start, |value, name| {
            step(value, self.imm(name, imms)?).ok_or(CatalogError::Overflow {
                symbol: self.symbol,
                what: "the grid",
            })
        })
    }

    /// Checks every need against these immediates.
    ///
    /// # Errors
    /// [`CatalogError::Need`] with the first one violated; otherwise as [`KernelRow::imm`].
    pub fn check(&self, imms: &[u32]) -> Result<(), CatalogError> {
        for need in self.needs {
            let (name, holds, rule) = self.judge(*need, imms)?;
            if !holds {
                let value = u64::from(self.imm(name, imms)?);
                return Err(CatalogError::Need {
                    symbol: self.symbol,
                    imm: name,
                    value,
                    rule,
                });
            }
        }
        Ok(())
    }

    fn judge(
        &self,
        need: Need,
        imms: &[u32],
    ) -> Result<(&'static str, bool, String), CatalogError> {
        let get = |name| self.imm(name, imms);
        Ok(match need {
            Need::Positive(a) => (a, get(a)? > 0, "at least 1".into()),
            Need::MultipleOf(a, n) => (a, get(a)?.is_multiple_of(n), format!("a multiple of {n}")),
            Need::MultipleOfImm(a, b) => {
                let divisor = get(b)?;
                let holds = divisor > 0 && get(a)?.is_multiple_of(divisor);
                (a, holds, format!("a multiple of {b} = {divisor}"))
            }
            Need::Below(a, b) => (a, get(a)? < get(b)?, format!("below {b} = {}", get(b)?)),
            Need::AtMost(a, b) => (a, get(a)? <= get(b)?, format!("at most {b} = {}", get(b)?)),
            Need::Flag(a) => (a, get(a)? <= 1, "0 or 1".into()),
            Need::UpTo(a, n) => (a, get(a)? <= n, format!("at most {n}")),
            Need::PowerOfTwo(a) => (a, get(a)?.is_power_of_two(), "a power of two".into()),
        })
    }

    const fn count(&self, what: &'static str, expected: usize, given: usize) -> CatalogError {
        CatalogError::Count {
            symbol: self.symbol,
            what,
            expected,
            given,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{ArgValue, Grid, Need, catalog, find, find_form};
    use crate::{Access, ArgKind, CatalogError, Factor, Span, Term, WORDS, Writer};

    #[test]
    fn symbols_and_specialisations_are_unique() {
        let mut seen = HashSet::new();
        for row in catalog() {
            assert!(seen.insert(row.symbol), "{}", row.symbol);
            let found = find_form(row.op, row.dtype, row.habit, row.head_dim).unwrap();
            assert_eq!(found.symbol, row.symbol);
        }
        assert!(find("no_such_kernel").is_none());
    }

    fn of_terms(start: &[Term], end: &[Term]) -> Vec<Factor> {
        let terms = start.iter().chain(end);
        terms.flat_map(|term| term.factors).copied().collect()
    }

    #[test]
    fn every_name_in_a_row_is_one_of_its_arguments() {
        for row in catalog() {
            let zeros = vec![0; row.imms().count()];
            let imm = |name: &'static str| {
                assert!(row.imm(name, &zeros).is_ok(), "{} {name}", row.symbol)
            };
            let pointer = |name: &str| {
                assert!(
                    row.pointers().any(|arg| arg.name == name),
                    "{} {name}",
                    row.symbol
                );
            };
            for need in row.needs {
                match *need {
                    Need::Positive(a)
                    | Need::MultipleOf(a, _)
                    | Need::Flag(a)
                    | Need::UpTo(a, _)
                    | Need::PowerOfTwo(a) => imm(a),
                    Need::MultipleOfImm(a, b) | Need::Below(a, b) | Need::AtMost(a, b) => {
                        imm(a);
                        imm(b);
                    }
                }
            }
            for (a, b) in row.may_alias {
                pointer(a);
                pointer(b);
            }
            for effect in row.effects {
                pointer(effect.arg);
                let factors: Vec<Factor> = match effect.span {
                    Span::Bytes { start, end } => of_terms(start, end),
                    Span::Plane {
                        start,
                        end,
                        rows,
                        cols,
                        ..
                    } => [of_terms(start, end), vec![rows, cols]].concat(),
                    Span::Matrix { rows, cols } => [rows, &[cols]].concat(),
                    Span::Activation(count) => count.to_vec(),
                    Span::Word(_) | Span::NextRingEntry => Vec::new(),
                };
                for factor in factors {
                    if let Factor::Imm(name) = factor {
                        imm(name);
                    }
                }
            }
            match row.grid {
                Grid::Sum(counts) | Grid::SumOf { counts, .. } | Grid::Product { counts, .. } => {
                    counts.iter().for_each(|name| imm(name));
                }
                Grid::Elements { count, .. } => imm(count),
                Grid::One | Grid::Rows { .. } => {}
            }
        }
    }

    #[test]
    fn pointer_access_is_the_union_of_its_effects() {
        for row in catalog() {
            for arg in row.pointers() {
                let of_arg = || row.effects.iter().filter(|effect| effect.arg == arg.name);
                let reads = of_arg().any(|effect| effect.access.reads());
                let writes = of_arg().any(|effect| effect.access.writes());
                let ArgKind::Pointer(access) = arg.kind else {
                    unreachable!()
                };
                assert_eq!(
                    (access.reads(), access.writes()),
                    (reads, writes),
                    "{}",
                    row.symbol
                );
            }
        }
    }

    #[test]
    fn written_words_name_their_writer_and_state_is_kept_once_done() {
        for row in catalog() {
            for effect in row.effects {
                let Span::Word(word) = effect.span else {
                    continue;
                };
                if effect.access != Access::Read {
                    let writer = WORDS[word as usize].writer;
                    let Writer::Kernels(kernels) = writer else {
                        panic!("{} is the host's", word.name());
                    };
                    assert!(kernels.contains(&row.symbol), "{}", word.name());
                    assert!(row.idle_when_done, "{}", row.symbol);
                }
            }
        }
    }

    #[test]
    fn grids() {
        let cases: &[(&str, &[u32], u32)] = &[
            ("rmsnorm", &[4096, 0], 1),
            ("gemv_f16", &[0, 16, 32], 1),
            ("gemv_f16", &[16, 49, 32], 3),
            ("embed_f32", &[257], 2),
            ("rope", &[8, 2, 64, 64, 0], 10),
            ("attn_decode_f32_d64", &[8, 2, 0], 8),
            ("advance", &[], 1),
            ("gemv_silu_q8_0", &[16, 49, 32, 64], 3),
            ("gemv3_f32", &[20, 5, 8, 32], 3),
            ("gemv4_bf16", &[20, 5, 8, 15, 32], 3),
            ("moe_gate_up_f16", &[256, 8, 512, 2048], 256),
            ("moe_down_add_f16", &[0, 2048, 256, 8, 2048, 512], 128),
            ("attn_split_f16_d256", &[16, 2, 8, 0], 128),
            ("attn_merge", &[16, 256, 8], 16),
            ("l2_norm", &[16, 128, 0, 0], 32),
            ("delta_net_d128", &[16, 32, 1, 0, 0, 0], 32),
            ("short_conv_k3", &[1025], 5),
        ];
        for (symbol, imms, blocks) in cases {
            assert_eq!(
                find(symbol).unwrap().blocks(imms),
                Ok(*blocks),
                "{symbol} {imms:?}"
            );
        }
        assert!(find("gemv_f32").unwrap().blocks(&[2, 1, 16]).is_err());
        assert!(
            find("rope")
                .unwrap()
                .blocks(&[u32::MAX, 1, 64, 64, 0])
                .is_err()
        );
        for (symbol, imms) in [
            ("gemv2_f32", &[u32::MAX, 1, 32][..]),
            ("attn_split_f32_d32", &[1 << 16, 1, 1 << 16, 0]),
        ] {
            let blocks = find(symbol).unwrap().blocks(imms);
            assert!(
                matches!(blocks, Err(CatalogError::Overflow { .. })),
                "{symbol}"
            );
        }
    }

    #[test]
    fn needs_are_checked() {
        let good: &[(&str, &[u32])] = &[
            ("gemv_f32", &[0, 5, 48]),
            ("gemv_q8_0", &[0, 5, 64, 5]),
            ("rope", &[8, 2, 64, 16, 1]),
            ("attn_decode_f16_d128", &[8, 2, 0]),
            ("attn_split_f16_d128", &[8, 2, 4, 0]),
            ("moe_route", &[1024, 1024, 1]),
            ("moe_gemv_q8_0", &[6, 2, 16, 32]),
            ("sample", &[300, 256, 0x3F80_0000, 0x3F80_0000]),
            ("qk_norm_rope_kv_f16", &[8, 2, 256, 512, 64, 0, 0]),
        ];
        for (symbol, imms) in good {
            assert_eq!(
                find(symbol).unwrap().check(imms),
                Ok(()),
                "{symbol} {imms:?}"
            );
        }
        let bad: &[(&str, &[u32], &str)] = &[
            ("gemv_f32", &[0, 5, 40], "k"),
            ("gemv_q8_0", &[0, 5, 48, 5], "k"),
            ("gemv_q8_0", &[0, 6, 64, 5], "r1"),
            ("gemv_f32", &[5, 5, 48], "r0"),
            ("rmsnorm", &[6, 0], "n"),
            ("rmsnorm", &[0, 0], "n"),
            ("rope", &[8, 2, 64, 66, 0], "rot_dim"),
            ("rope", &[8, 2, 64, 64, 2], "interleaved"),
            ("attn_decode_f32_d32", &[8, 3, 0], "heads"),
            ("qk_norm", &[8, 2, 48, 0], "head_dim"),
            ("attn_split_f16_d128", &[8, 2, 3, 0], "splits"),
            ("attn_split_f16_d128", &[8, 2, 0, 0], "splits"),
            ("moe_route", &[1025, 8, 1], "n"),
            ("moe_route", &[8, 9, 1], "top_k"),
            ("moe_route", &[8, 2, 2], "normalize"),
            ("moe_gemv_q8_0", &[6, 2, 24, 32], "m"),
            ("moe_gemv_q8_0", &[6, 2, 16, 48], "k"),
            ("moe_down_add_f32", &[0, 17, 6, 2, 16, 32], "r1"),
            ("delta_net_d64", &[4, 6, 0, 0, 0, 0], "nv"),
            (
                "qk_norm_rope_kv_f16",
                &[8, 2, 256, 128, 64, 0, 0],
                "head_dim",
            ),
            ("sample", &[300, 257, 0x3F80_0000, 0x3F80_0000], "top_k"),
            ("sample", &[9, 9, 0x3F80_0000, 0x3F80_0001], "top_p"),
            (
                "sample",
                &[9, 9, 0x7F80_0000, 0x3F80_0000],
                "inv_temperature",
            ),
            (
                "sample",
                &[9, 9, 0xBF80_0000, 0x3F80_0000],
                "inv_temperature",
            ),
        ];
        for (symbol, imms, name) in bad {
            match find(symbol).unwrap().check(imms) {
                Err(CatalogError::Need { imm, .. }) => assert_eq!(imm, *name, "{symbol}"),
                other => panic!("{symbol} {imms:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn kernargs_pack_at_their_offsets() {
        let row = find("gemv_q8_0").unwrap();
        let values = [
            ArgValue::Pointer(0x1122_3344_5566_7788),
            ArgValue::Pointer(1),
            ArgValue::Pointer(2),
            ArgValue::Imm(3),
            ArgValue::Imm(4),
            ArgValue::Imm(5),
            ArgValue::Imm(6),
        ];
        let bytes = row.pack(&values).unwrap();
        assert_eq!(bytes.len(), 40);
        assert_eq!(bytes[..8], [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
        assert_eq!(bytes[36..], [6, 0, 0, 0]);
        let mut swapped = values;
        swapped.swap(2, 3);
        assert!(matches!(
            row.pack(&swapped),
            Err(CatalogError::Kind { arg: "y", .. })
        ));
        assert!(matches!(
            row.pack(&values[1..]),
            Err(CatalogError::Count { .. })
        ));
    }
}
