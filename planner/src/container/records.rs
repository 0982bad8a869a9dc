//! The sections of a plan file: which tables go into which, and the field list of every record.
//!
//! One `record!` or `choice!` row per type is both writer and reader. Changing a row changes the
//! format: raise the section's version and the format's major.

use super::codec::{self, Codec, CodecError, Reader, choice, record};
use super::error::ContainerError;
use super::{RawSection, tag_text};
use crate::machine::{Feature, Host, Link, LinkKind, Machine};
use crate::memory::Memory;
use crate::plan::{
    Activations, Arg, At, Buffer, BufferKind, Digest, Edge, Eligibility, Exec, Extent, Geometry,
    Hazard, HostAdd, HostGemv, HostStep, HostWhy, Invalidate, Kernel, Launch, Model, ModelFile,
    Options, Plan, RefusalReason, Region, Schedule, Share, SplitStep, Step, StepBody, Tensor,
    Transfer, Wait,
};
use crate::source::LoadOp;
use refrain_kernels::{Dtype, Target};
use std::collections::BTreeMap;

choice!(Dtype {
    1 => F32,
    2 => F16,
    3 => BF16,
    4 => Q8_0,
    5 => Q4_0,
    6 => Q4_1,
    7 => Q5_0,
    8 => Q5_1,
    9 => Q4_K,
    10 => Q5_K,
    11 => Q6_K,
    12 => IQ4_NL,
    13 => MXFP4,
    14 => HFQ4_G256,
    15 => MQ4_G256,
    16 => MQ4_G256_V2,
    17 => MQ4C_G256,
    18 => HFQ6_G256,
    19 => MQ6_G256,
});
choice!(Target { 1100 => Gfx1100, 1151 => Gfx1151, 1201 => Gfx1201 });
record!(Geometry {
    layers: u32,
    hidden: u32,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    ffn: u32,
    vocab: u32,
    rope_dims: u32,
    context_max: u32,
    norm_eps: f32,
    rope_theta: f32,
    conv_taps: u32,
    state_heads: u32,
    state_key_heads: u32,
    state_dim: u32,
    experts: u32,
    experts_used: u32,
    expert_ffn: u32,
    shared_ffn: u32,
});
choice!(LoadOp {
    1 => PairRows { head_rows: u32 },
    2 => TileRows { from: u32, keys: u32, per_key: u32, size: u32 },
    3 => TileColumns { keys: u32, per_key: u32, size: u32 },
    4 => AddOne,
    5 => NegExp,
});
record!(ModelFile {
    bytes: u64,
    header_bytes: u64,
    header_digest: Digest
});
record!(Tensor {
    name: String,
    dtype: Dtype,
    stored: Dtype,
    load: Vec<LoadOp>,
    rows: u32,
    cols: u32,
    file_offset: u64,
    file_bytes: u64,
    more: Vec<u64>,
    digest: Option<Digest>,
    buffer: u32,
    offset: u64,
    bytes: u64,
});
record!(Options {
    context: u32,
    bucket: u32,
    kv_dtype: Dtype,
    ring_entries: u32,
    gpu_layers: u32,
    exec: Option<Exec>,
    activations: Activations
});
choice!(Activations { 1 => Exact, 2 => Int8 });
choice!(Share { 1 => Auto, 2 => Pinned { millionths: u32 } });
choice!(Exec { 1 => Pcie, 2 => Cpu, 3 => Passback { share: Share } });
choice!(BufferKind {
    1 => Weights,
    2 => Constant,
    3 => Kv,
    4 => Scratch,
    5 => Control,
    6 => Prompt,
    7 => TokenRing,
    8 => State,
    9 => SpilledWeights,
    10 => HandOff,
});
record!(Memory {
    device: u64,
    device_rounded: u64,
    pinned: u64,
    pinned_rounded: u64,
    spilled: u64,
    kv: u64,
    kernarg: u64,
    ib: u64
});
record!(Buffer { name: String, kind: BufferKind, bytes: u64, align: u32, content: Vec<u8> });
record!(Kernel {
    symbol: String,
    target: Target,
    object: Digest,
    kernarg_bytes: u32,
    lds_bytes: u32,
    block: [u32; 3],
});
choice!(Arg {
    1 => Region { buffer: u32, offset: u64 },
    2 => Imm(u32),
    3 => WordAddr { offset: u32 },
});
choice!(Extent {
    1 => Fixed { bytes: u64 },
    2 => Row { word: u32, stride: u64, bytes: u64, count: u32 },
    3 => RowsTo { word: u32, stride: u64, count: u32 },
});
record!(Region {
    buffer: u32,
    offset: u64,
    extent: Extent
});
record!(Launch {
    kernel: u32,
    grid: [u32; 3],
    args: Vec<Arg>,
    reads: Vec<Region>,
    writes: Vec<Region>,
});
record!(At {
    buffer: u32,
    offset: u64
});
record!(Transfer {
    from: At,
    to: At,
    bytes: u64
});
choice!(HostAdd { 1 => Nothing, 2 => Rows(At) });
choice!(HostWhy { 1 => Asked, 2 => Shared, 3 => TooSmall });
record!(HostGemv {
    tensor: u32,
    first: u32,
    end: u32,
    x: At,
    add: HostAdd,
    y: At,
    why: HostWhy,
});
record!(HostStep {
    down: Vec<Transfer>,
    parts: Vec<HostGemv>,
    up: Vec<Transfer>,
    reads: Vec<Region>,
    writes: Vec<Region>,
});
record!(SplitStep { launches: Vec<Launch>, host: HostStep });
choice!(StepBody { 1 => Launch(Launch), 2 => Cpu(HostStep), 3 => Split(SplitStep) });
record!(Step { name: String, layer: Option<u32>, body: StepBody });
choice!(Hazard { 1 => Raw, 2 => War, 3 => Waw });
record!(Edge {
    from: u32,
    to: u32,
    hazard: Hazard,
    buffer: u32
});
choice!(Invalidate { 1 => None, 2 => Agent });
record!(Wait {
    before: u32,
    invalidate: Invalidate,
    because: u32
});
record!(Schedule { edges: Vec<Edge>, waits: Vec<Wait> });
record!(RefusalReason { code: u16, step: Option<u32>, detail: String });
choice!(Eligibility {
    1 => Whole,
    2 => Refused(Vec<RefusalReason>),
    3 => Segments(Vec<RefusalReason>),
});

/// Model facts without the tensor table, which is a section of its own.
struct ModelHead {
    arch: String,
    name: String,
    files: Vec<ModelFile>,
    geometry: Geometry,
    eos: Option<u32>,
}
record!(ModelHead {
    arch: String,
    name: String,
    files: Vec<ModelFile>,
    geometry: Geometry,
    eos: Option<u32>,
});

/// Version of every section body below.
const VERSION: u16 = 4;
const META: [u8; 4] = *b"META";
const MODEL: [u8; 4] = *b"MODL";
const TENSORS: [u8; 4] = *b"TENS";
const MACHINE: [u8; 4] = *b"MACH";
const OPTIONS: [u8; 4] = *b"OPTS";
const BUFFERS: [u8; 4] = *b"BUFF";
const KERNELS: [u8; 4] = *b"KERN";
const STEPS: [u8; 4] = *b"STEP";
const SCHEDULE: [u8; 4] = *b"SCHD";
const ELIGIBILITY: [u8; 4] = *b"ELIG";
const MEMORY: [u8; 4] = *b"MMRY";

/// The sections of a plan, in no particular order.
pub(super) fn sections(plan: &Plan) -> Vec<RawSection> {
    let model = ModelHead {
        arch: plan.model.arch.clone(),
        name: plan.model.name.clone(),
        files: plan.model.files.clone(),
        geometry: plan.model.geometry,
        eos: plan.model.eos,
    };
    let bodies = [
        (META, codec::to_vec(&plan.producer)),
        (MODEL, codec::to_vec(&model)),
        (TENSORS, codec::to_vec(&plan.model.tensors)),
        (MACHINE, codec::to_vec(&plan.machine)),
        (OPTIONS, codec::to_vec(&plan.options)),
        (BUFFERS, codec::to_vec(&plan.buffers)),
        (KERNELS, codec::to_vec(&plan.kernels)),
        (STEPS, codec::to_vec(&plan.steps)),
        (SCHEDULE, codec::to_vec(&plan.schedule)),
        (ELIGIBILITY, codec::to_vec(&plan.eligibility)),
        (MEMORY, codec::to_vec(&plan.memory)),
    ];
    bodies
        .map(|(tag, body)| RawSection {
            tag,
            version: VERSION,
            body,
        })
        .into()
}

/// Takes the known sections out and reads them; what is left is unknown and not critical.
pub(super) fn plan(
    mut sections: Vec<RawSection>,
) -> Result<(Plan, Vec<RawSection>), ContainerError> {
    let producer = read(&mut sections, META)?;
    let ModelHead {
        arch,
        name,
        files,
        geometry,
        eos,
    } = read(&mut sections, MODEL)?;
    let tensors = read(&mut sections, TENSORS)?;
    let machine: Machine = read(&mut sections, MACHINE)?;
    let plan = Plan {
        producer,
        model: Model {
            arch,
            name,
            files,
            geometry,
            eos,
            tensors,
        },
        machine,
        options: read(&mut sections, OPTIONS)?,
        buffers: read(&mut sections, BUFFERS)?,
        kernels: read(&mut sections, KERNELS)?,
        steps: read(&mut sections, STEPS)?,
        schedule: read(&mut sections, SCHEDULE)?,
        eligibility: read(&mut sections, ELIGIBILITY)?,
        memory: read(&mut sections, MEMORY)?,
    };
    match sections
        .iter()
        .find(|section| section.tag[0].is_ascii_uppercase())
    {
        Some(section) => Err(unknown(section)),
        None => Ok((plan, sections)),
    }
}

fn unknown(section: &RawSection) -> ContainerError {
    ContainerError::UnknownSection {
        section: tag_text(section.tag),
        version: section.version,
    }
}

fn read<T: Codec>(sections: &mut Vec<RawSection>, tag: [u8; 4]) -> Result<T, ContainerError> {
    let Some(index) = sections.iter().position(|section| section.tag == tag) else {
        return Err(ContainerError::MissingSection {
            section: tag_text(tag),
        });
    };
    let section = sections.remove(index);
    if section.version != VERSION {
        return Err(unknown(&section));
    }
    let body = |source| ContainerError::Body {
        section: tag_text(tag),
        source,
    };
    codec::from_slice(&section.body).map_err(body)
}

/// Most entries of a machine's lists; profiles have a dozen.
const MACHINE_ITEMS: usize = 4096;

impl Codec for Feature {
    const NAME: &'static str = "host feature";
    const MIN_BYTES: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        u32::from(self.id()).put(out);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        let at = from.at();
        let tag = u32::get(from)?;
        let found = Self::ALL
            .iter()
            .find(|feature| u32::from(feature.id()) == tag);
        found.copied().ok_or(CodecError::UnknownTag {
            at,
            what: Self::NAME,
            tag,
        })
    }
}

impl Codec for LinkKind {
    const NAME: &'static str = "link kind";
    const MIN_BYTES: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        u32::from(self.id()).put(out);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        let at = from.at();
        let tag = u32::get(from)?;
        let found = Self::ALL.iter().find(|kind| u32::from(kind.id()) == tag);
        found.copied().ok_or(CodecError::UnknownTag {
            at,
            what: Self::NAME,
            tag,
        })
    }
}

record!(Host { cores: u32, memory_bytes: u64, pinned_bytes: u64, features: Vec<Feature> });
record!(Link {
    kind: LinkKind,
    mb_per_s: u64
});

/// One source of a machine fact.
struct Source {
    field: String,
    text: String,
}
record!(Source {
    field: String,
    text: String
});

/// Sources as a list, fields ascending.
impl Codec for BTreeMap<String, String> {
    const NAME: &'static str = "sources of machine facts";
    const MIN_BYTES: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        let source = |(field, text): (&String, &String)| Source {
            field: field.clone(),
            text: text.clone(),
        };
        self.iter().map(source).collect::<Vec<_>>().put(out);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        let at = from.at();
        let value = |reason: &str| CodecError::Value {
            at,
            what: <Self as Codec>::NAME,
            reason: reason.to_owned(),
        };
        let sources = Vec::<Source>::get(from)?;
        if sources.len() > MACHINE_ITEMS {
            return Err(value("too many"));
        }
        if !sources.is_sorted_by(|a, b| a.field < b.field) {
            return Err(value("fields are not ascending"));
        }
        Ok(sources
            .into_iter()
            .map(|source| (source.field, source.text))
            .collect())
    }
}

record!(Machine {
    name: String,
    card: String,
    target: String,
    wave_size: u32,
    compute_units: u32,
    lds_bytes_per_group: u32,
    vram_bytes: u64,
    vram_mb_per_s: u64,
    unified_memory: bool,
    host: Host,
    link: Link,
    provenance: BTreeMap<String, String>,
});
